"""Each live setting takes effect at once."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.replication.acknowledgements import NOT_ENOUGH, Acknowledgements
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.errors import ConfigError, DiskFullError
from rocketpy.proto.bodies.lock import QueryAssignmentResponseBody
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from rocketpy.proto.subscription import build_subscription
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.fastjson import dumps, loads
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.runtime.config.config import options_of
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.runtime.config.properties_file import parse_properties
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.fakes import FakeChannel, request

SECRET_FILE = Path("/secret")


def _taken(channel: FakeChannel, response: Any) -> Any:
    """A response that came later is here by now: nothing is waited for."""
    return channel.take(response) if isinstance(response, DeferredResponse) else response


class Kit:
    """A broker on simulated files that is asked without a network."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.files = SimFiles(self.clock)
        self.files.write_bytes(SECRET_FILE, b"a secret of thirty-two characters")
        self.broker = Broker(
            BrokerConfig(broker_name="b", listen_port=0),
            store_config=MessageStoreConfig(
                store_path_root_dir="/store",
                mapped_file_size_commit_log=1 << 16,
                mapped_file_size_consume_queue=2000,
                message_index_enable=False,
                broker_role="SYNC_MASTER",
            ),
            clock=self.clock,
            rng=random.Random(1),
            files=self.files,
            replication=ReplicationSettings(
                config=ReplicationConfig(replication_secret_file=str(SECRET_FILE))
            ),
        )
        self.parts = self.broker.parts
        self.parts.store.open()
        self.parts.topics.put(TopicConfig("T", 1, 1))
        self.table = self.broker.requests.routes
        self.names = 0

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Any:
        processor, *_ = self.table[code]
        channel: Any = FakeChannel()
        answer = processor(channel, request(code, ext, body))
        while self.parts.pools["adminBroker"].run_one():
            pass
        response = _taken(channel, answer)
        if isinstance(response, bytes):
            return CommandReader().feed(response)[0]
        assert response is None or isinstance(response, RemotingCommand)
        return response

    def update(self, **changes: object) -> None:
        text = "".join(f"{key}={value}\n" for key, value in changes.items())
        response = self.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())
        assert response.code == 0, response.remark

    @property
    def copies(self) -> Acknowledgements:
        server = self.parts.replication.server
        assert server is not None
        return server.acknowledgements

    def needed_of_two(self) -> int:
        self.update(inSyncReplicas=2)
        return self.copies.needed

    def new_name(self) -> str:
        self.names += 1
        return f"new{self.names}"

    def send(self, topic: str = "T", body: bytes = b"x", properties: str = "") -> Any:
        header = SendMessageRequestHeaderV2(
            producer_group="pg",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=properties,
            reconsume_times=0,
        )
        channel: Any = FakeChannel()
        command = request(RequestCode.SEND_MESSAGE_V2, header.to_ext(), body)
        response = _taken(channel, self.parts.sends.process(channel, command))
        if isinstance(response, RemotingCommand):
            return response.code
        assert response is not None
        return CommandReader().feed(bytes(response))[0].code

    def recall(self) -> int:
        """Call something back with a handle that is none; the response's code."""
        response = self.ask(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"})
        return int(response.code)

    def pull_of_new_group(self) -> Any:
        return self.pull(self.new_name())

    def lite_pull(self) -> Any:
        return self.pull(code=361)

    def pull(self, group: str = "g", offset: int = 0, code: int = 11) -> Any:
        """Pull; the response's code, None when it waits."""
        response = self.ask(
            code,
            {
                "consumerGroup": group,
                "topic": "T",
                "queueId": "0",
                "queueOffset": str(offset),
                "maxMsgNums": "1",
                "sysFlag": "6",
                "commitOffset": "0",
                "suspendTimeoutMillis": "15000",
                "subscription": "*",
                "expressionType": "TAG",
                "subVersion": "0",
            },
        )
        return None if response is None else response.code

    def suspended(self) -> Any:
        self.send()
        self.pull(offset=self.parts.store.max_offset("T", 0))
        suspended = self.parts.suspended_pulls
        found = [one for owner in suspended._by_owner.values() for one in owner.entries]
        suspended.release_all()
        return found[0].deadline_ms - self.clock.monotonic_ms() if found else None

    def heartbeat(self, consume_type: str = "CONSUME_PASSIVELY") -> Any:
        group = {
            "groupName": "g",
            "consumeType": consume_type,
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [],
        }
        body = dumps({"clientID": self.new_name(), "consumerDataSet": [group]})
        channel = FakeChannel()
        self.parts.clients.heartbeat(channel, request(34, {}, body))  # type: ignore[arg-type]
        return channel

    def pull_consumer_is_taken(self) -> Any:
        channel = self.heartbeat("CONSUME_ACTIVELY")
        members = self.parts.consumers.group("g")
        return members is not None and channel in [one.channel for one in members.clients()]

    def version_steps(self) -> int:
        before = self.parts.offsets.data_version["counter"]
        for _ in range(6):
            self.parts.offsets.commit("g", "T", 0, 1)
        return self.parts.offsets.data_version["counter"] - before

    def reset(self) -> Any:
        fields = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true"}
        self.parts.groups.get_or_create("g")
        self.send()
        self.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields | {"queueId": "0"})
        return self.parts.offsets.take_reset("g", "T", 0) is not None

    def create_system_topic(self) -> Any:
        fields = {
            "topic": "SELF_TEST_TOPIC",
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code

    def beats(self) -> Any:
        body = dumps({"clientID": self.new_name()})
        channel: Any = FakeChannel()
        response: Any = self.parts.clients.heartbeat(channel, request(34, {}, body))
        return response.code

    def assigned(self) -> Any:
        body = dumps({"topic": "T", "consumerGroup": "nobody", "clientId": "c"})
        processor, *_ = self.table[RequestCode.QUERY_ASSIGNMENT]
        response: object = asyncio.run(processor(FakeChannel(), request(400, {}, body)))  # type: ignore[arg-type]
        assert isinstance(response, RemotingCommand)
        listed = QueryAssignmentResponseBody.decode(response.body).message_queue_assignments
        return None if listed is None else [one.message_queue.queue_id for one in listed]  # type: ignore[union-attr]

    def told(self) -> int:
        """Number of notifications about a member's own registration and that of another one."""
        channel = self.heartbeat()
        channel.loop.turn()
        self.heartbeat()
        channel.loop.turn()
        return len(channel.oneway)

    def put_beside_a_slow_one(self) -> Any:
        """Whether a put is refused while another has held the lock for two seconds."""
        writer = self.parts.store._writer
        writer._lock_begin_ms = self.clock.monotonic_ms() - 2_000
        status = self.parts.store.put_message(PutMessage("T", 0, b"x")).status
        writer._lock_begin_ms = 0
        return status

    def condition_is_taken(self) -> int:
        subscription = {"topic": "T", "subString": "a > 5", "expressionType": "SQL92"}
        return int(self.ask(46, {}, dumps({"subscriptionData": subscription})).code)

    def dead_filter_is_kept(self) -> bool:
        filters = self.parts.filters
        filters.register("g", [build_subscription("T", "a > 5", "SQL92", sub_version=1)])
        filters.unregister("g")
        filters.step(0)
        return filters.get("T", "g") is not None

    def send_half(self) -> Any:
        return self.send(properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02")

    def reply_is_stored(self) -> bool:
        store, topic = self.parts.store, "DefaultCluster_REPLY_TOPIC"
        before = store.max_offset(topic, 0)
        fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
        command = request(325, fields | {"h": "0", "i": ""}, b"x")
        channel: Any = FakeChannel()
        asyncio.run(self.parts.replies.reply(channel, command))
        return bool(store.max_offset(topic, 0) > before)

    def service(self, name: str) -> Any:
        return next(one for one in self.broker.services if one.name == name)

    def keeps_check_point(self) -> bool:
        """Whether the check point of a pop waits in memory for acks."""
        queue = GroupQueue("T", self.new_name(), 0)
        point = CheckPoint("T", queue.group, 0, 0, self.clock.time_ms(), 60_000, 1)
        kept: bool = self.service("PopCheckPointBuffer").add(point, queue, 1, 0)
        return kept

    def half_is_checked(self, after_ms: int = 31_000) -> bool:
        """Whether a new half message is stored again after a time."""
        check, store = self.service("TransactionCheck"), self.parts.store
        check.step(self.clock.monotonic_ms())
        assert self.send_half() == 0
        end = store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        self.clock.advance(after_ms)
        for _ in range(5):
            check.step(self.clock.monotonic_ms())
        return bool(store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) > end)

    def half_is_given_up(self) -> bool:
        self.half_is_checked()
        return self.parts.topics.get("TRANS_CHECK_MAX_TIME_TOPIC") is not None

    def ops_are_written_at_once(self) -> bool:
        self.service("TransactionOps").add([1])
        return self.parts.store.max_offset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) > 0

    @property
    def pulls(self) -> Any:
        return self.parts.pulls.operation._config

    @property
    def policy(self) -> Any:
        return self.parts.store._parts.clean_log.policy


