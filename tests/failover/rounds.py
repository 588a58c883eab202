"""Rounds of faults on a broker group with a controller, under load."""

import asyncio
import itertools
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import rocketpy
import rocketpy.admin
from tests.integration.broker.failover_group import CONTROLLER, FailoverGroup
from tests.replication.history import QUEUES, TOPIC, History

_HEALS_WITHIN_S = 120.0
_LOAD_S = 0.7
_POLL_S = 0.05
HEARTBEAT_TIMEOUT_MS = 2_000

_T = TypeVar("_T")
Fault = Callable[["World"], Coroutine[Any, Any, None]]


@dataclass
class Result:
    """Sends of a run, and the longest gap between two acknowledged messages of each round."""

    history: History = field(default_factory=History)
    gaps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


async def _poll(read: Callable[[], _T | None], what: str) -> _T:
    """Return the first result that is not None.

    Raises:
        AssertionError: there is none in time.
    """
    deadline = time.monotonic() + _HEALS_WITHIN_S
    while True:
        found = await asyncio.to_thread(read)
        if found is not None:
            return found
        assert time.monotonic() < deadline, what
        await asyncio.sleep(_POLL_S)


class World:
    """Group under faults.

    Attributes:
        group: the processes.
        rng: chooses faults, victims and times.
    """

    def __init__(self, group: FailoverGroup, rng: random.Random) -> None:
        self.group = group
        self.rng = rng

    @property
    def replicas(self) -> list[str]:
        return list(self.group.replicas.values())

    async def wait(self, longest_s: float = 1.5) -> None:
        await asyncio.sleep(self.rng.uniform(0.05, longest_s))

    async def master(self) -> str:
        return await _poll(lambda: self.group.master, "no master")

    async def slave(self) -> str:
        master = await self.master()
        return self.rng.choice([each for each in self.replicas if each != master])

    async def send_signal(self, name: str, number: signal.Signals) -> None:
        await asyncio.to_thread(self.group.signal, name, number)

    async def restart(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End processes, and start them a little later, in any order."""
        for name in names:
            await self.send_signal(name, number)
        await self.wait()
        for name in self.rng.sample(names, len(names)):
            await asyncio.to_thread(self.group.start, name)

    async def freeze(self, name: str, longest_s: float) -> None:
        await self.send_signal(name, signal.SIGSTOP)
        await self.wait(longest_s)
        await self.send_signal(name, signal.SIGCONT)


async def kill_master(world: World) -> None:
    await world.restart(await world.master())


async def stop_master(world: World) -> None:
    await world.restart(await world.master(), number=signal.SIGTERM)


async def freeze_master(world: World) -> None:
    await world.freeze(await world.master(), 4 * HEARTBEAT_TIMEOUT_MS / 1_000)


async def kill_slave(world: World) -> None:
    await world.restart(await world.slave())


async def freeze_slave(world: World) -> None:
    await world.freeze(await world.slave(), 4.0)


async def kill_two_masters(world: World) -> None:
    """Kill the master, and the next one as soon as it is elected."""
    first = await world.master()
    await world.send_signal(first, signal.SIGKILL)

    def other() -> str | None:
        found = world.group.master
        return None if found == first else found

    second = await _poll(other, "no other master")
    await world.send_signal(second, signal.SIGKILL)
    names = {first, second}
    await world.wait()
    for name in world.rng.sample(sorted(names), len(names)):
        await asyncio.to_thread(world.group.start, name)


async def kill_all(world: World) -> None:
    await world.restart(*world.replicas)


async def kill_controller(world: World) -> None:
    await world.restart(CONTROLLER)


async def kill_controller_and_master(world: World) -> None:
    await world.restart(CONTROLLER, await world.master())


async def freeze_controller_and_kill_slave(world: World) -> None:
    """Let the master ask for another set while no controller answers."""
    slave = await world.slave()
    await world.send_signal(CONTROLLER, signal.SIGSTOP)
    await world.send_signal(slave, signal.SIGKILL)
    await world.wait(3.0)
    await world.send_signal(CONTROLLER, signal.SIGCONT)
    await asyncio.to_thread(world.group.start, slave)


FAULTS: Sequence[Fault] = (
    kill_master, stop_master, freeze_master, kill_slave, freeze_slave, kill_two_masters, kill_all,
    kill_controller, kill_controller_and_master, freeze_controller_and_kill_slave,
)  # fmt: skip


def run(
    directory: Path, *, rounds: int, flush: str, seed: int, say: Callable[[str], None]
) -> Result:
    """Run rounds; each fault occurs once before one occurs again.

    Raises:
        AssertionError: an acknowledged message is not on all replicas, or another check fails.
    """
    group = FailoverGroup(
        directory,
        3,
        flushDiskType=flush,
        controllerHeartBeatTimeoutMills=str(HEARTBEAT_TIMEOUT_MS),
    )
    with group.running():
        return asyncio.run(_run(World(group, random.Random(seed)), rounds, say))


async def _run(world: World, rounds: int, say: Callable[[str], None]) -> Result:
    group, result = world.group, Result()
    await _healed(world)
    async with rocketpy.admin.connect(group.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    left: list[Fault] = []
    for number in range(1, rounds + 1):
        left = left or world.rng.sample(FAULTS, len(FAULTS))
        fault = left.pop()
        before, unsure = result.history.count, result.history.uncertain
        gap_s = await _round(world, result.history, fault)
        await _healed(world)
        try:
            await asyncio.to_thread(_check, result.history, group)
        except AssertionError as error:
            error.add_note(f"round {number}, {fault.__name__}")
            raise
        result.gaps[fault.__name__].append(gap_s)
        say(
            f"round {number}: {fault.__name__}: {result.history.count - before} acknowledged, "
            f"{result.history.uncertain - unsure} not, gap {gap_s:.2f} s, "
            f"epoch {group.info()[0].master_epoch}"
        )
    return result


async def _round(world: World, history: History, fault: Fault) -> float:
    """Let clients send before, during and after a fault; return the longest gap."""
    stop = asyncio.Event()
    async with (
        rocketpy.connect(world.group.namesrv) as client,
        client.producer(retries=0) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        for queue_id in range(QUEUES):
            tasks.create_task(history.send(producer, queue_id, stop))
        watch = tasks.create_task(_longest_gap(history, stop))
        await asyncio.sleep(_LOAD_S)
        await fault(world)
        await _sends_again(history)
        await asyncio.sleep(_LOAD_S)
        stop.set()
    return watch.result()


async def _longest_gap(history: History, stop: asyncio.Event) -> float:
    longest_s, count, since = 0.0, history.count, time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(0.01)
        if history.count != count:
            now = time.monotonic()
            longest_s, count, since = max(longest_s, now - since), history.count, now
    return longest_s


async def _sends_again(history: History) -> None:
    wanted = history.count + 20
    await _poll(lambda: history.count >= wanted or None, "sends are not acknowledged again")


async def _healed(world: World) -> None:
    """Wait until all replicas are in the set, and have the same log."""
    group = world.group

    def is_healed() -> bool | None:
        info, members = group.info()
        if info.master_broker_id is None or len(members) != len(group.replicas):
            return None
        logs = [group.log_end(name) for name in group.replicas.values()]
        return logs.count(logs[0]) == len(logs) or None

    await _poll(is_healed, "the group does not heal")


def _check(history: History, group: FailoverGroup) -> None:
    for name, queue_id in itertools.product(group.replicas.values(), range(QUEUES)):
        history.read(group, name, queue_id)


def table(gaps: Mapping[str, Sequence[float]]) -> str:
    """Return the gaps of each fault: rounds, median, longest."""
    lines = ["| fault | rounds | median gap, s | longest, s |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {len(found)} | {median(found):.2f} | {max(found):.2f} |"
        for name, found in sorted(gaps.items())
    ]
    return "\n".join(lines)
