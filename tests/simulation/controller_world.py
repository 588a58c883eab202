"""A controller and the replicas of one group under a seed: lost messages, restarts, repeats.

The controller is the real state, log, liveness, elections and rules, on a simulated disk. Replicas
are models that follow docs/failover.md; their logs are lists. Time passes in steps of 100 ms.

Checked at every step: an epoch has one master, which was in the stored set; with
`allAckInSyncStateSet` an elected master has every acknowledged message; without it, no message
is acknowledged under an old epoch after one was under a newer epoch.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rocketpy.controller import rules
from rocketpy.controller.elections import ElectionRequest, Elections
from rocketpy.controller.events import AnyEvent, MasterElected
from rocketpy.controller.liveness import LEASE_MS, Heartbeat, Liveness, ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup, ReplicaGroups
from rocketpy.controller.rules import Standing, Verdict
from rocketpy.controller.state_log import StateFile
from rocketpy.testing.sim_files import ProcessEndedError, SimFiles

NAME: Final = "broker-a"
_STEP_MS: Final = 100
_HOME: Final = Path("/controller")
_NOT_CAUGHT_UP_MS: Final = 1_500
"""Far shorter than Apache's 15 s, so that sets change often."""

Message = tuple[int, int]
"""Epoch and number."""


@dataclass(frozen=True)
class Rules:
    """Rules that a check of the check switches off.

    Attributes:
        lease: the controller waits for leases.
        start_wait: the controller waits after its start.
        needed_union: a master waits for the stored set until a smaller one is stored.
    """

    lease: bool = True
    start_wait: bool = True
    needed_union: bool = True


class Replica:
    """Model of a broker.

    Attributes:
        log: its messages.
        epoch: of the master that it knows.
        master_id: that master.
        is_master: whether it is that master.
        needed: members whose confirmation it waits for, as a master.
        members: the stored set that it knows.
        set_epoch: epoch of that set.
        confirmed: messages of its log that are acknowledged, or of an earlier epoch.
        process: number of its process.
        stopped_epoch: epoch that it has handed over, and in which it acknowledges nothing.
        lease_end_ms: by its clock.
        clock_rate: of its clock, near 1.
    """

    def __init__(self, number: int, clock_rate: float) -> None:
        self.id = number
        self.clock_rate = clock_rate
        self.log: list[Message] = []
        self.is_up = True
        self.is_cut_off = False
        self.connection = 0
        self.start()

    def start(self) -> None:
        """Start the process, which knows its log only."""
        self.process = getattr(self, "process", 0) + 1
        self.connection += 1
        self.epoch = max((epoch for epoch, _ in self.log), default=0)
        self.master_id: int | None = None
        self.is_master = False
        self.is_registered = False
        self.stopped_epoch = 0
        self.needed: set[int] = set()
        self.members: frozenset[int] = frozenset()
        self.set_epoch = 0
        self.confirmed = 0
        self.lease_end_ms = 0.0
        self.level_ms: dict[int, int] = {}

    def learn(self, answer: "Answer") -> None:
        """Take the state of the group from an answer."""
        if answer.epoch < self.epoch or answer.set_epoch <= self.set_epoch:
            return
        # Requests with the set epoch before cannot be stored any more.
        self.members, self.set_epoch = answer.members, answer.set_epoch
        self.needed = set(answer.members)
        if answer.master_id is None or (answer.epoch, answer.master_id) == (
            self.epoch, self.master_id,
        ):  # fmt: skip
            return
        self.epoch, self.master_id = answer.epoch, answer.master_id
        self.is_master = answer.master_id == self.id and answer.epoch > self.stopped_epoch
        # An acknowledged message of an earlier epoch may be the last one of the log.
        self.confirmed = len(self.log)


@dataclass
class Answer:
    """State of the group in an answer."""

    master_id: int | None
    epoch: int
    members: frozenset[int]
    set_epoch: int