Case = tuple[str, Callable[[Kit], Any], Any, object, Any]

CASES: list[Case] = [
    ("brokerPermission", Kit.pull, None, 2, 16),
    ("autoCreateTopicEnable", lambda kit: kit.send(kit.new_name()), 0, "false", 17),
    ("autoCreateSubscriptionGroup", Kit.pull_of_new_group, None, "false", 26),
    ("validateSystemTopicWhenUpdateTopic", Kit.create_system_topic, 29, "false", 0),
    ("startAcceptSendRequestTimeStamp", lambda kit: kit.send(), 0, 1 << 60, 1),
    ("longPollingEnable", Kit.suspended, 15_000, "false", 1_000),
    ("maxHeldPulls", Kit.suspended, 15_000, 0, None),
    ("litePullMessageEnable", Kit.lite_pull, None, "false", 16),
    ("rejectPullConsumerEnable", Kit.pull_consumer_is_taken, True, "true", False),
    ("enablePropertyFilter", Kit.condition_is_taken, 0, "false", 1),
    ("filterDataCleanTimeSpan", Kit.dead_filter_is_kept, True, 0, False),
    ("useServerSideResetOffset", Kit.reset, True, "false", False),
    ("notifyConsumerIdsChangedEnable", Kit.told, 2, "false", 0),
    ("consumerOffsetUpdateVersionStep", Kit.version_steps, 0, 2, 3),
    ("maxTopicsForAutoCreate", lambda kit: kit.send(kit.new_name()), 0, 5, 17),
    ("maxGroupsForAutoCreate", Kit.pull_of_new_group, None, 5, 26),
    ("maxHeldPullsPerQueue", Kit.suspended, 15_000, 0, None),
    ("maxHeartbeatBytes", Kit.beats, 0, 10, 29),
    ("serverLoadBalancerEnable", Kit.assigned, None, "false", [0]),
    ("storeReplyMessageEnable", Kit.reply_is_stored, True, "false", False),
    ("rejectTransactionMessage", Kit.send_half, 0, "true", 16),
    ("transactionTimeOut", Kit.half_is_checked, True, 1_000_000, False),
    ("transactionCheckMax", Kit.half_is_given_up, False, 1, True),
    ("transactionCheckInterval", lambda kit: kit.half_is_checked(10_000), False, 5_000, True),
    ("transactionOpMsgMaxSize", Kit.ops_are_written_at_once, False, 1, True),
    (
        "transactionOpBatchInterval",
        lambda kit: kit.service("TransactionOps").step(0),
        3_000,
        7,
        7,
    ),
    ("traceOn", lambda kit: kit.parts.sends._operation._own["TRACE_ON"], "true", "false", "false"),
    ("maxMessageSize", lambda kit: kit.send(body=b"x" * 100), 0, 99, 13),
    (
        "osPageCacheBusyTimeOutMills",
        Kit.put_beside_a_slow_one,
        PutMessageStatus.OS_PAGE_CACHE_BUSY,
        3_000,
        PutMessageStatus.PUT_OK,
    ),
    ("enablePopBufferMerge", lambda kit: kit.keeps_check_point(), True, "false", False),
    ("popCkStayBufferTime", lambda kit: kit.keeps_check_point(), True, 0, False),
    ("popCkStayBufferTimeOut", lambda kit: kit.keeps_check_point(), True, 60_000, False),
    ("popCkMaxBufferSize", lambda kit: kit.keeps_check_point(), True, 0, False),
    ("popCkOffsetMaxQueueSize", lambda kit: kit.keeps_check_point(), True, 0, False),
    ("recallMessageEnable", lambda kit: kit.recall(), 16, "true", 604),
    ("slaveReadEnable", lambda kit: kit.pulls.slave_read_enable, False, "true", True),
    ("offsetCheckInSlave", lambda kit: kit.pulls.offset_check_in_slave, False, "true", True),
    ("deleteWhen", lambda kit: kit.policy.delete_hours, {4}, "2;16", {2, 16}),
    ("fileReservedTime", lambda kit: kit.policy.file_reserved_ms, 259_200_000, 1, 3_600_000),
    ("diskMaxUsedSpaceRatio", lambda kit: kit.policy.max_used_ratio, 0.75, 50, 0.5),
    ("diskSpaceCleanForciblyRatio", lambda kit: kit.policy.clean_forcibly_ratio, 0.85, 60, 0.6),
    ("diskSpaceWarningLevelRatio", lambda kit: kit.policy.warning_ratio, 0.9, 70, 0.7),
    ("inSyncReplicas", lambda kit: kit.copies.needed, 1, 2, 2),
    ("minInSyncReplicas", lambda kit: kit.copies.refusal, None, 2, NOT_ENOUGH),
    ("enableAutoInSyncReplicas", Kit.needed_of_two, 2, "true", 1),
    ("cleanFileForciblyEnable", lambda kit: kit.policy.clean_forcibly, True, "false", False),
]


