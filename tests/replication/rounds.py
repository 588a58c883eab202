"""Rounds of faults on a broker group, under load."""

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import rocketpy
import rocketpy.admin
from tests.replication.group import LOG_FILE_BYTES, MASTER, Group
from tests.replication.history import QUEUES, TOPIC, History

_HEALS_WITHIN_S = 90.0
_LOAD_S = 0.7
_HOUR_MS = 3_600_000

Fault = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """Group under faults.

    Attributes:
        group: the processes.
        rng: chooses faults, victims and times.
    """

    def __init__(self, group: Group, rng: random.Random) -> None:
        self.group = group
        self.rng = rng

    @property
    def slave(self) -> str:
        """Slave that the next fault hits."""
        return self.rng.choice(self.group.slaves)

    async def wait(self, longest_s: float = 1.5) -> None:
        await asyncio.sleep(self.rng.uniform(0.05, longest_s))

    async def restart(self, *names: str) -> None:
        """Kill brokers, and start them a little later, in any order."""
        for name in names:
            self.group.signal(name, signal.SIGKILL)
        await self.wait()
        for name in self.rng.sample(names, len(names)):
            await asyncio.to_thread(self.group.start, name)


async def kill_slave(world: World) -> None:
    await world.restart(world.slave)


async def kill_master(world: World) -> None:
    await world.restart(MASTER)


async def kill_all(world: World) -> None:
    await world.restart(*world.group.brokers)


async def stop_cleanly(world: World) -> None:
    name = world.rng.choice(world.group.brokers)
    await asyncio.to_thread(world.group.signal, name, signal.SIGTERM)
    await asyncio.to_thread(world.group.start, name)


async def freeze(world: World) -> None:
    name = world.rng.choice(world.group.brokers)
    world.group.signal(name, signal.SIGSTOP)
    await world.wait(3.0)
    world.group.signal(name, signal.SIGCONT)


async def kill_the_frozen(world: World) -> None:
    slave = world.slave
    world.group.signal(slave, signal.SIGSTOP)
    await world.wait()
    await world.restart(MASTER)
    world.group.signal(slave, signal.SIGCONT)


async def cut_link(world: World) -> None:
    for _ in range(world.rng.randint(1, 4)):
        link = world.group.links[world.slave]
        link.cut()
        await world.wait()
        link.heal()
        await world.wait(0.5)


async def cut_and_kill(world: World) -> None:
    slave = world.slave
    world.group.links[slave].cut()
    await world.wait(0.3)
    await world.restart(world.rng.choice((MASTER, slave)))
    world.group.links[slave].heal()


async def slow_link(world: World) -> None:
    link = world.group.links[world.slave]
    link.slow(delay_s=world.rng.choice((0.0, 0.05, 0.3)), bytes_per_s=world.rng.choice((0, 20_000)))
    await world.wait(3.0)
    link.heal()


async def fill_disk(world: World) -> None:
    """Let a slave write no further log file, or not even the rest of this one."""
    slave = world.slave
    world.group.limit_files(slave, world.rng.choice((0, LOG_FILE_BYTES // 2)))
    await world.wait(3.0)
    world.group.limit_files(slave, -1)


async def step_clock(world: World) -> None:
    """Set the wall clock of one broker an hour back or forward, and right again."""
    skew = world.group.skews[world.rng.choice(world.group.brokers)]
    skew.set(step_ms=world.rng.choice((-_HOUR_MS, _HOUR_MS)))
    await world.wait(3.0)
    skew.set()


async def step_clocks_and_kill_master(world: World) -> None:
    """Restart a master whose clock and those of its slaves differ by up to two hours."""
    for name in world.group.brokers:
        world.group.skews[name].set(step_ms=world.rng.choice((-_HOUR_MS, 0, _HOUR_MS)))
    await world.wait()
    await world.restart(MASTER)
    await world.wait()
    for skew in world.group.skews.values():
        skew.set()


FAULTS: tuple[Fault, ...] = (
    kill_slave,
    kill_master,
    kill_all,
    stop_cleanly,
    freeze,
    kill_the_frozen,
    cut_link,
    cut_and_kill,
    slow_link,
    fill_disk,
    step_clock,
    step_clocks_and_kill_master,
)


def run(
    directory: Path, *, rounds: int, slaves: int, flush: str, seed: int, say: Callable[[str], None]
) -> History:
    """Run rounds; each fault occurs once before one occurs again.

    Raises:
        AssertionError: an acknowledged message is not on all brokers, or another check fails.
    """
    group = Group(directory, slaves, flush)
    with group.running():
        return asyncio.run(_run(World(group, random.Random(seed)), rounds, say))


async def _run(world: World, rounds: int, say: Callable[[str], None]) -> History:
    group, history = world.group, History()
    async with rocketpy.admin.connect(group.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    await asyncio.to_thread(group.wait_in_sync, _HEALS_WITHIN_S)
    left: list[Fault] = []
    for number in range(1, rounds + 1):
        left = left or world.rng.sample(FAULTS, len(FAULTS))
        fault = left.pop()
        before, unsure = history.count, history.uncertain
        await _round(world, history, fault)
        end = await asyncio.to_thread(group.wait_in_sync, _HEALS_WITHIN_S)
        try:
            await asyncio.to_thread(history.check, group, end)
        except AssertionError as error:
            error.add_note(f"round {number}, {fault.__name__}\n{group.last_lines()}")
            raise
        say(
            f"round {number}: {fault.__name__}: {history.count - before} acknowledged, "
            f"{history.uncertain - unsure} not, log of {end:,} bytes"
        )
    return history


async def _round(world: World, history: History, fault: Fault) -> None:
    """Let clients send before, during and after a fault."""
    stop = asyncio.Event()
    async with (
        rocketpy.connect(world.group.namesrv) as client,
        client.producer(retries=0) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        for queue_id in range(QUEUES):
            tasks.create_task(history.send(producer, queue_id, stop))
        await asyncio.sleep(_LOAD_S)
        await fault(world)
        await asyncio.sleep(_LOAD_S)
        stop.set()
