"""Rounds of faults on a broker group with a controller, under load."""

import asyncio
import itertools
import random
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import rocketpy.admin
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.replication.epochs import Epochs
from tests.failover import network
from tests.failover.faults import LINKS, PROCESSES, SHARED, Kind
from tests.failover.group import RoundsGroup, names
from tests.failover.world import Senders, World
from tests.replication.history import QUEUES, TOPIC, History

_LOAD_S = 0.7
_CHECKS = 10


@dataclass
class Result:
    """Sends of a run, and the longest gap between two acknowledged messages of each round.

    Attributes:
        history: the sends.
        gaps: seconds, by the kinds of the rounds.
        masters: broker that acknowledged messages in an epoch.
    """

    history: History = field(default_factory=History)
    gaps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    masters: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Settings of a run.

    Attributes:
        rounds: number of rounds; 0: one of each kind.
        flush: `flushDiskType` of the replicas.
        seed: of the choices.
        has_etcd: whether two controllers share their state in etcd.
        only: kinds to use; none: all.
    """

    rounds: int = 0
    flush: str = "ASYNC_FLUSH"
    seed: int = 1
    has_etcd: bool = False
    only: Sequence[str] = ()

    @property
    def kinds(self) -> list[Kind]:
        """Kinds of the rounds; those of links where this process may make namespaces."""
        found = SHARED if self.has_etcd else PROCESSES
        if not self.has_etcd and network.is_available():
            found += LINKS
        return [each for each in found if not self.only or each.name in self.only]


def run(directory: Path, plan: Plan, say: Callable[[str], None]) -> Result:
    """Run rounds; each kind occurs once before one occurs again.

    Raises:
        AssertionError: an acknowledged message is not on all replicas, or another check fails.
    """
    kinds = plan.kinds
    if not network.is_available():
        say("no network namespaces for this user: links stay whole")
        return _in_network(directory, plan, kinds, say, None)

    def inside() -> Result:
        with closing(network.Network(names(etcd=plan.has_etcd))) as made:
            return _in_network(directory, plan, kinds, say, made)

    return network.in_own_network(inside)


def _in_network(
    directory: Path,
    plan: Plan,
    kinds: Sequence[Kind],
    say: Callable[[str], None],
    made: network.Network | None,
) -> Result:
    group = RoundsGroup(directory, made, flush=plan.flush, has_etcd=plan.has_etcd)
    with group.running():
        world = World(group, random.Random(plan.seed))
        return asyncio.run(_run(world, group, plan.rounds or len(kinds), kinds, say))


async def _run(
    world: World, group: RoundsGroup, rounds: int, kinds: Sequence[Kind], say: Callable[[str], None]
) -> Result:
    result = Result()
    await world.healed()
    async with rocketpy.admin.connect(group.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    left: list[Kind] = []
    for number in range(1, rounds + 1):
        left = left or world.rng.sample(kinds, len(kinds))
        kind = left.pop()
        before, unsure = result.history.count, result.history.uncertain
        try:
            gap_s, healed_s = await one_round(world, result.history, kind)
            await _checked(world, group, result)
        except BaseException as error:
            error.add_note(f"round {number}, {kind.name}, of {world.span_s:.2f} s")
            raise
        result.gaps[kind.name].append(gap_s)
        say(
            f"round {number}: {kind.name}: {result.history.count - before} acknowledged, "
            f"{result.history.uncertain - unsure} not, gap {gap_s:.2f} s, "
            f"span {world.span_s:.1f} s, healed {healed_s:.1f} s later, "
            f"epoch {group.info()[0].master_epoch}"
        )
    return result


async def one_round(world: World, history: History, kind: Kind) -> tuple[float, float]:
    """Let clients send before, during and after a fault.

    Returns:
        The longest gap, and the time until the group has healed, in seconds.
    """
    world.span_s = world.rng.uniform(*kind.span_s)
    senders = Senders(world.group, history)
    try:
        await asyncio.sleep(_LOAD_S)
        await kind.act(world)
        began_s = time.monotonic()
        await world.sends_again(history)
        await asyncio.sleep(_LOAD_S)
    finally:
        await asyncio.to_thread(senders.stop)
    await world.healed()
    return senders.gap_s, time.monotonic() - began_s


async def _checked(world: World, group: RoundsGroup, result: Result) -> None:
    """Check a healed group; again where a replica takes another role meanwhile."""
    for _ in range(_CHECKS):
        await world.healed()
        try:
            return await asyncio.to_thread(_check, result, group)
        except (OSError, EOFError):
            continue
    raise AssertionError("replicas change their roles again and again")


def _check(result: Result, group: RoundsGroup) -> None:
    """Compare all replicas with the answers, and epochs with the brokers that answered.

    Raises:
        AssertionError: a message is lost, doubled, invented or out of order, or two brokers have
            acknowledged messages of one epoch.
    """
    for name, queue_id in itertools.product(group.replicas.values(), range(QUEUES)):
        result.history.read(group, name, queue_id)
    check_masters(result.history.new_ids(), group.epochs(), result.masters)


def check_masters(ids: Iterable[str], epochs: Epochs, masters: dict[int, str]) -> None:
    """Note which broker acknowledged messages of each epoch.

    Args:
        ids: of acknowledged messages, which are in the log.
        epochs: list of the log.
        masters: brokers by epochs, as far as known; added to.

    Raises:
        AssertionError: two brokers have acknowledged messages of one epoch.
    """
    starts = [each.start for each in epochs]
    for each in ids:
        broker, phy_offset = decode_message_id(each)
        epoch = epochs[bisect_right(starts, phy_offset) - 1].number
        known = masters.setdefault(epoch, broker)
        assert known == broker, f"epoch {epoch}: acknowledged by {known} and {broker}"


def table(gaps: Mapping[str, Sequence[float]]) -> str:
    """Return the gaps of each fault: rounds, median, longest."""
    lines = ["| fault | rounds | median gap, s | longest, s |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {len(found)} | {median(found):.2f} | {max(found):.2f} |"
        for name, found in sorted(gaps.items())
    ]
    return "\n".join(lines)