@pytest.mark.parametrize(
    ("key", "probe", "before", "value", "after"), CASES, ids=[case[0] for case in CASES]
)
def test_live_setting_takes_effect(
    key: str, probe: Callable[[Kit], Any], before: Any, value: object, after: Any
) -> None:
    kit = Kit()
    assert probe(kit) == before
    kit.update(**{key: value})
    assert probe(kit) == after


def test_live_setting_of_copies_without_slaves_is_refused() -> None:
    store = MessageStoreConfig(store_path_root_dir="/store", broker_role="SYNC_MASTER")
    files = SimFiles()
    broker = Broker(BrokerConfig(broker_name="b"), store_config=store, files=files)
    configs = broker.parts.configs
    with pytest.raises(ConfigError) as caught:
        configs.update({"inSyncReplicas": "2"})
    assert caught.value.key == "inSyncReplicas"
    assert configs.get(ReplicationConfig).in_sync_replicas == 1
    assert not files.exists(store.live_settings_file), "nothing is kept for the next start"


def test_live_setting_short_polling_takes_effect() -> None:
    kit = Kit()
    kit.update(longPollingEnable="false", shortPollingTimeMills=7)
    assert kit.suspended() == 7


def test_live_settings_are_all_tested() -> None:
    tested = {case[0] for case in CASES} | {"shortPollingTimeMills"}
    of_the_process = {each.key for each in options_of(OperationConfig) if each.live}
    assert Kit().parts.configs.live_keys == tested | of_the_process


