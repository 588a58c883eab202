"""Servers of a cluster: queries by role or address, and failures."""

import random

import pytest

from rocketpy.admin import Admin
from rocketpy.errors import (
    BrokerError,
    ClientError,
    NoNameServerError,
    NoRouteError,
    ServersFailedError,
    TopicNotExistError,
)
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.testing.sim_clock import SimClock
from tests.unit.admin.fakes import BROKERS, NAMESRVS, FakeRemoting

A, B = BROKERS["broker-a"], BROKERS["broker-b"]
SLAVE_A, SLAVE_B = "10.0.0.1:10921", "10.0.0.2:10921"
CODE = RequestCode.GET_BROKER_RUNTIME_INFO


async def test_masters_by_name_cluster_and_broker(admin: Admin) -> None:
    assert await admin.broker_addresses() == BROKERS
    assert await admin.broker_addresses(cluster="c2") == {"broker-b": B}
    assert await admin.broker_addresses(broker="broker-a") == {"broker-a": A}
    for wrong in ({"cluster": "c9"}, {"broker": "x"}, {"cluster": "c1", "broker": "broker-b"}):
        with pytest.raises(ClientError, match=r"^no master.* is registered with the name server$"):
            await admin.broker_addresses(**wrong)


async def test_name_near_that_of_a_broker_or_cluster_is_answered_with_it(admin: Admin) -> None:
    for wrong, near in (
        ({"broker": "brokr-a"}, "broker-a"),
        ({"broker": "brokr-a", "cluster": "c1"}, "broker-a"),
        ({"cluster": "c1-"}, "c1"),
    ):
        with pytest.raises(ClientError, match=f"; did you mean {near}[?]$"):
            await admin.broker_addresses(**wrong)


async def test_request_skips_a_name_server_that_is_down(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.down = {NAMESRVS[0]}
    assert await admin.broker_addresses() == BROKERS
    remoting.down = set(NAMESRVS)
    with pytest.raises(NoNameServerError, match="no name server answers: cannot connect to ns"):
        await admin.cluster_info()


async def test_brokers_are_named_at_all_their_addresses(admin: Admin) -> None:
    assert await admin.broker_names() == {
        A: "broker-a", SLAVE_A: "broker-a", B: "broker-b", SLAVE_B: "broker-b",
    }  # fmt: skip


async def test_cluster_whose_masters_are_gone_has_none(
    admin: Admin, remoting: FakeRemoting
) -> None:
    only_slave = BrokerData(cluster="c1", broker_name="broker-a", broker_addrs={1: SLAVE_A})
    info = ClusterInfo(
        broker_addr_table={"broker-a": only_slave},
        cluster_addr_table={"c1": {"broker-a", "broker-gone"}},
    )
    remoting.response(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.encode())
    with pytest.raises(ClientError, match="no master of cluster c1 is registered"):
        await admin.broker_addresses(cluster="c1")
    assert await admin.broker_names() == {SLAVE_A: "broker-a"}


async def test_bodies_of_several_servers_are_by_name(admin: Admin, remoting: FakeRemoting) -> None:
    for address in (A, B):
        remoting.response(CODE, at=address, body=KVTable(table={"at": address}).encode())
    found, failures = await admin.servers.bodies(BROKERS, CODE, KVTable)
    assert {name: each.table for name, each in found.items()} == {
        "broker-a": {"at": A}, "broker-b": {"at": B},
    }  # fmt: skip
    assert failures == {}
    assert await admin.servers.bodies({}, CODE, KVTable) == ({}, {})


async def test_refusal_is_an_error_with_its_code(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.response(CODE, 14, remark="not writable now")
    with pytest.raises(BrokerError, match="not writable now") as refused:
        await admin.servers.ask(A, CODE)
    assert refused.value.code == 14


async def test_servers_change_all_name_servers_and_query_any(
    admin: Admin, remoting: FakeRemoting
) -> None:
    code = RequestCode.PUT_KV_CONFIG
    remoting.response(code)
    assert set(await admin.servers.tell_namesrvs(code)) == set(NAMESRVS)
    assert remoting.addresses(code) == list(NAMESRVS)
    remoting.response(RequestCode.GET_KV_CONFIG)
    await admin.servers.ask_namesrv(RequestCode.GET_KV_CONFIG)
    assert len(remoting.addresses(RequestCode.GET_KV_CONFIG)) == 1


async def test_queries_prefer_masters_and_changes_need_them(
    admin: Admin, remoting: FakeRemoting
) -> None:
    assert await admin.servers.topic_masters("t") == BROKERS
    assert await admin.servers.topic_brokers("t") == BROKERS
    route = TopicRouteData(
        broker_datas=[
            BrokerData(cluster="c1", broker_name="broker-a", broker_addrs={1: SLAVE_A}),
            BrokerData(cluster="c1", broker_name="broker-empty", broker_addrs={}),
        ]
    )
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.encode())
    assert await admin.servers.topic_brokers("t") == {"broker-a": SLAVE_A}
    with pytest.raises(NoRouteError, match="no master of broker-a is registered now") as caught:
        await admin.servers.topic_masters("t")
    assert caught.value.retriable
    assert await admin.servers.topic_masters("t", "broker-b") == {"broker-a": SLAVE_A}
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=TopicRouteData().encode())
    with pytest.raises(NoRouteError, match="topic t has no broker"):
        await admin.servers.topic_masters("t")
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, 17, remark="No topic route info")
    with pytest.raises(TopicNotExistError):
        await admin.topic_route("t")


