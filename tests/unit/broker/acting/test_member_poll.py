"""Heartbeats and members of a group, from fake name servers."""

import asyncio

import pytest

from rocketpy.broker.acting.member_poll import MemberPoll, Members
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import ConnectError
from rocketpy.proto.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_clock import SimClock
from tests.unit.broker.fakes import FakeChannel, MemoryFile, request


class NameServers:
    """Members by address of the name server; one without members does not answer."""

    def __init__(self, **known: dict[int, str]) -> None:
        self.known = {f"{name}:1": members for name, members in known.items()}
        self.oneway: list[tuple[str, int]] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms == 1_000
        members = self.known.get(address)
        if members is None:
            raise ConnectError(f"{address}: refused")
        if not members:
            return make_response(command, 17, "no topic route info")
        if command.code == 901:
            group = BrokerMemberGroup("DefaultCluster", "b", members)
            return make_response(command, body=GetBrokerMemberGroupResponseBody(group).encode())
        assert command.ext_fields["topic"] == "rmq_sys_SYNC_BROKER_MEMBER_b"
        brokers = [BrokerData("DefaultCluster", "b", members), BrokerData("x", "other", {0: "o"})]
        return make_response(command, body=TopicRouteData(broker_datas=brokers).encode())

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        assert timeout_ms == 1_000
        if address not in self.known:
            raise ConnectError(f"{address}: refused")
        assert command.ext_fields["brokerId"] == "1"
        self.oneway.append((address, command.code))


def poll_of(client: NameServers, *, is_old: bool = True) -> tuple[MemberPoll, list[Members]]:
    clock = SimClock()
    config = BrokerConfig(
        broker_name="b",
        broker_id=1,
        broker_ip1="127.0.0.1",
        namesrv_addr="n1:1;n2:1",
        compatible_with_old_name_srv=is_old,
    )
    identity = BrokerIdentity(config)
    identity.listens_on(10911)
    poll = MemberPoll(
        client,  # type: ignore[arg-type]
        configs=LiveBrokerConfig(config, MessageStoreConfig(), RemotingServerConfig(), clock),
        identity=identity,
        topics=TopicTable(config, MemoryFile(), clock),
    )
    found: list[Members] = []
    poll.on_members = found.append
    return poll, found


@pytest.mark.parametrize(("is_old", "code"), [(True, 322), (False, 904)])
async def test_poll_sends_heartbeat_and_reports_members(is_old: bool, code: int) -> None:
    servers = NameServers(n1={0: "m", 1: "s"}, n2={0: "m", 1: "s"})
    poll, found = poll_of(servers, is_old=is_old)
    await poll.poll_once()
    assert found == [{0: "m", 1: "s"}]
    assert servers.oneway == [("n1:1", code), ("n2:1", code)]


async def test_poll_merges_members_of_two_name_servers() -> None:
    poll, found = poll_of(NameServers(n1={1: "s"}, n2={0: "m", 1: "s"}))
    await poll.poll_once()
    assert found == [{0: "m", 1: "s"}], "the master is alive for one of them"


async def test_poll_without_answer_reports_nothing() -> None:
    poll, found = poll_of(NameServers())
    await poll.poll_once()
    assert found == []
    assert await poll.members() is None


async def test_poll_of_unknown_group_reports_no_members() -> None:
    poll, found = poll_of(NameServers(n1={}))
    await poll.poll_once()
    assert found == [{}]


async def test_poll_of_unregistered_master_sends_no_heartbeat() -> None:
    servers = NameServers(n1={1: "s"})
    poll, found = poll_of(servers)
    poll.sends_heartbeats = False
    await poll.poll_once()
    assert (servers.oneway, found) == ([], [{1: "s"}])


class Ticks:
    """Reports of a running poll, and the loop's time, which tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.ahead_s = 0.0
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self.ahead_s)

    async def pass_ms(self, later_ms: int) -> None:
        self.ahead_s += later_ms / 1_000
        for _ in range(20):
            await asyncio.sleep(0)


async def test_notification_of_name_server_polls_before_the_second_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poll, found = poll_of(NameServers(n1={1: "s"}))
    poll.hint()  # not started: without effect
    ticks = Ticks(monkeypatch)
    poll.start()
    try:
        await ticks.pass_ms(0)
        assert len(found) == 1
        await ticks.pass_ms(110)
        for _ in range(3):
            answer = poll.notified(FakeChannel(), request(905))  # type: ignore[arg-type]
            assert answer.code == 0
        await ticks.pass_ms(0)
        assert len(found) == 2
        poll.hint()
        await ticks.pass_ms(0)
        assert len(found) == 2, "a flood of notifications is a flood of polls"
        await ticks.pass_ms(110)
        assert len(found) == 3
        await ticks.pass_ms(500)
        assert len(found) == 3
        await ticks.pass_ms(1_000)
        await ticks.pass_ms(1_000)
        assert len(found) >= 4
    finally:
        await poll.stop()
