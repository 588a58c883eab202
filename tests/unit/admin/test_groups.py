import pytest

from rocketpy.admin import Admin
from rocketpy.errors import (
    BrokerError,
    ConsumerNotOnlineError,
    NoPermissionError,
    SubscriptionGroupNotExistError,
)
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.heartbeat import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketpy.proto.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import (
    BROKERS,
    NAMESRVS,
    QA,
    QB,
    FakeRemoting,
    give_groups,
    give_progress,
)

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


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


async def test_group_is_created_on_every_master(admin: Admin, remoting: FakeRemoting) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    remoting.response(code)
    assert await admin.create_group("g", broker="broker-b") == {"broker-b": B}
    config = SubscriptionGroupConfig(retry_max_times=2)
    assert await admin.create_group("g", config=config) == BROKERS
    sent = [SubscriptionGroupConfig.decode(request.body) for _, request in remoting.requests(code)]
    assert [(each.group_name, each.retry_max_times) for each in sent] == [
        ("g", 16), ("g", 2), ("g", 2),
    ]  # fmt: skip


async def test_update_changes_what_is_given_where_the_group_is(
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
    with pytest.raises(SubscriptionGroupNotExistError, match="group none does not exist"):
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


async def test_group_without_a_retry_topic_is_looked_for_everywhere(
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
        from rocketpy.proto.wire.command import make_response  # noqa: PLC0415

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
    members = await admin.producer_connection("p", "t")
    assert [each.client_id for each in members] == ["c"]
    assert list(members.failures) == ["broker-a"]
    remoting.down = {B}
    with pytest.raises(NoPermissionError):
        await admin.producer_connection("p", "t")
    table = ProducerTableInfo(data={"p": [ProducerInfo(client_id="c", remote_ip="/1.1.1.1:2")]})
    remoting.response(RequestCode.GET_ALL_PRODUCER_INFO, body=table.encode())
    assert (await admin.producers(A))["p"][0].remote_ip == "/1.1.1.1:2"