async def test_group_is_served_where_its_retry_topic_is_else_everywhere(
    admin: Admin, remoting: FakeRemoting
) -> None:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    only_b = TopicRouteData(
        broker_datas=[BrokerData(cluster="c2", broker_name="broker-b", broker_addrs={0: B})]
    )
    remoting.response(code, body=only_b.encode())
    assert await admin.servers.group_brokers("g") == {"broker-b": B}
    [(_, asked)] = remoting.requests(code)
    assert asked.ext_fields["topic"] == "%RETRY%g"
    remoting.response(code, 17, remark="No topic route info")
    assert await admin.servers.group_brokers("g") == BROKERS
    remoting.response(code, 1, remark="not ready")
    with pytest.raises(BrokerError, match="not ready"):
        await admin.servers.group_brokers("g")


async def test_topic_is_dropped_at_the_brokers_before_the_routes(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.response(RequestCode.DELETE_TOPIC_IN_BROKER)
    remoting.response(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    await admin.servers.drop_topic("t", BROKERS, "c1")
    assert [(address, request.code) for address, request in remoting.asked] == [
        (A, 215), (B, 215), (NAMESRVS[0], 216), (NAMESRVS[1], 216),
    ]  # fmt: skip
    assert remoting.asked[-1][1].ext_fields == {"topic": "t", "clusterName": "c1"}
    remoting.response(RequestCode.DELETE_TOPIC_IN_BROKER, 1, remark="busy")
    with pytest.raises(BrokerError, match="busy"):
        await admin.servers.drop_topic("t", {"broker-a": A})
    assert len(remoting.requests(RequestCode.DELETE_TOPIC_IN_NAMESRV)) == 2, "it is still there"


class SlowRemoting(FakeRemoting):
    """Lets the clock pass the time-out of a request to a server that is down."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self._clock = clock

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        if address in self.down:
            self._clock.advance(timeout_ms)
        return await super().invoke(address, command, timeout_ms)


async def test_server_that_timed_out_is_not_asked_again_at_once() -> None:
    clock = SimClock()
    remoting = SlowRemoting(clock)
    admin = Admin(NAMESRVS, remoting, clock=clock, rng=random.Random(1))
    remoting.response(CODE)
    remoting.down = {A}

    async def ask() -> set[str]:
        done, failures = await admin.servers.each(BROKERS, lambda at: admin.servers.ask(at, CODE))
        assert done.keys() | failures.keys() == set(BROKERS)
        return set(failures)

    assert await ask() == await ask() == {"broker-a"}
    assert remoting.addresses(CODE) == [A, B, B], "the second question waits for one server only"
    remoting.down = set()
    clock.advance(10_001)
    assert await ask() == set()
    assert remoting.addresses(CODE)[3:] == [A, B]


async def test_failures_of_all_servers_are_one_error(admin: Admin, remoting: FakeRemoting) -> None:
    remoting.down = {A, B}
    with pytest.raises(
        ServersFailedError, match=r"broker-a: cannot connect to .*; broker-b: "
    ) as it:
        await admin.servers.each(BROKERS, lambda at: admin.servers.ask(at, CODE))
    assert (set(it.value.failures), it.value.done, it.value.retriable) == (set(BROKERS), {}, True)


async def test_change_that_one_server_refuses_says_where_it_is_done(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.response(CODE)
    remoting.response(CODE, 16, at=B, remark="no")
    with pytest.raises(ServersFailedError, match=r"broker-b: \[16\] no; done at broker-a") as it:
        await admin.servers.change(BROKERS, lambda at: admin.servers.ask(at, CODE))
    assert (set(it.value.done), it.value.retriable) == ({"broker-a"}, False)
