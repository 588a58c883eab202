"""Calls of a replica to its controller."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from rocketpy.broker.failover.controller_client import ControllerClient, ReplicaStatus
from rocketpy.broker.failover.known_controller import KnownController
from rocketpy.errors import BrokerError, ConfigError, RequestTimeoutError
from rocketpy.proto.bodies.controller import (
    BrokerReplicasInfo,
    ReplicaIdentity,
    ReplicasInfo,
)
from rocketpy.proto.headers.controller import (
    STATE_FIELD,
    ControllerHeartbeatResponseHeader,
    GetMetaDataResponseHeader,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.testing.sim_files import SimFiles


class FakeRemoting:
    """Controller that leads, and answers a request for a set with one code."""

    def __init__(self, code: ResponseCode, body: bytes = b"") -> None:
        self._code = code
        self._body = body

    async def invoke(self, _address: str, request: RemotingCommand, _ms: int) -> RemotingCommand:
        if request.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            header = GetMetaDataResponseHeader(is_leader=True)
            return make_response(request, ext_fields=header.to_ext())
        return make_response(request, self._code, "no", body=self._body)


def client(code: ResponseCode, body: bytes = b"") -> ControllerClient:
    remoting = cast("RemotingClient", FakeRemoting(code, body))
    known = KnownController(Path("/store"), SimFiles())
    return ControllerClient(remoting, ["c:1"], cluster="c", name="b", known=known)


def test_set_that_a_rule_refuses_is_known_not_to_be_stored() -> None:
    code = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    assert asyncio.run(client(code).alter(1, 4, frozenset({1, 2}), 5)) is None


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE], ids=str
)
def test_set_may_be_stored_after_an_error_of_the_controller(code: ResponseCode) -> None:
    # A write of the controller may have failed after the set was stored: it is waited for.
    with pytest.raises(BrokerError):
        asyncio.run(client(code).alter(1, 4, frozenset({1, 2}), 5))


def test_ids_of_a_group_are_those_in_the_set_and_outside_it() -> None:
    group = ReplicasInfo(
        in_sync_replicas=[ReplicaIdentity("b", 1)], not_in_sync_replicas=[ReplicaIdentity("b", 3)]
    )
    other = ReplicasInfo(in_sync_replicas=[ReplicaIdentity("x", 7)])
    body = BrokerReplicasInfo({"b": group, "x": other}).encode()
    assert asyncio.run(client(ResponseCode.SUCCESS, body).replica_ids()) == {1, 3}
    nothing = BrokerReplicasInfo().encode()
    assert asyncio.run(client(ResponseCode.SUCCESS, nothing).replica_ids()) == frozenset()


class TwoStates:
    """Controllers that both lead, with different states, and know the group."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.states = {"a:1": "1" * 32, "b:1": "2" * 32}
        self.silent: set[str] = set()

    async def invoke(self, address: str, request: RemotingCommand, _ms: int) -> RemotingCommand:
        if address in self.silent:
            await asyncio.Event().wait()
        state = self.states[address]
        if request.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            leads = GetMetaDataResponseHeader(is_leader=True, rocketpy_state=state)
            return make_response(request, ext_fields=leads.to_ext())
        self.asked.append(address)
        header = ControllerHeartbeatResponseHeader(
            master_broker_id=1, master_address=address, master_epoch=9
        )
        fields = {**header.to_ext(), STATE_FIELD: state}
        return make_response(request, ext_fields=fields)


STATUS = ReplicaStatus(
    address="r:1", epoch=1, end=0, confirmed=0, timeout_ms=1, priority=1, needs_all=True
)


def client_of(world: TwoStates, state: str = "") -> ControllerClient:
    known = KnownController(Path("/store"), SimFiles())
    known.remember(state)
    remoting = cast("RemotingClient", world)
    return ControllerClient(remoting, [*world.states], cluster="c", name="b", known=known)


def test_answers_of_another_state_are_ignored() -> None:
    world = TwoStates()
    mine = client_of(world, world.states["b:1"])
    answer = asyncio.run(mine.heartbeat(1, STATUS))
    assert answer.info is not None
    assert answer.info.master.address == "b:1"
    found = asyncio.run(mine.replica_info())
    assert found is not None
    assert found.master.address == "b:1"
    assert world.asked.count("a:1") == 1, "its heartbeat alone"


def test_answers_of_two_states_are_ignored_by_a_replica_of_neither() -> None:
    world = TwoStates()
    mine = client_of(world)
    assert asyncio.run(mine.heartbeat(1, STATUS)).info is None
    with pytest.raises(ConfigError, match="different states"):
        asyncio.run(mine.register(1, "r:1"))


async def test_heartbeat_with_answer_of_the_leader_waits_for_no_stopped_controller() -> None:
    world = TwoStates()
    mine = client_of(world, world.states["b:1"])
    world.silent = {"a:1"}
    async with asyncio.timeout(5):
        answer = await mine.heartbeat(1, STATUS)
    assert answer.info is not None


async def test_heartbeat_waits_for_no_stopped_controller_of_apache() -> None:
    class Apache(TwoStates):
        async def invoke(self, address: str, request: RemotingCommand, ms: int) -> RemotingCommand:
            await super().invoke(address, request, ms)
            return make_response(request)

    world = Apache()
    world.silent = {"a:1"}
    async with asyncio.timeout(5):
        assert (await client_of(world).heartbeat(1, STATUS)).info is None


def test_controller_that_has_got_another_state_is_refused() -> None:
    world = TwoStates()
    del world.states["b:1"]
    mine = client_of(world)
    asyncio.run(mine.register(1, "r:1"))
    world.states["a:1"] = "3" * 32
    with pytest.raises(ConfigError, match="has another state"):
        asyncio.run(mine.replica_info())


async def test_search_of_the_leader_waits_for_no_stopped_controller() -> None:
    world = TwoStates()
    mine = client_of(world, world.states["b:1"])
    world.silent = {"a:1"}
    async with asyncio.timeout(5):
        await mine.replica_info()
    assert mine.leader == "b:1"


async def test_search_of_the_leader_of_a_replica_without_a_state_waits_for_all() -> None:
    world = TwoStates()
    mine = client_of(world)
    world.silent = {"a:1"}
    search = asyncio.ensure_future(mine.register(1, "r:1"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not search.done()
    search.cancel()


async def test_stopped_leader_that_others_still_name_is_not_called() -> None:
    class Shared(TwoStates):
        async def invoke(self, address: str, request: RemotingCommand, ms: int) -> RemotingCommand:
            self.asked.append(address)
            if address == "a:1":
                raise RequestTimeoutError("no answer")
            header = GetMetaDataResponseHeader(controller_leader_address="a:1")
            return make_response(request, ext_fields=header.to_ext())

    world = Shared()
    with pytest.raises(RequestTimeoutError):
        await client_of(world, world.states["a:1"]).replica_info()
    assert sorted(world.asked) == ["a:1", "b:1"], "once each"
