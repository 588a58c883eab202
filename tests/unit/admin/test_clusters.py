import pytest

from rocketpy.admin import Admin
from rocketpy.errors import BrokerError, ConnectError, ServersFailedError
from rocketpy.proto.bodies.stats import BrokerStatsData, BrokerStatsItem
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import BROKERS, NAMESRVS, FakeRemoting

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


async def test_brokers_say_what_they_do_and_silent_ones_why_not(
    admin: Admin, remoting: FakeRemoting
) -> None:
    runtime = {
        "brokerVersionDesc": "V5_4_0",
        "putTps": "1.5 2.0 3.0",
        "getTransferredTps": "",
        "msgPutTotalTodayNow": "10",
        "msgPutTotalTodayMorning": "4",
        "commitLogDiskRatio": "0.25",
    }
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, body=KVTable(table=runtime).encode())
    remoting.down = {B}
    found = {each.address: each for each in await admin.brokers()}
    assert len(found) == 4  # masters and slaves
    assert found[A].broker_id == 0
    assert (found[A].version, found[A].in_tps, found[A].out_tps) == ("V5_4_0", 1.5, 0.0)
    assert (found[A].stored_today, found[A].delivered_today) == (6, 0)
    assert found[A].disk_ratio == 0.25
    assert found[A].runtime == runtime
    assert found[B].error == f"cannot connect to {B}"
    assert found[B].disk_ratio == -1.0
    assert {each.broker for each in await admin.brokers("c1")} == {"broker-a"}


async def test_missing_statistics_are_none(admin: Admin, remoting: FakeRemoting) -> None:
    code = RequestCode.VIEW_BROKER_STATS_DATA
    remoting.response(code, 1, remark="The stats <TOPIC_PUT_NUMS> <t> not exist")
    assert await admin.broker_stats(A, "TOPIC_PUT_NUMS", "t") is None
    data = BrokerStatsData(stats_minute=BrokerStatsItem(sum=6, tps=0.1))
    remoting.response(code, body=data.encode())
    found = await admin.broker_stats(A, "TOPIC_PUT_NUMS", "t")
    assert found is not None
    assert found.stats_minute == BrokerStatsItem(sum=6, tps=0.1)
    remoting.response(code, 14, remark="busy")
    with pytest.raises(BrokerError):
        await admin.broker_stats(A, "TOPIC_PUT_NUMS", "t")


async def test_pings(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert await admin.ping_broker("somewhere:1") >= 0
    assert await admin.ping_namesrv("elsewhere:2") >= 0
    assert [address for address, _ in remoting.asked] == ["somewhere:1", "elsewhere:2"]
    remoting.down = {"somewhere:1"}
    with pytest.raises(ConnectError):
        await admin.ping_broker("somewhere:1")


async def test_controller_without_a_leader_is_not_ready(
    admin: Admin, remoting: FakeRemoting
) -> None:
    code = RequestCode.CONTROLLER_GET_METADATA_INFO
    remoting.response(code, ext={"isLeader": "false"})
    assert await admin.ping_controller("somewhere:9878") >= 0
    assert await admin.controller_not_ready("somewhere:9878") == "no_leader: no controller leads"
    remoting.response(code, ext={"isLeader": "false", "controllerLeaderAddress": "other:9878"})
    assert await admin.controller_not_ready("somewhere:9878") == ""
    assert remoting.addresses(code) == ["somewhere:9878"] * 3


async def test_request_to_a_name_server_instead_of_a_broker_names_the_mistake(
    admin: Admin, remoting: FakeRemoting
) -> None:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    remoting.response(code, 3, remark=" request type 28 not supported", at=NAMESRVS[0])
    with pytest.raises(BrokerError, match=f"is {NAMESRVS[0]} a name server instead of a broker"):
        await admin.ping_broker(NAMESRVS[0])


async def test_permissions_are_changed_at_every_name_server(
    admin: Admin, remoting: FakeRemoting
) -> None:
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    remoting.response(code, ext={"wipeTopicCount": "3"})
    remoting.response(code, at=NAMESRVS[1], ext={"wipeTopicCount": "7"})
    assert await admin.wipe_write_permission("broker-a") == 7
    assert remoting.addresses(code) == list(NAMESRVS)
    remoting.response(RequestCode.ADD_WRITE_PERM_OF_BROKER, ext={"addTopicCount": "2"})
    assert await admin.add_write_permission("broker-a") == 2
    _, request = remoting.asked[-1]
    assert request.ext_fields == {"brokerName": "broker-a"}


async def test_configuration_is_properties_text(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.GET_BROKER_CONFIG, body=b"a=1\nb=x=y\n")
    assert await admin.broker_config(A) == {"a": "1", "b": "x=y"}
    remoting.response(RequestCode.UPDATE_BROKER_CONFIG)
    await admin.update_broker_config(A, {"fileReservedTime": "48"})
    address, request = remoting.asked[-1]
    assert (address, request.body) == (A, b"fileReservedTime=48\n")
    remoting.response(RequestCode.GET_NAMESRV_CONFIG, body=b"listenPort=9876\n")
    assert await admin.namesrv_config() == {each: {"listenPort": "9876"} for each in NAMESRVS}
    remoting.response(RequestCode.UPDATE_NAMESRV_CONFIG, 16, at=NAMESRVS[1], remark="no")
    remoting.response(RequestCode.UPDATE_NAMESRV_CONFIG)
    with pytest.raises(ServersFailedError, match=r"ns2:9876: \[16\] no; done at ns1:9876"):
        await admin.update_namesrv_config({"x": "1"})
    assert remoting.addresses(RequestCode.UPDATE_NAMESRV_CONFIG) == list(NAMESRVS)


async def test_key_value_table(admin: Admin, remoting: FakeRemoting) -> None:
    for code in (RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE):
        remoting.response(code, 22, remark="No config item")
    assert await admin.kv_get("n", "k") is None
    assert await admin.kv_list("n") == {}
    remoting.response(RequestCode.GET_KV_CONFIG, ext={"value": "v"})
    remoting.response(RequestCode.GET_KVLIST_BY_NAMESPACE, body=KVTable(table={"k": "v"}).encode())
    assert await admin.kv_get("n", "k") == "v"
    assert await admin.kv_list("n") == {"k": "v"}
    remoting.response(RequestCode.PUT_KV_CONFIG)
    remoting.response(RequestCode.DELETE_KV_CONFIG)
    await admin.kv_put("n", "k", "w")
    await admin.kv_delete("n", "k")
    assert remoting.addresses(RequestCode.PUT_KV_CONFIG) == list(NAMESRVS)
    _, put = remoting.requests(RequestCode.PUT_KV_CONFIG)[0]
    assert put.ext_fields == {"namespace": "n", "key": "k", "value": "w"}
    _, deleted = remoting.requests(RequestCode.DELETE_KV_CONFIG)[0]
    assert deleted.ext_fields == {"namespace": "n", "key": "k"}


async def test_cleaning_is_one_request_each(admin: Admin, remoting: FakeRemoting) -> None:
    codes = (
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    )
    for code in codes:
        remoting.response(code)
    await admin.clean_expired_queues(A)
    await admin.clean_unused_topics(A)
    await admin.delete_expired_log(A)
    assert [(address, command.code) for address, command in remoting.asked] == [
        (A, code) for code in codes
    ]
