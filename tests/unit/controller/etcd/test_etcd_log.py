"""State and leadership in etcd: one leader, whose writes are fenced."""

import pytest

from rocketpy.controller.config import Peer
from rocketpy.controller.etcd.client import EtcdError
from rocketpy.controller.etcd.etcd_log import LEADER_TTL_S, EtcdStateLog
from rocketpy.controller.etcd.leadership import Leadership
from rocketpy.controller.events import (
    AnyEvent,
    GroupRemoved,
    GroupStored,
    MasterElected,
    SetAltered,
)
from rocketpy.errors import StoreFormatError, StoreReadOnlyError
from tests.unit.broker.fakes import FakeClock
from tests.unit.controller.fake_etcd import EtcdServer, FakeEtcd
from tests.unit.controller.group_kit import NAME, applied, groups_of

TTL_MS = LEADER_TTL_S * 1_000


class World:
    """etcd, and controllers with one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = EtcdServer(self.clock.monotonic_ms)
        self.clients = [FakeEtcd(self.server) for _ in range(2)]
        self.one, self.two = map(self._log, range(2))

    def _log(self, number: int) -> EtcdStateLog:
        peer = Peer(f"n{number}", f"h{number}:1")
        return EtcdStateLog(self.clients[number], "g", lambda: peer, self.clock)

    async def lead(self, log: EtcdStateLog) -> list[object]:
        assert await log.campaign()
        return [*await log.load()]


async def test_first_controller_leads_and_the_second_one_knows_it() -> None:
    world = World()
    assert await world.two.look() is None
    assert await world.lead(world.one) == []
    assert world.one.is_leader
    assert not await world.two.campaign()
    assert world.two.leader == await world.two.look() == Peer("n0", "h0:1")


async def test_appended_events_are_loaded_by_the_next_leader() -> None:
    world = World()
    await world.lead(world.one)
    steps: list[list[AnyEvent]] = [
        applied(1), [MasterElected(NAME, 1, 1, 1)], applied(2), [SetAltered(NAME, (1, 2), 2)],
        applied(1, name="other"), applied(1, name="third"), [GroupRemoved("third")],
    ]  # fmt: skip
    for step in steps:
        await world.one.append(step)
    await world.one.close()
    assert not world.one.is_leader
    found = await world.lead(world.two)
    expected = groups_of(*[event for step in steps for event in step]).snapshot()
    assert found == expected


async def test_state_id_is_the_same_for_all_leaders() -> None:
    world = World()
    await world.lead(world.one)
    await world.one.close()
    await world.lead(world.two)
    assert world.two.state_id == world.one.state_id != ""


async def test_leader_without_the_stored_state_writes_nothing() -> None:
    world = World()
    assert await world.one.campaign()
    assert not world.one.is_leader
    with pytest.raises(StoreReadOnlyError):
        await world.one.append(applied(1))


async def test_silent_leader_does_not_lead_before_another_one_does() -> None:
    world = World()
    await world.lead(world.one)
    world.clock.now_ms += TTL_MS - 1
    assert not world.one.is_leader
    assert not await world.two.campaign()
    world.clock.now_ms += 1
    await world.lead(world.two)
    assert not await world.one.keep()
    assert await world.one.look() == Peer("n1", "h1:1")


async def test_kept_leadership_lasts() -> None:
    world = World()
    await world.lead(world.one)
    for _ in range(10):
        world.clock.now_ms += 1_000
        assert await world.one.keep()
    assert not await world.two.campaign()


async def test_write_of_a_former_leader_is_refused() -> None:
    world = World()
    await world.lead(world.one)
    await world.one.append(applied(1))
    world.clock.now_ms += TTL_MS
    await world.lead(world.two)
    world.clock.now_ms -= TTL_MS  # a leader that believes in itself for too long
    assert world.one.is_leader
    with pytest.raises(StoreReadOnlyError, match="another controller"):
        await world.one.append(applied(2))
    assert not world.one.is_leader
    await world.two.append(applied(2))


async def test_uncertain_write_ends_the_leadership_and_is_read_again() -> None:
    world = World()
    await world.lead(world.one)
    world.clients[0].loses_answers = True
    with pytest.raises(StoreReadOnlyError, match="uncertain"):
        await world.one.append(applied(1))
    assert not world.one.is_leader
    world.clients[0].loses_answers = False
    assert await world.lead(world.one) == groups_of(*applied(1)).snapshot()


async def test_write_that_two_members_execute_is_stored_once() -> None:
    world = World()
    await world.lead(world.one)
    world.clients[0].repeats = True
    steps: list[list[AnyEvent]] = [
        applied(1), [MasterElected(NAME, 1, 1, 1)], applied(1, name="other"),
        [GroupRemoved("other")], applied(1, name="other"),
    ]  # fmt: skip
    for step in steps:
        await world.one.append(step)
    await world.one.close()
    expected = groups_of(*[event for step in steps for event in step]).snapshot()
    assert await world.lead(world.two) == expected


async def test_write_that_a_stopped_member_executes_late_replaces_no_later_one() -> None:
    world = World()
    await world.lead(world.one)
    await world.one.append([*applied(1), *applied(2), MasterElected(NAME, 1, 1, 1)])
    await world.one.append([SetAltered(NAME, (1, 2), 2)])
    late = world.clients[0].requests[-1]
    await world.one.append([SetAltered(NAME, (1,), 3)])
    world.server.call(*late)
    await world.one.close()
    (stored,) = await world.lead(world.two)
    assert isinstance(stored, GroupStored)
    assert (stored.members, stored.set_epoch) == ((1,), 3)


async def test_group_that_was_changed_by_hand_is_read_again() -> None:
    world = World()
    await world.lead(world.one)
    await world.one.append(applied(1))
    key = next(key for key in world.server.entries if key.endswith(f"groups/{NAME}".encode()))
    del world.server.entries[key]
    with pytest.raises(StoreReadOnlyError, match="nothing was stored"):
        await world.one.append(applied(2))
    assert not world.one.is_leader
    await world.one.close()
    assert await world.lead(world.one) == []


async def test_leader_whose_key_was_deleted_by_hand_does_not_lead_beside_another_one() -> None:
    world = World()
    await world.lead(world.one)
    key = next(key for key in world.server.entries if key.endswith(b"/leader"))
    del world.server.entries[key]
    await world.lead(world.two)
    assert not await world.one.keep()
    assert not world.one.is_leader
    assert await world.two.keep()


async def test_load_that_lasts_too_long_does_not_lead() -> None:
    world = World()
    await world.one.campaign()
    world.clock.now_ms += TTL_MS
    with pytest.raises(EtcdError):
        await world.one.load()
    assert not world.one.is_leader


async def test_foreign_value_is_refused() -> None:
    world = World()
    await world.lead(world.one)
    await world.one.append(applied(1))
    for entry in world.server.entries.values():
        entry.value = "AAAA"
    with pytest.raises(StoreFormatError, match="not a broker group"):
        await world.one.load()


class Calls:
    """Gains and losses of a leadership."""

    def __init__(self, world: World) -> None:
        self.seen: list[str] = []
        self.error: Exception | None = None
        self.log = world.one
        self.leadership = Leadership(world.one, self._gain, lambda: self.seen.append("lose"))

    async def _gain(self) -> None:
        await self.log.load()
        if self.error is not None:
            raise self.error
        self.seen.append("gain")

    async def step(self) -> None:
        await self.leadership._step()


async def test_leadership_is_gained_kept_lost_and_gained() -> None:
    world = World()
    calls = Calls(world)
    await calls.step()
    await calls.step()
    assert calls.seen == ["gain"]
    world.clients[0].is_cut_off = True
    world.clock.now_ms += TTL_MS
    with pytest.raises(EtcdError):
        await calls.step()
    assert calls.seen == ["gain", "lose"]
    world.clients[0].is_cut_off = False
    await calls.step()
    assert calls.seen == ["gain", "lose", "gain"]
    await calls.leadership.stop()
    assert calls.seen[-1] == "lose"
    assert await world.two.campaign()


async def test_leadership_with_an_unreadable_state_is_given_up() -> None:
    world = World()
    calls = Calls(world)
    calls.error = StoreFormatError("damaged")
    with pytest.raises(StoreFormatError):
        await calls.step()
    assert calls.seen == []
    assert await world.two.campaign()
