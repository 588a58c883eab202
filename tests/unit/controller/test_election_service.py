"""Elections without a request: when the service elects, and when it pauses."""

import asyncio
from collections.abc import Sequence

from rocketpy.controller.election_service import ElectionService
from rocketpy.controller.elections import START_WAIT_MS, Elections
from rocketpy.controller.events import AnyEvent, MasterElected, SetAltered
from rocketpy.controller.group_store import GroupStore
from rocketpy.controller.liveness import LEASE_MS, Liveness, ReplicaKey
from rocketpy.errors import DiskFullError
from tests.unit.broker.fakes import FakeClock
from tests.unit.controller.group_kit import NAME, applied, hear_another_group, heartbeat, only

INTERVAL_MS = 5_000


class MemoryLog:
    """Log in memory, which a test can make fail."""

    state_id = ""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def load(self) -> Sequence[AnyEvent]:
        return [*applied(1, 2), MasterElected(NAME, 1, 1, 1), SetAltered(NAME, (1, 2), 2)]

    async def append(self, events: Sequence[AnyEvent]) -> None:
        del events
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """Service with a clock that a test sets."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.store = GroupStore(self.log)
        self.liveness = Liveness()
        self.elections = Elections(self.liveness, lambda: False)
        self.wakes = 0
        self.service = ElectionService(
            self.store, self.liveness, self.elections, self.clock, lambda: INTERVAL_MS
        )
        self.service.use_wake(self.wake)

    def wake(self) -> None:
        self.wakes += 1

    async def start(self) -> None:
        await self.store.load()
        self.elections.start(self.now_ms)
        self.pass_ms(START_WAIT_MS)
        self.hear(1)
        self.hear(2)

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def pass_ms(self, ms: int) -> None:
        hear_another_group(self.liveness, self.now_ms, self.now_ms + ms)
        self.clock.now_ms += ms

    def hear(self, number: int, *, needs_all: bool | None = None) -> None:
        beat = heartbeat(self.now_ms, connection=f"c{number}", needs_all=needs_all)
        self.liveness.take(ReplicaKey(NAME, number), beat)
        if needs_all is False:
            self.liveness.grant_lease(ReplicaKey(NAME, number), self.now_ms)

    def lose(self, number: int) -> None:
        self.service.suspect([key.group for key in self.liveness.close(f"c{number}")])

    async def step(self) -> int:
        """Run a step and the elections that it starts; return the wait for the next one."""
        due_ms = self.service.step(self.now_ms)
        for _ in range(20):
            await asyncio.sleep(0)
        return due_ms - self.now_ms

    @property
    def master(self) -> tuple[int | None, int]:
        group = only(self.store.groups)
        return group.master_id, group.master_epoch


async def test_closed_connection_wakes_and_elects() -> None:
    world = World()
    await world.start()
    assert await world.step() == INTERVAL_MS
    world.lose(1)
    assert world.wakes == 1
    await world.step()
    assert world.master == (2, 2)


async def test_overdue_master_is_replaced_when_its_heartbeat_falls_due() -> None:
    world = World()
    await world.start()
    world.pass_ms(INTERVAL_MS)
    world.hear(2)
    assert await world.step() == 5_000
    world.pass_ms(5_000)
    world.hear(2)
    await world.step()
    assert world.master == (2, 2)


async def test_step_that_is_late_reads_heartbeats_first() -> None:
    world = World()
    await world.start()
    await world.step()
    world.pass_ms(60_000)  # the process was stopped
    world.hear(2)  # the first that is read
    assert await world.step() == 1_000
    world.hear(1)
    world.pass_ms(1_000)
    await world.step()
    assert world.master == (1, 1)


async def test_step_after_a_late_one_elects() -> None:
    world = World()
    await world.start()
    await world.step()
    world.pass_ms(60_000)
    world.hear(2)
    await world.step()
    world.pass_ms(2_000)
    world.hear(2)
    await world.step()
    assert world.master == (2, 2)


async def test_lease_is_waited_for_to_its_end() -> None:
    world = World()
    await world.start()
    world.hear(1, needs_all=False)
    world.pass_ms(LEASE_MS - 2_000)
    world.hear(2)
    world.lose(1)
    assert await world.step() == 2_000
    assert world.master == (1, 1)
    world.pass_ms(2_000)
    world.hear(2)
    await world.step()
    assert world.master == (2, 2)


async def test_failed_election_is_retried() -> None:
    world = World()
    await world.start()
    world.log.error = DiskFullError("full")
    world.lose(1)
    await world.step()
    assert world.master == (1, 1)
    world.log.error = None
    await world.step()
    assert world.master == (2, 2)


async def test_several_steps_elect_once() -> None:
    world = World()
    await world.start()
    world.lose(1)
    world.service.step(world.now_ms)
    world.service.step(world.now_ms)
    await world.step()
    assert world.master == (2, 2)


async def test_member_that_appears_is_elected() -> None:
    world = World()
    await world.start()
    world.lose(1)
    world.lose(2)
    await world.step()
    assert world.master == (1, 1)
    world.hear(2)
    world.service.suspect([NAME])
    await world.step()
    assert world.master == (2, 2)


async def test_stopped_service_elects_no_more() -> None:
    world = World()
    await world.start()
    await world.service.stop()
    world.lose(1)
    await world.step()
    assert world.master == (1, 1)
    world.service.suspect(["unknown"])
    await world.step()


async def test_steps_during_an_election_start_no_second_one_of_the_group() -> None:
    """The connections of many masters close one after the other, and a step follows each."""
    world = World()
    await world.start()
    await world.step()
    world.lose(1)
    for _ in range(3):
        world.service.step(world.now_ms)
    assert len(world.service._tasks) == 1
    await world.step()
    assert world.master == (2, 2)
    assert not world.service._tasks


async def test_group_that_is_suspected_during_its_election_is_checked_again_after_it() -> None:
    world = World()
    await world.start()
    await world.step()
    world.lose(1)
    world.service.step(world.now_ms)
    world.lose(2)
    world.service.step(world.now_ms)
    wakes = world.wakes
    await world.step()
    assert world.wakes == wakes + 1
