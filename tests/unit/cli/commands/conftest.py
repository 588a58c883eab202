"""A cluster of two brokers for commands, of which one does not answer."""

import random

import pytest

from rocketpy import admin as rocketpy_admin
from rocketpy.proto.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.proto.bodies.heartbeat import Connection, ConsumerConnection, GroupList
from rocketpy.proto.bodies.offset import ResetOffsetBody
from rocketpy.proto.bodies.stats import BrokerStatsData, ConsumeStats, OffsetWrapper
from rocketpy.proto.bodies.topic import (
    KVTable,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.proto.headers.pull import PullMessageResponseHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.testing.sim_clock import SimClock
from tests.unit.admin.fakes import BROKERS, NAMESRVS, FakeRemoting

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


@pytest.fixture
def remoting(monkeypatch: pytest.MonkeyPatch) -> FakeRemoting:
    """Two brokers with the topic `t` and the group `g`; `broker-b` does not answer."""
    fake = FakeRemoting()
    for name, address in BROKERS.items():
        _give(fake, name, address)
    _give_name_servers(fake)
    fake.down = {B}

    def connect(namesrv: str, **_: object) -> rocketpy_admin.Admin:
        return rocketpy_admin.Admin(NAMESRVS, fake, clock=SimClock(), rng=random.Random(1))

    monkeypatch.setattr(rocketpy_admin, "connect", connect)
    return fake


def _give(fake: FakeRemoting, name: str, address: str) -> None:
    queue = MessageQueue("t", name, 0)
    group, topic = SubscriptionGroupConfig(group_name="g"), TopicConfig(topic_name="t")
    offset = OffsetWrapper(broker_offset=9, consumer_offset=5)
    bodies = {
        RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable(
            offset_table={queue: TopicOffset(max_offset=4)}
        ),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupList(group_list={"g"}),
        RequestCode.VIEW_BROKER_STATS_DATA: BrokerStatsData(),
        RequestCode.GET_CONSUME_STATS: ConsumeStats(offset_table={queue: offset}),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(
            subscription_group_table={"g": group}
        ),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerConnection(
            connection_set=[Connection(client_id="c1", client_addr="9.9.9.9:1")]
        ),
        RequestCode.GET_BROKER_RUNTIME_INFO: KVTable(table={"putTps": "1"}),
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper(
            topic_config_table={"t": topic}
        ),
        RequestCode.GET_TOPIC_CONFIG: topic,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetBody(offset_table={queue: 1}),
    }
    for code, body in bodies.items():
        fake.response(code, at=address, body=body.encode())
    _give_messages(fake, address)
    fake.response(RequestCode.GET_BROKER_CONFIG, at=address, body=b"brokerName=x\n")
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    ):
        fake.response(code, at=address)


def _give_messages(fake: FakeRemoting, address: str) -> None:
    record = encode_message(
        MessageExt(
            topic="t",
            body=b"x",
            queue_offset=0,
            born_host="1.1.1.1:1",
            store_host=address,
            store_timestamp_ms=5,
            properties={"KEYS": "k", "UNIQ_KEY": "U"},
        )
    )

    def pull(request: RemotingCommand) -> RemotingCommand:
        at = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1
        ).to_ext()
        if request.ext_fields["queueOffset"] == "0":
            return make_response(request, 0, None, at, record)
        return make_response(request, 19, "", at)

    fake.response(RequestCode.QUERY_MESSAGE, at=address, body=record)
    fake.response(RequestCode.GET_MIN_OFFSET, at=address, ext={"offset": "0"})
    fake.response(RequestCode.GET_MAX_OFFSET, at=address, ext={"offset": "1"})
    fake.response_with(RequestCode.PULL_MESSAGE, pull, at=address)


def _give_name_servers(fake: FakeRemoting) -> None:
    fake.response(RequestCode.GET_KVLIST_BY_NAMESPACE, 22)
    for server in NAMESRVS:
        fake.response(RequestCode.GET_NAMESRV_CONFIG, at=server, body=b"listenPort=1\n")
        fake.response(RequestCode.UPDATE_NAMESRV_CONFIG, at=server)
        fake.response(RequestCode.DELETE_TOPIC_IN_NAMESRV, at=server)
        fake.response(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            at=server,
            body=TopicList(topic_list={"t"}).encode(),
        )