def test_live_setting_auto_creation_can_be_enabled_later() -> None:
    kit = Kit()
    kit.parts.topics.delete("TBW102")
    assert kit.send("a") == 17
    kit.update(autoCreateTopicEnable="true")
    assert kit.send("b") == 0


def test_live_settings_are_persisted_and_shown() -> None:
    kit = Kit()
    kit.update(brokerPermission=4)
    kit.update(deleteWhen="2;16", brokerPermission=6)
    kept = kit.files.read_bytes(Path("/store/config/live.properties")).decode()
    assert {each.key: each.value for each in parse_properties(kept)} == {
        "brokerPermission": "6",
        "deleteWhen": "2;16",
    }
    response = kit.ask(RequestCode.GET_BROKER_CONFIG)
    assert "deleteWhen=2;16" in response.body.decode().splitlines()
    assert loads(response.ext_fields["version"].encode())["counter"] == 2


def test_live_setting_not_persisted_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()

    def full(path: Path, data: bytes) -> None:
        raise DiskFullError(f"no space for {path}")

    monkeypatch.setattr(kit.files, "write_bytes", full)
    with pytest.raises(DiskFullError):
        kit.parts.configs.update({"brokerPermission": "4"})
    assert kit.parts.configs.broker.broker_permission == 6
    assert kit.send() == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"deleteWhen": "25"},
        {"consumerOffsetUpdateVersionStep": "0"},
        {"maxHeldPulls": "-1"},
        {"traceTopicEnable": "true"},
        {"transactionCheckMax": "0"},
    ],
    ids=str,
)
def test_live_setting_invalid_value_or_combination_is_refused(
    changes: dict[str, str],
) -> None:
    kit = Kit()
    with pytest.raises(ConfigError):
        kit.parts.configs.update(changes)
    assert not kit.files.exists(Path("/store/config/live.properties"))
