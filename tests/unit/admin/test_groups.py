from datetime import UTC, datetime

import pytest

from rocketpy.admin import Admin
from rocketpy.errors import (
    BrokerError,
    ClientError,
    ConsumerNotOnlineError,
    NoPermissionError,
    SubscriptionGroupNotExistError,
)
from rocketpy.proto.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.proto.bodies.heartbeat import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketpy.proto.bodies.offset import ResetOffsetBody
from rocketpy.proto.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from rocketpy.proto.bodies.stats import ConsumeStats, OffsetWrapper
from rocketpy.proto.bodies.topic import TopicOffset, TopicStatsTable
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.admin.fakes import BROKERS, NAMESRVS, FakeRemoting, route

A, B = BROKERS["broker-a"], BROKERS["broker-b"]
QA, QB = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)


def give_groups(remoting: FakeRemoting, *names: str, at: str = "") -> None:
    table = {name: SubscriptionGroupConfig(group_name=name, retry_max_times=3) for name in names}
    body = SubscriptionGroupWrapper(subscription_group_table=table).encode()
    remoting.response(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, at=at, body=body)


def give_progress(remoting: FakeRemoting) -> None:
    for queue, address in ((QA, A), (QB, B)):
        done = OffsetWrapper(broker_offset=10, consumer_offset=7, last_timestamp=5)
        body = ConsumeStats(offset_table={queue: done}, consume_tps=1.5).encode()
        remoting.response(RequestCode.GET_CONSUME_STATS, at=address, body=body)


def give_members(remoting: FakeRemoting, *client_ids: str) -> None:
    connections = [
        Connection(client_id=each, client_addr="9.9.9.9:1", language="JAVA", version=493)
        for each in client_ids
    ]
    body = ConsumerConnection(
        connection_set=connections,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
    ).encode()
    remoting.response(RequestCode.GET_CONSUMER_CONNECTION_LIST, body=body)


async def test_a_group_is_created_on_every_master(admin: Admin, remoting: FakeRemoting) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    remoting.response(code)
    assert await admin.create_group("g", broker="broker-b") == {"broker-b": B}
    config = SubscriptionGroupConfig(retry_max_times=2)
    assert await admin.create_group("g", config=config) == BROKERS
    sent = [SubscriptionGroupConfig.decode(request.body) for _, request in remoting.requests(code)]
    assert [(each.group_name, each.retry_max_times) for each in sent] == [
        ("g", 16), ("g", 2), ("g", 2),
    ]  # fmt: skip


