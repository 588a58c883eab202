import pytest

from rocketpy.admin import Admin
from rocketpy.admin.topics import parse_permission
from rocketpy.errors import ClientError, InvalidParameterError, NoRouteError, TopicNotExistError
from rocketpy.proto.bodies.heartbeat import GroupList
from rocketpy.proto.bodies.route import TopicRouteData
from rocketpy.proto.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    OffsetWrapper,
)
from rocketpy.proto.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import BROKERS, NAMESRVS, FakeRemoting

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


async def test_topic_is_created_on_every_master(admin: Admin, remoting: FakeRemoting) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    remoting.response(code)
    done = await admin.create_topic("t", 4, attributes={"message.type": "FIFO"})
    assert done == BROKERS
    assert remoting.addresses(code) == [A, B]
    _, request = remoting.requests(code)[0]
    assert request.ext_fields == {
        "topic": "t", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        "attributes": "+message.type=FIFO",
    }  # fmt: skip
    assert not remoting.requests(RequestCode.PUT_KV_CONFIG)


async def test_ordered_topic_fixes_its_queues(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.UPDATE_AND_CREATE_TOPIC)
    remoting.response(RequestCode.PUT_KV_CONFIG)
    await admin.create_topic("t", 4, order=True, read_queues=8)
    _, created = remoting.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)[0]
    assert (created.ext_fields["order"], created.ext_fields["readQueueNums"]) == ("true", "8")
    assert remoting.addresses(RequestCode.PUT_KV_CONFIG) == list(NAMESRVS)
    _, put = remoting.requests(RequestCode.PUT_KV_CONFIG)[0]
    assert put.ext_fields == {
        "namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "broker-a:4;broker-b:4",
    }  # fmt: skip


async def test_refusal_is_an_error(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.UPDATE_AND_CREATE_TOPIC, 29, remark="bad name")
    with pytest.raises(InvalidParameterError, match="bad name"):
        await admin.create_topic("t", cluster="c2")
    assert remoting.addresses(RequestCode.UPDATE_AND_CREATE_TOPIC) == [B]


async def test_update_keeps_what_is_not_given(admin: Admin, remoting: FakeRemoting) -> None:
    old = TopicConfig(topic_name="t", read_queue_nums=5, write_queue_nums=6, perm=6, order=True)
    remoting.response(RequestCode.GET_TOPIC_CONFIG, body=old.encode())
    remoting.response(RequestCode.UPDATE_AND_CREATE_TOPIC)
    done = await admin.update_topic("t", perm=4)
    assert set(done) == set(BROKERS)
    _, request = remoting.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)[0]
    fields = request.ext_fields
    assert (fields["readQueueNums"], fields["writeQueueNums"]) == ("5", "6")
    assert (fields["perm"], fields["order"], fields["attributes"]) == ("4", "true", "")
    done = await admin.update_topic("t", queues=9, read_queues=10, broker="broker-b")
    assert (done["broker-b"].write_queue_nums, done["broker-b"].read_queue_nums) == (9, 10)
    assert remoting.asked[-1][0] == B
    with pytest.raises(ClientError, match="does not serve"):
        await admin.update_topic("t", queues=9, broker="nobody")


@pytest.mark.parametrize(
    ("queues", "read_queues", "expected"), [(2, None, (2, 8)), (9, None, (9, 9)), (2, 2, (2, 2))]
)
async def test_update_with_fewer_write_queues_keeps_read_queues(
    admin: Admin,
    remoting: FakeRemoting,
    queues: int,
    read_queues: int | None,
    expected: tuple[int, int],
) -> None:
    old = TopicConfig(topic_name="t", read_queue_nums=8, write_queue_nums=8)
    remoting.response(RequestCode.GET_TOPIC_CONFIG, body=old.encode())
    remoting.response(RequestCode.UPDATE_AND_CREATE_TOPIC)
    done = await admin.update_topic("t", queues=queues, read_queues=read_queues)
    assert {(each.write_queue_nums, each.read_queue_nums) for each in done.values()} == {expected}


async def test_lists_leave_the_systems_topics_out(admin: Admin, remoting: FakeRemoting) -> None:
    names = {"t", "TBW102", "%RETRY%g", "%DLQ%g", "c1", "broker-a", "c1_REPLY_TOPIC", "rmq_sys_x"}
    body = TopicList(topic_list=names).encode()
    remoting.response(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, body=body)
    remoting.response(RequestCode.GET_TOPICS_BY_CLUSTER, body=TopicList(topic_list={"u"}).encode())
    assert await admin.topics() == ["t"]
    assert await admin.topics(include_system=True) == sorted(names)
    assert await admin.topics(cluster="c1") == ["u"]


