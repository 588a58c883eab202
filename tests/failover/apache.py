"""The same rounds with three brokers and a controller of Apache 5.4.0, to compare the gaps.

What an acknowledged message is worth there is counted, not required: a group loses some by a
partition (`leave_master_to_clients`).
"""

import asyncio
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import rocketpy.admin
from rocketpy.proto.bodies.controller import EpochEntryCache, SyncStateSet
from rocketpy.proto.headers.controller import (
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from rocketpy.proto.wire.codes import RequestCode
from tests.failover import network
from tests.failover.faults import LINKS, PROCESSES, Kind
from tests.failover.group import HEARTBEAT_TIMEOUT_MS, NOT_CAUGHT_UP_MS, REPLICAS, ask, names
from tests.failover.rounds import one_round
from tests.failover.skewed import Skew
from tests.failover.world import World, poll
from tests.integration.broker.failover_group import CONTROLLER, NAME, NAMESRV, Process
from tests.integration.client.daemons import Daemon, Place
from tests.interop.controller.apache_broker import ApacheBroker
from tests.interop.controller.apache_controller import ApacheController
from tests.replication.history import QUEUES, TOPIC, History, number_of, read_queue

KINDS = (
    "kill_master", "stop_master", "freeze_master", "kill_slave", "isolate_master",
    "isolate_master_for_long", "cut_master_and_slaves_for_long",
    "leave_master_to_clients_for_long",
)  # fmt: skip
_NAMESRV_PORT = 9876
_QUEUES_WITHIN_S = 5.0
_HEALS_WITHIN_S = 60.0


class ApacheGroup:
    """Three brokers and a controller of Apache, with a name server of ours; satisfies `Group`.

    Args:
        directory: of everything.
        made: where the processes are.
    """

    def __init__(self, directory: Path, made: network.Network) -> None:
        self.network: network.Network | None = made
        self.etcd: Sequence[str] = ()
        self.skews: dict[str, Skew] = {}
        host = made.host(NAMESRV)
        self.namesrv = f"{host}:{_NAMESRV_PORT}"
        self._names = Daemon(
            directory / "namesrv.log", "namesrv", "-p", str(_NAMESRV_PORT),
            "-D", f"bindAddress={host}", "-D", f"dataDir={directory / 'namesrv'}",
            place=Place(host, made.prefix(NAMESRV)),
        )  # fmt: skip
        self._controller = ApacheController(
            directory / CONTROLLER,
            Place(made.host(CONTROLLER), made.prefix(CONTROLLER)),
            ("scanNotActiveBrokerInterval=1000", "scanInactiveMasterInterval=1000"),
        )
        self._brokers = {
            name: ApacheBroker(
                directory / name,
                self.namesrv,
                self._controller.address,
                Place(made.host(name), made.prefix(name)),
                (
                    f"controllerHeartBeatTimeoutMills={HEARTBEAT_TIMEOUT_MS}",
                    f"haMaxTimeSlaveNotCatchup={NOT_CAUGHT_UP_MS}",
                    "minInSyncReplicas=2",
                    "mappedFileSizeCommitLog=16777216",
                    f"defaultTopicQueueNums={QUEUES}",
                ),
            )
            for name in REPLICAS
        }
        self.replicas = {broker.address: name for name, broker in self._brokers.items()}

    @contextmanager
    def running(self) -> Iterator["ApacheGroup"]:
        """Start all, and kill all in any case."""
        try:
            self._names.start()
            self._controller.start()
            for broker in self._brokers.values():
                broker.start()
            for broker in self._brokers.values():
                broker.wait()
            yield self
        finally:
            for each in self._brokers.values():
                each.kill()
            self._controller.end()
            self._names.end()

    @property
    def master(self) -> str | None:
        """Name of the master; None without one."""
        return self.replicas.get(self.info()[0].master_address or "")

    @property
    def leader(self) -> str | None:
        """Name of the only controller."""
        return CONTROLLER

    def address(self, name: str) -> str:
        """Return `host:port` of a broker."""
        return self._brokers[name].address

    def start(self, name: str) -> None:
        if name in self._brokers:
            self._brokers[name].start()
            self._brokers[name].wait()
        else:
            self._process(name).start()

    def signal(self, name: str, number: signal.Signals) -> None:
        broker = self._brokers.get(name)
        (self._process(name) if broker is None else broker).signal(number)

    def log_end(self, name: str) -> bytes:
        """Return the commit log of a broker; a cut leaves bytes behind its end in the files."""
        answer = ask(self.address(name), RequestCode.GET_BROKER_EPOCH_CACHE, {})
        if answer is None or answer.code != 0:
            return name.encode()  # unlike the others
        return self._brokers[name].log[: EpochEntryCache.decode(answer.body).max_offset]

    def forget_equal(self) -> None:
        """Return; the logs of these rounds are short."""

    def info(self) -> tuple[GetReplicaInfoResponseHeader, set[int]]:
        """Return the master and the sync-state set, as the controller has stored them."""
        fields = GetReplicaInfoRequestHeader(broker_name=NAME).to_ext()
        code = RequestCode.CONTROLLER_GET_REPLICA_INFO
        answer = ask(self._controller.address, code, fields)
        if answer is None or answer.code != 0 or not answer.body:
            return GetReplicaInfoResponseHeader(), set()
        return (
            GetReplicaInfoResponseHeader.from_ext(answer.ext_fields),
            SyncStateSet.decode(answer.body).sync_state_set,
        )

    def knows_topic(self) -> bool | None:
        """Return whether every broker has the topic, which slaves copy every 10 s; or None."""
        files = [
            broker.home / "store" / "config" / "topics.json" for broker in self._brokers.values()
        ]
        return all(each.exists() and TOPIC in each.read_text() for each in files) or None

    def wait_for_etcd(self) -> None:
        """Return; there is no etcd."""

    def _process(self, name: str) -> Process:
        return self._controller if name == CONTROLLER else self._names


@dataclass
class ApacheResult:
    """Gaps and losses by the kinds of the rounds.

    Attributes:
        gaps: longest time without an acknowledged message of each round, in seconds.
        lost: acknowledged messages that the healed group does not have, of each round.
        acknowledged: of all rounds.
        unhealed: kinds of the rounds after which the group did not become whole again.
    """

    gaps: dict[str, list[float]] = field(default_factory=dict)
    lost: dict[str, list[int]] = field(default_factory=dict)
    acknowledged: int = 0
    unhealed: list[str] = field(default_factory=list)


class _Losses:
    """Finds acknowledged messages that a healed group does not have."""

    def __init__(self) -> None:
        self._ends = [0] * QUEUES
        self._found = [0] * QUEUES

    async def count(self, history: History, address: str) -> int:
        """Return how many are missing of those that `history` has, which is of this round."""
        lost = await asyncio.to_thread(self._missing, history, address)
        if lost:  # queues follow their log a little later
            await asyncio.sleep(_QUEUES_WITHIN_S)
            lost = await asyncio.to_thread(self._missing, history, address)
        self._ends = list(self._found)
        return lost

    def _missing(self, history: History, address: str) -> int:
        lost = 0
        for queue_id in range(QUEUES):
            found = read_queue(address, queue_id, self._ends[queue_id])
            stored = {number_of(each.body, queue_id): each.queue_offset for each in found}
            self._found[queue_id] = self._ends[queue_id] + len(found)
            for number, offset in history.acknowledged[queue_id].items():
                lost += stored.get(number) != offset
        return lost


def run(
    directory: Path, rounds: int, seed: int, say: Callable[[str], None], only: Sequence[str] = ()
) -> ApacheResult:
    """Run so many rounds of each kind, or of those in `only`."""
    left = [each for each in PROCESSES + LINKS if each.name in (only or KINDS)] * rounds
    result, rng = ApacheResult(), random.Random(seed)

    def inside() -> None:
        home = directory / f"before-{len(left)}"
        home.mkdir()
        with closing(network.Network(names(etcd=False))) as made:
            group = ApacheGroup(home, made)
            with group.running():
                asyncio.run(_run(World(group, rng), group, left, result, say))

    while left:
        network.in_own_network(inside)
    return result


async def _run(
    world: World,
    group: ApacheGroup,
    left: list[Kind],
    result: ApacheResult,
    say: Callable[[str], None],
) -> None:
    """Run rounds until all are done, or the group does not heal."""
    losses = _Losses()
    await world.healed()
    async with rocketpy.admin.connect(group.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    await poll(group.knows_topic, "the slaves do not know the topic")
    world.heals_within_s = _HEALS_WITHIN_S
    number = 0
    while left:
        kind = left.pop(0)
        number += 1
        history = History()
        history.sent.update(dict.fromkeys(range(QUEUES), number << 20))
        try:
            gap_s, healed_s = await one_round(world, history, kind)
        except AssertionError as error:
            info, members = await asyncio.to_thread(group.info)
            say(
                f"Apache: {kind.name}: span {world.span_s:.1f} s: {error}: "
                f"master {info.master_broker_id}, set {sorted(members)}"
            )
            result.unhealed.append(kind.name)
            return
        address = group.address(await world.master())
        lost = await losses.count(history, address)
        result.gaps.setdefault(kind.name, []).append(gap_s)
        result.lost.setdefault(kind.name, []).append(lost)
        result.acknowledged += history.count
        say(
            f"Apache: {kind.name}: {history.count} acknowledged, {history.uncertain} not, "
            f"{lost} lost, gap {gap_s:.2f} s, span {world.span_s:.1f} s, "
            f"healed {healed_s:.1f} s later"
        )