async def test_an_update_changes_what_is_given_where_the_group_is(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_groups(remoting, "other", at=A)
    give_groups(remoting, "g", at=B)
    remoting.response(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    done = await admin.update_group("g", consume=False, broadcast=False, orderly=True)
    assert set(done) == {"broker-b"}
    [(address, request)] = remoting.requests(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    config = SubscriptionGroupConfig.decode(request.body)
    assert address == B
    assert (config.retry_max_times, config.consume_enable) == (3, False)
    assert (config.consume_broadcast_enable, config.consume_message_orderly) == (False, True)
    assert (await admin.update_group("g", retries=9))["broker-b"].retry_max_times == 9
    with pytest.raises(SubscriptionGroupNotExistError, match="there is no group none"):
        await admin.update_group("none", retries=1)


async def test_deleting_takes_the_retry_topic_along(admin: Admin, remoting: FakeRemoting) -> None:
    give_groups(remoting, at=A)
    give_groups(remoting, "g", at=B)
    for code in (
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    ):
        remoting.response(code)
    assert await admin.delete_group("g", keep_offsets=True) == {"broker-b": B}
    assert not remoting.requests(RequestCode.DELETE_TOPIC_IN_BROKER)
    await admin.delete_group("g")
    fields = [each.ext_fields for _, each in remoting.requests(207)]
    assert [each["cleanOffset"] for each in fields] == ["false", "true"]
    [(address, request)] = remoting.requests(RequestCode.DELETE_TOPIC_IN_BROKER)
    assert (address, request.ext_fields) == (B, {"topic": "%RETRY%g"})
    assert remoting.addresses(RequestCode.DELETE_TOPIC_IN_NAMESRV) == list(NAMESRVS)


async def test_progress_adds_brokers_up(admin: Admin, remoting: FakeRemoting) -> None:
    give_progress(remoting)
    found = await admin.group_lag("g", "t")
    assert [(each.queue, each.lag, each.client_id) for each in found.queues] == [
        (QA, 3, ""), (QB, 3, ""),
    ]  # fmt: skip
    assert (found.lag, found.out_tps) == (6, 3.0)
    _, request = remoting.requests(RequestCode.GET_CONSUME_STATS)[0]
    assert request.ext_fields == {"consumerGroup": "g", "topic": "t"}
    [(_, asked)] = remoting.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert asked.ext_fields["topic"] == "%RETRY%g"


async def test_a_group_without_a_retry_topic_is_looked_for_everywhere(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_progress(remoting)
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, 17, remark="No topic route info")
    assert (await admin.group_lag("g")).lag == 6
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, remark="not ready")
    with pytest.raises(BrokerError, match="not ready"):
        await admin.group_lag("g")


async def test_owners_are_asked_of_the_members(admin: Admin, remoting: FakeRemoting) -> None:
    give_progress(remoting)
    give_members(remoting, "c1", "c2")
    info = ConsumerRunningInfo(mq_table={QA: ProcessQueueInfo()})

    def running(request: object) -> object:
        from rocketpy.proto.command import make_response  # noqa: PLC0415

        assert hasattr(request, "ext_fields")
        if request.ext_fields["clientId"] == "c1":
            return make_response(request, body=info.encode())  # type: ignore[arg-type]
        return make_response(request, 1, "The Consumer <g> <c2> not online")  # type: ignore[arg-type]

    remoting.response_with(RequestCode.GET_CONSUMER_RUNNING_INFO, running)  # type: ignore[arg-type]
    found = await admin.group_lag("g", owners=True)
    assert [each.client_id for each in found.queues] == ["c1", ""]
    with pytest.raises(BrokerError, match="not online"):
        await admin.running_info("g", "c2")


async def test_groups_have_members_and_lag(admin: Admin, remoting: FakeRemoting) -> None:
    give_groups(remoting, "g", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS")
    give_progress(remoting)
    give_members(remoting, "c1", "c2")
    [row] = await admin.groups()
    assert (row.group, row.members, row.lag, row.out_tps) == ("g", 2, 6, 3.0)
    assert (row.consume_type, row.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert len(await admin.groups(include_system=True)) == 3
    remoting.response(RequestCode.GET_CONSUMER_CONNECTION_LIST, 206, remark="not online")
    [row] = await admin.groups()
    assert (row.members, row.consume_type) == (0, "")


async def test_members_are_listed_once(admin: Admin, remoting: FakeRemoting) -> None:
    give_members(remoting, "c2", "c1")
    members = await admin.group_members("g")
    assert [(each.client_id, each.broker) for each in members] == [
        ("c1", "broker-a"), ("c2", "broker-a"),
    ]  # fmt: skip
    assert (members[0].language, members[0].version) == ("JAVA", "493")
    remoting.response(RequestCode.GET_CONSUMER_CONNECTION_LIST, 206, remark="not online")
    assert await admin.group_members("g") == []
    assert await admin.queue_owners("g") == {}
    with pytest.raises(ConsumerNotOnlineError, match="has no connected member"):
        await admin.consumer_connection("g")


async def test_producers(admin: Admin, remoting: FakeRemoting) -> None:
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    remoting.response(code, 1, remark="the producer group[p] not exist")
    assert await admin.producer_connection("p", "t") == []
    body = ProducerConnection(connection_set=[Connection(client_id="c", client_addr="x:1")])
    remoting.response(code, at=B, body=body.encode())
    [member] = await admin.producer_connection("p", "t")
    assert (member.client_id, member.broker, member.language) == ("c", "broker-b", "")
    remoting.response(code, 16, remark="no")
    with pytest.raises(NoPermissionError):
        await admin.producer_connection("p", "t")
    table = ProducerTableInfo(data={"p": [ProducerInfo(client_id="c", remote_ip="/1.1.1.1:2")]})
    remoting.response(RequestCode.GET_ALL_PRODUCER_INFO, body=table.encode())
    assert (await admin.producers(A))["p"][0].remote_ip == "/1.1.1.1:2"


async def test_a_reset_goes_to_every_broker_of_the_topic(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_progress(remoting)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    for queue, address in ((QA, A), (QB, B)):
        body = ResetOffsetBody(offset_table={queue: 10}).encode()
        remoting.response(code, at=address, body=body)
    moves = await admin.reset_offset("g", "t", "latest")
    assert [(each.queue, each.from_offset, each.to_offset) for each in moves] == [
        (QA, 7, 10), (QB, 7, 10),
    ]  # fmt: skip
    _, request = remoting.requests(code)[0]
    assert request.ext_fields == {
        "group": "g", "topic": "t", "queueId": "-1", "timestamp": "-1", "isForce": "true",
    }  # fmt: skip
    await admin.reset_offset("g", "t", "earliest")
    assert remoting.asked[-1][1].ext_fields["timestamp"] == "0"
    await admin.reset_offset("g", "t", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
    assert remoting.asked[-1][1].ext_fields["timestamp"] == "1700000000000"

    before = len(remoting.requests(code))
    await admin.reset_offset("g", "t", 4, queue=QB)
    [(address, request)] = remoting.requests(code)[before:]
    assert (address, request.ext_fields["queueId"], request.ext_fields["offset"]) == (B, "0", "4")
    with pytest.raises(ClientError, match="an offset belongs to one queue"):
        await admin.reset_offset("g", "t", 4)
    with pytest.raises(ClientError, match="broker x does not serve topic t"):
        await admin.reset_offset("g", "t", 4, queue=MessageQueue("t", "x", 0))


async def test_a_dry_run_changes_nothing(admin: Admin, remoting: FakeRemoting) -> None:
    give_progress(remoting)
    for queue, address in ((QA, A), (QB, B)):
        other = MessageQueue("t", queue.broker_name, 1)
        table = {each: TopicOffset(min_offset=2, max_offset=10) for each in (queue, other)}
        body = TopicStatsTable(offset_table=table).encode()
        remoting.response(RequestCode.GET_TOPIC_STATS_INFO, at=address, body=body)
    remoting.response(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext={"offset": "5"})
    when = datetime(2023, 11, 14, tzinfo=UTC)
    for to, expected in (("earliest", 2), ("latest", 10), (when, 5)):
        moves = await admin.reset_offset("g", "t", to, dry_run=True)  # type: ignore[arg-type]
        assert [each.to_offset for each in moves] == [expected] * 4
        assert [each.from_offset for each in moves] == [7, -1, 7, -1]
    [move] = await admin.reset_offset("g", "t", 8, queue=QA, dry_run=True)
    assert (move.queue, move.to_offset) == (QA, 8)
    assert not remoting.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)


async def test_offsets_are_cloned_queue_by_queue(admin: Admin, remoting: FakeRemoting) -> None:
    give_progress(remoting)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    remoting.response(code)
    moves = await admin.clone_offsets("g", "h", "t", dry_run=True)
    assert not remoting.requests(code)
    assert await admin.clone_offsets("g", "h", "t") == moves
    assert [(address, request.ext_fields) for address, request in remoting.requests(code)] == [
        (A, {"consumerGroup": "h", "topic": "t", "queueId": "0", "commitOffset": "7"}),
        (B, {"consumerGroup": "h", "topic": "t", "queueId": "0", "commitOffset": "7"}),
    ]
    await admin.set_offsets("h", {QB: 1})
    assert remoting.asked[-1][0] == B


def test_the_fake_route_has_both_brokers() -> None:
    assert {each.broker_name for each in route().queue_datas} == set(BROKERS)