class SimController:
    """Controller process with a simulated disk.

    Args:
        files: its disk.
        world: gets the elections.
    """

    def __init__(self, files: SimFiles, world: "ControllerWorld") -> None:
        self._world = world
        self._file = StateFile(_HOME, files, file_bytes=4_096)
        self.groups = ReplicaGroups()
        self.groups.apply(self._file.load())
        for group in self.groups:
            world.check_loaded(group)
        self.liveness = Liveness()
        self.elections = Elections(self.liveness, lambda: False)
        if world.rules.start_wait:
            self.elections.start(world.now_ms)

    @property
    def group(self) -> ReplicaGroup | None:
        """The only group."""
        return self.groups.get(NAME)

    def change(self, verdict: Verdict) -> Verdict:
        """Store and apply the events of a verdict."""
        if verdict.events:
            self._file.append(verdict.events)
            before = self.group
            self.groups.apply(verdict.events)
            self._world.check_events(before, verdict.events)
        return verdict

    def is_alive(self, number: int) -> bool:
        return self.liveness.is_alive(ReplicaKey(NAME, number), self._world.now_ms)

    def answer(self) -> Answer | None:
        """Return the state of the group for an answer."""
        group = self.group
        if group is None:
            return None
        return Answer(group.master_id, group.master_epoch, group.members, group.set_epoch)

    def decide(self) -> None:
        """Elect, if an election is due."""
        group = self.group
        if group is None:
            return
        verdict = self.elections.decide(group, self._world.now_ms).verdict
        if verdict is not None:
            self.change(verdict)


