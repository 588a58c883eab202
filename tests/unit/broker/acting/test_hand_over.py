"""Request 906 at a slave: it ceases to deliver before its master fetches the progress."""

from rocketpy.broker.acting.acting_parts import ActingMaster
from rocketpy.broker.acting.gate import GatedService
from rocketpy.broker.acting.hand_over import HandOver
from rocketpy.broker.cluster.master_address import MasterAddress
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.testing.sim_clock import SimClock
from tests.unit.broker.fakes import FakeChannel, request

HERE = {"masterAddress": "m:1", "masterHaAddress": "m:2", "masterFlushOffset": "10"}


class Delivery:
    name = "Delivery"

    def step(self, now_ms: int) -> int:
        return now_ms


async def answer(hand_over: HandOver, ext: dict[str, str]) -> RemotingCommand:
    response = await hand_over.process(FakeChannel(), request(906, ext))  # type: ignore[arg-type, misc]
    assert isinstance(response, RemotingCommand)
    return response


async def test_slave_ends_its_deliveries_and_calls_the_master() -> None:
    acting, master = ActingMaster(1, SimClock()), MasterAddress()
    gate = GatedService(Delivery(), lambda: acting.delivers)
    called: list[str] = []

    def call() -> None:
        called.append(master.known.ha_address)
        gate.step(1)  # as its thread would soon

    acting.members({1: "s:1"})
    gate.step(0)
    assert not gate.is_idle
    hand_over = HandOver(acting, master, [gate], call_master=call)
    assert (await answer(hand_over, HERE)).code == 0
    assert called == ["m:2"]
    assert (acting.is_acting, acting.delivers, gate.is_idle) == (True, False, True)


async def test_request_of_a_slave_is_refused() -> None:
    hand_over = HandOver(ActingMaster(1, SimClock()), MasterAddress(), [], call_master=lambda: None)
    assert (await answer(hand_over, {})).code == 1