async def test_status_adds_brokers_up(admin: Admin, remoting: FakeRemoting) -> None:
    for name, address in BROKERS.items():
        offsets = TopicOffset(min_offset=1, max_offset=4, last_update_timestamp=99)
        table = TopicStatsTable(
            offset_table={MessageQueue("t", name, 0): offsets}, topic_put_tps=1.5
        )
        remoting.response(RequestCode.GET_TOPIC_STATS_INFO, at=address, body=table.encode())
    found = await admin.topic_status("t")
    assert [each.queue.broker_name for each in found.queues] == ["broker-a", "broker-b"]
    assert (found.messages, found.in_tps) == (6, 3.0)
    assert found.queues[0].last_stored_ms == 99


async def test_statistics_have_one_row_a_group(admin: Admin, remoting: FakeRemoting) -> None:
    data = BrokerStatsData(
        stats_minute=BrokerStatsItem(sum=60, tps=1.0), stats_hour=BrokerStatsItem(sum=500)
    )
    remoting.response(RequestCode.VIEW_BROKER_STATS_DATA, body=data.encode())
    remoting.response(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, body=GroupList().encode())
    [alone] = await admin.topic_statistics("t")
    assert (alone.group, alone.in_tps, alone.in_24h, alone.lag) == ("", 2.0, 1000, 0)

    groups = GroupList(group_list={"g"})
    remoting.response(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, body=groups.encode())
    behind = OffsetWrapper(broker_offset=9, consumer_offset=5)
    stats = ConsumeStats(offset_table={MessageQueue("t", "broker-a", 0): behind})
    empty = ConsumeStats()
    remoting.response(RequestCode.GET_CONSUME_STATS, at=A, body=stats.encode())
    remoting.response(RequestCode.GET_CONSUME_STATS, at=B, body=empty.encode())
    [row] = await admin.topic_statistics("t")
    assert (row.group, row.out_tps, row.out_24h, row.lag) == ("g", 2.0, 1000, 4)


async def test_deleting_reaches_brokers_and_name_servers(
    admin: Admin, remoting: FakeRemoting
) -> None:
    table = TopicConfigSerializeWrapper(topic_config_table={"t": TopicConfig(topic_name="t")})
    remoting.response(RequestCode.GET_ALL_TOPIC_CONFIG, body=table.encode())
    for code in (
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.DELETE_KV_CONFIG,
    ):
        remoting.response(code)
    remoting.response(RequestCode.GET_KV_CONFIG, ext={"value": "broker-a:4"})
    assert await admin.delete_topic("t") == BROKERS
    assert remoting.addresses(RequestCode.DELETE_TOPIC_IN_BROKER) == [A, B]
    assert remoting.addresses(RequestCode.DELETE_TOPIC_IN_NAMESRV) == list(NAMESRVS)
    assert remoting.addresses(RequestCode.DELETE_KV_CONFIG) == list(NAMESRVS)


async def test_delete_of_an_unknown_topic_or_group_raises(
    admin: Admin, remoting: FakeRemoting
) -> None:
    empty = TopicConfigSerializeWrapper()
    remoting.response(RequestCode.GET_ALL_TOPIC_CONFIG, body=empty.encode())
    remoting.response(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, body=TopicList().encode())
    with pytest.raises(TopicNotExistError, match="topic t does not exist"):
        await admin.delete_topic("t")
    assert not remoting.requests(RequestCode.DELETE_TOPIC_IN_BROKER)


async def test_routes(admin: Admin, remoting: FakeRemoting) -> None:
    assert await admin.topic_exists("t")
    _, request = remoting.asked[-1]
    assert request.ext_fields == {"topic": "t", "acceptStandardJsonOnly": "true"}
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, 17, remark="No topic route info")
    assert not await admin.topic_exists("t")
    with pytest.raises(TopicNotExistError):
        await admin.topic_status("t")
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=TopicRouteData().encode())
    with pytest.raises(NoRouteError, match="has no broker"):
        await admin.topic_status("t")


def test_permissions() -> None:
    assert parse_permission("rw") == parse_permission("6") == 6
    with pytest.raises(ValueError, match="'x' is not a permission"):
        parse_permission("x")