@dataclass
class ControllerWorld:
    """Controller and replicas under a seed.

    Attributes:
        seed: of all choices.
        needs_all: `allAckInSyncStateSet`.
        rules: all on, except in checks of the check.
    """

    seed: int
    needs_all: bool
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.now_ms = 0
        self.counts: Counter[str] = Counter()
        self.masters: dict[int, int] = {}
        self.acknowledged: list[Message] = []
        self.last_ack_epoch = 0
        self.lost_chance = self.rng.choice([0.0, 0.05, 0.3])
        self.files = SimFiles()
        self.controller: SimController | None = SimController(self.files, self)
        self.replicas = {n: Replica(n, self.rng.uniform(0.95, 1.05)) for n in (1, 2, 3)}
        self._delayed: list[tuple[int, Callable[[], None]]] = []

    # -- checks

    def check_events(self, before: ReplicaGroup | None, events: Sequence[AnyEvent]) -> None:
        """Check the elections among events that were stored."""
        for event in events:
            if not isinstance(event, MasterElected) or before is None:
                continue
            self.counts["elected"] += 1
            other = self.masters.setdefault(event.master_epoch, event.replica_id)
            assert other == event.replica_id, f"epoch {event.master_epoch} has two masters"
            if not before.is_new:
                assert event.replica_id in before.members, "elected outside the stored set"
            if self.needs_all:
                missing = set(self.acknowledged) - set(self.replicas[event.replica_id].log)
                assert not missing, f"acknowledged messages are lost: {sorted(missing)[:3]}"

    def check_loaded(self, group: ReplicaGroup) -> None:
        """Check the state of a controller that has started.

        It may have an election that ended its process: stored, and not seen by any replica.
        """
        if group.master_id is None:
            return
        other = self.masters.setdefault(group.master_epoch, group.master_id)
        assert other == group.master_id, f"epoch {group.master_epoch} has two masters"

    # -- steps

    def run(self, steps: int) -> None:
        """Run a number of steps."""
        for _ in range(steps):
            self.now_ms += _STEP_MS
            self._faults()
            for replica in self.replicas.values():
                if replica.is_up:
                    self._replica_step(replica)
            due = [each for each in self._delayed if each[0] <= self.now_ms]
            self._delayed = [each for each in self._delayed if each[0] > self.now_ms]
            for _, deliver in due:
                deliver()
            self._at_controller(SimController.decide)

    def _faults(self) -> None:
        rng = self.rng
        if rng.random() < 0.004:
            self._end_controller()
        elif self.controller is None and rng.random() < 0.1:
            self.files.start_process()
            self.controller = SimController(self.files, self)
            self.counts["controller started"] += 1
        replica = rng.choice([*self.replicas.values()])
        if rng.random() < 0.008 and replica.is_up:
            replica.is_up = False
            self._closed(replica)
        elif rng.random() < 0.1 and not replica.is_up:
            replica.is_up = True
            replica.start()
        if rng.random() < 0.008:
            replica.is_cut_off = not replica.is_cut_off
            if rng.random() < 0.5:
                self._closed(replica)
        elif rng.random() < 0.03:
            replica.is_cut_off = False

    def _end_controller(self) -> None:
        if self.controller is None:
            return
        self.controller = None
        self._lose_process()

    def _lose_process(self) -> None:
        if self.rng.random() < 0.5:
            self.files.kill()
        else:
            self.files.power_cut(self.rng)

    def _closed(self, replica: Replica) -> None:
        connection, replica.connection = replica.connection, replica.connection + 1
        self._at_controller(lambda each: each.liveness.close((replica.id, connection)))

    def _at_controller(self, work: Callable[[SimController], object]) -> None:
        """Let the controller work, which may end in the middle of it."""
        if self.controller is None:
            return
        if self.rng.random() < 0.002:
            self.files.end_process_after(self.rng.randrange(3), self._lose_process)
        try:
            work(self.controller)
        except ProcessEndedError:
            self.controller = None
            self.counts["ended in a write"] += 1

    def _send(self, replica: Replica, work: Callable[[SimController], object]) -> None:
        """Send a request of a replica: late, lost, or twice."""
        if replica.is_cut_off or self.rng.random() < self.lost_chance:
            return
        for _ in range(1 + (self.rng.random() < 0.05)):
            due_ms = self.now_ms + self.rng.choice([0, 0, 0, 100, 1_500])
            self._delayed.append((due_ms, partial(self._at_controller, work)))

    def _reply(self, replica: Replica, process: int, take: Callable[[], None]) -> None:
        """Deliver an answer to the process that asked; late, or not at all."""
        if replica.is_cut_off or self.rng.random() < self.lost_chance:
            return

        def deliver() -> None:
            if replica.is_up and replica.process == process:
                take()

        self._delayed.append((self.now_ms + self.rng.choice([0, 100, 700]), deliver))

    def _replica_step(self, replica: Replica) -> None:
        if not replica.is_registered:
            if self.rng.random() < 0.3:
                self._send(replica, lambda each: self._register(each, replica))
            return
        if self.now_ms % 1_000 == replica.id * _STEP_MS:
            self._heartbeat(replica)
        if replica.master_id is None and self.rng.random() < 0.1:
            asked = ElectionRequest(asker=replica.id)
            self._send(replica, lambda each: self._elect(each, replica, asked))
        if replica.is_master:
            self._master_step(replica)

    def _register(self, controller: SimController, replica: Replica) -> None:
        if not replica.is_up or replica.is_registered:
            return
        number, address = replica.id, f"10.0.0.{replica.id}:1"
        if controller.group is None or number not in controller.group.replicas:
            applied = rules.apply_id(controller.groups, "c", NAME, number, f"{address};1", 9)
            if not controller.change(applied).is_accepted:
                return
        registered = rules.register(
            controller.group, "c", NAME, number, address, controller.is_alive
        )
        if controller.change(registered).is_accepted:
            controller.liveness.forget(ReplicaKey(NAME, number))
            replica.is_registered = True

    def _heartbeat(self, replica: Replica) -> None:
        sent_ms, process, connection = self.now_ms, replica.process, replica.connection
        standing = Standing(
            max((epoch for epoch, _ in replica.log), default=0), len(replica.log), 0
        )

        def receive(controller: SimController) -> None:
            group = controller.group
            if group is None or replica.id not in group.replicas or not replica.is_up:
                return
            if connection != replica.connection:
                return  # its connection has closed
            beat = Heartbeat(
                received_ms=self.now_ms, timeout_ms=3_000, standing=standing,
                needs_all=self.needs_all or not self.rules.lease,
                connection=(replica.id, connection),
            )  # fmt: skip
            key = ReplicaKey(NAME, replica.id)
            controller.liveness.take(key, beat)
            if group.master_id == replica.id and beat.needs_all is False:
                controller.liveness.grant_lease(key, self.now_ms)
            answer = controller.answer()
            self._reply(replica, process, partial(self._take, replica, answer, sent_ms))

        self._send(replica, receive)

    def _take(self, replica: Replica, answer: Answer | None, sent_ms: int | None) -> None:
        if answer is None:
            return
        replica.learn(answer)
        is_leased = answer.master_id == replica.id and answer.epoch == replica.epoch
        if sent_ms is not None and is_leased and replica.is_master:
            own_ms = LEASE_MS * 0.9 / replica.clock_rate
            replica.lease_end_ms = max(replica.lease_end_ms, sent_ms + own_ms)

    def _elect(self, controller: SimController, replica: Replica, asked: ElectionRequest) -> None:
        if controller.group is None:
            return
        verdict = controller.elections.answer(controller.group, asked, self.now_ms)
        if verdict.events and asked.hand_over:
            controller.liveness.end_lease(NAME)
        controller.change(verdict)
        answer = controller.answer()
        self._reply(replica, replica.process, partial(self._take, replica, answer, None))

    # -- replication

    def _master_step(self, master: Replica) -> None:
        if self.rng.random() < 0.5:
            master.log.append((master.epoch, self.counts["sent"]))
            self.counts["sent"] += 1
        for other in self.replicas.values():
            if other is not master and self._is_linked(master, other):
                self._replicate(master, other)
        self._acknowledge(master)
        self._alter(master)
        if self.rng.random() < 0.01:
            self._hand_over(master)

    @staticmethod
    def _is_linked(master: Replica, other: Replica) -> bool:
        follows = other.master_id == master.id and other.epoch == master.epoch
        return other.is_up and follows and not (master.is_cut_off or other.is_cut_off)

    def _replicate(self, master: Replica, other: Replica) -> None:
        if self.rng.random() < 0.3:
            return
        shared = 0
        while other.log[shared : shared + 1] == master.log[shared : shared + 1] != []:
            shared += 1
        del other.log[shared:]
        other.log += master.log[shared : shared + self.rng.choice([1, 3, 50])]

    def _confirmed_by(self, master: Replica, number: int) -> int:
        """Return how many messages of a master a replica has confirmed to it."""
        if number == master.id:
            return len(master.log)
        other = self.replicas[number]
        if not self._is_linked(master, other):
            return 0
        shared = len(other.log)
        return shared if other.log == master.log[:shared] else 0

    def _acknowledge(self, master: Replica) -> None:
        if not self.needs_all:
            if self.now_ms < master.lease_end_ms and master.log:
                assert master.epoch >= self.last_ack_epoch, "an old master acknowledges"
                self.last_ack_epoch = master.epoch
                self.counts["acknowledged"] += 1
            return
        end = min(self._confirmed_by(master, each) for each in master.needed | {master.id})
        new = [each for each in master.log[master.confirmed : end] if each[0] == master.epoch]
        self.acknowledged += new
        self.counts["acknowledged"] += len(new)
        master.confirmed = max(master.confirmed, end)

    def _alter(self, master: Replica) -> None:
        """Ask for another set: lagging members leave, level replicas enter."""
        for number in self.replicas:
            if self._confirmed_by(master, number) >= len(master.log):
                master.level_ms[number] = self.now_ms
        recent_ms = self.now_ms - _NOT_CAUGHT_UP_MS
        stay = {each for each in master.members if master.level_ms.get(each, 0) >= recent_ms}
        enter = {
            each for each in self.replicas
            if self._confirmed_by(master, each) >= max(master.confirmed, 1)
        }  # fmt: skip
        wanted = frozenset(stay | enter | {master.id})
        if wanted == master.members or not master.members or self.rng.random() < 0.7:
            return
        # An earlier request without an answer may still be stored, so its set stays needed.
        master.needed = master.needed | wanted if self.rules.needed_union else set(wanted)
        epoch, set_epoch, process = master.epoch, master.set_epoch, master.process
        altered = Answer(master.id, epoch, wanted, set_epoch + 1)

        def receive(controller: SimController) -> None:
            verdict = controller.change(
                rules.alter_set(
                    controller.group, master.id, epoch, wanted, set_epoch, controller.is_alive
                )
            )
            self.counts[verdict.code.name] += 1
            if verdict.is_accepted:
                self._reply(master, process, partial(self._take, master, altered, None))

        self._send(master, receive)

    def _hand_over(self, master: Replica) -> None:
        """Acknowledge nothing in this epoch any more, and ask for a successor."""
        master.is_master, master.lease_end_ms = False, 0
        master.stopped_epoch = master.epoch
        asked = ElectionRequest(asker=master.id, hand_over=True, epoch=master.epoch)
        self._send(master, lambda each: self._elect(each, master, asked))
        self.counts["handed over"] += 1
        if self.rng.random() < 0.5:
            master.is_registered = False  # the process starts again


def run_seed(seed: int, rules: Rules | None = None, *, steps: int = 1_500) -> ControllerWorld:
    """Run one seed; even ones need the whole set, odd ones hold leases."""
    world = ControllerWorld(seed, seed % 2 == 0, rules or Rules())
    world.run(steps)
    return world
