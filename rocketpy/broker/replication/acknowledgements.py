"""Progress of a master's replicas: the confirmed and the visible part of the log. No I/O.

`confirmed` is the end of the log that the needed number of copies have, the master's included. It
never decreases: a replica that confirmed a part still has it after its connection has ended.

Without enough replicas a message is released `slaveTimeout` after it was appended. Nothing is kept
for each message: `released` follows samples of the end of the log.

Source: CommitLog.calcNeedAckNums, DefaultHAService.inSyncReplicasNums (5.4.0); `released` is ours.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.proto.replication.pair_frames import DiskState

NO_BOUND: Final = 1 << 63
"""Value of `confirmed` while no replica is waited for."""

NOT_ENOUGH: Final = "in-sync replicas not enough"
"""Remark of Apache's refusal (code 1)."""

_SAMPLES: Final = 30
"""Samples of the end of the log within `slaveTimeout`; a message is released so much later."""


class ReplicaKey(NamedTuple):
    """Key of a replica that names its broker id."""

    protocol: str
    broker_id: int


@dataclass(slots=True)
class ReplicaProgress:
    """Progress of one connection.

    Attributes:
        key: identity of the replica; connections with the same key count once.
        received: end of its log.
        confirmed: end of the part that it confirms.
        state: whether it writes.
        reported_ms: monotonic time of its last report.
        counts: whether it counts as a copy. A replica that has not proven its broker id does not
            before the controller has listed that id.
    """

    key: Hashable
    received: int
    confirmed: int
    state: DiskState
    reported_ms: int
    counts: bool = True


class Acknowledgements:
    """Replicas of one master.

    Args:
        config: how many copies are needed.
        waits: whether sends wait for replicas (SYNC_MASTER).
        refuses_early: whether a send is refused when fewer copies than needed are in sync, as
            Apache does with `enableSlaveActingMaster`; otherwise only below `minInSyncReplicas`.
        membership: of a group with a controller: it names the replicas that are waited for.
            Messages that these have not confirmed are never released to consumers, because
            another master may not have them.

    Attributes:
        confirmed: see the module; `NO_BOUND` while no replica is needed.
        confirmed_end: the same, but the end of the log while no replica is needed.
        released: end of the part that consumers may see without enough copies.
    """

    def __init__(
        self,
        config: ReplicationConfig,
        *,
        waits: bool,
        refuses_early: bool = False,
        membership: Membership | None = None,
    ) -> None:
        self._config = config
        self._membership = membership
        self._waits = waits
        self._refuses_early = refuses_early
        self._replicas: list[ReplicaProgress] = []
        self._appended = 0
        self._samples: deque[tuple[int, int]] = deque()
        self.confirmed_end: int = 0
        self.released: int = 0
        self.confirmed: int = NO_BOUND
        self._update()

    # -- events ------------------------------------------------------------------------------

    def add(self, key: Hashable, now_ms: int, *, counts: bool = True) -> ReplicaProgress:
        """Add a connection, which has confirmed nothing yet."""
        progress = ReplicaProgress(key, 0, 0, DiskState.WRITING, now_ms, counts)
        self._replicas.append(progress)
        return progress

    def remove(self, progress: ReplicaProgress) -> None:
        """Remove a connection; what it has confirmed stays confirmed."""
        # By identity: two connections of one replica may be equal.
        self._replicas = [each for each in self._replicas if each is not progress]
        self._update()

    def report(
        self,
        progress: ReplicaProgress,
        received: int,
        confirmed: int,
        state: DiskState,
        now_ms: int,
    ) -> None:
        """Record a report that was checked: within the log, and not below the last one."""
        progress.received, progress.confirmed = received, confirmed
        progress.state, progress.reported_ms = state, now_ms
        self._update()

    def advance(self, appended: int, now_ms: int) -> None:
        """Record the end of the log; called regularly, and before `needed` is used.

        Args:
            appended: end of the log.
            now_ms: monotonic time.
        """
        self._appended = appended
        samples, timeout_ms = self._samples, self._config.slave_timeout
        if not samples or now_ms - samples[-1][0] >= timeout_ms // _SAMPLES:
            samples.append((now_ms, appended))
        while samples and self._membership is None and now_ms - samples[0][0] >= timeout_ms:
            self.released = max(self.released, samples.popleft()[1])
        self._update()

    def configure(self, config: ReplicationConfig) -> None:
        """Apply changed settings."""
        self._config = config
        self._update()

    def membership_changed(self) -> None:
        """Apply the present state of the membership."""
        self._update()

    # -- derived state -----------------------------------------------------------------------

    @property
    def sample_ms(self) -> int:
        """Pause between two calls of `advance`."""
        return max(1, self._config.slave_timeout // _SAMPLES)

    @property
    def in_sync_count(self) -> int:
        """Number of copies in sync, the master's included."""
        gap = self._config.ha_max_gap_not_in_sync
        confirmed = self._confirmed_by_key()
        return 1 + sum(self._appended - each < gap for each in confirmed.values())

    @property
    def needed(self) -> int:
        """Number of copies that a send waits for, the master's included."""
        if not self._waits:
            return 1
        named = self._named
        if named is not None:
            return len(named) + 1
        needed = self._config.in_sync_replicas
        if self._config.enable_auto_in_sync_replicas:
            needed = max(min(needed, self.in_sync_count), self._config.min_in_sync_replicas)
        return max(1, needed)

    @property
    def can_confirm(self) -> bool:
        """Whether enough connected replicas write what they receive."""
        named = self._named
        if named is not None:
            return named <= self._confirmed_by_id().keys()
        return len(self._confirmed_by_key()) + 1 >= self.needed

    @property
    def is_stalled(self) -> bool:
        """Whether a connected replica reports that it does not write, and too few others do."""
        stalled = any(each.state is not DiskState.WRITING for each in self._replicas)
        return stalled and not self.can_confirm

    @property
    def refusal(self) -> str | None:
        """Why a send is refused before it is stored; None if it may be stored."""
        if not self._waits:
            return None
        if self._membership is not None:
            return self._membership.send_refusal()
        floor = self._config.min_in_sync_replicas
        if self._refuses_early:
            floor = max(floor, self.needed)
        return NOT_ENOUGH if self.in_sync_count < floor else None

    def is_in_sync(self, progress: ReplicaProgress) -> bool:
        """Return whether a connection counts as a copy in sync."""
        gap = self._appended - progress.confirmed
        is_writing = progress.state is DiskState.WRITING
        return is_writing and progress.counts and gap < self._config.ha_max_gap_not_in_sync

    def _confirmed_by_key(self) -> dict[Hashable, int]:
        """Return the part that each replica confirms; without those that do not write or count."""
        found: dict[Hashable, int] = {}
        for each in self._replicas:
            if each.state is DiskState.WRITING and each.counts:
                found[each.key] = max(found.get(each.key, 0), each.confirmed)
        return found

    @property
    def has_controller(self) -> bool:
        """Whether a controller may elect any of the replicas."""
        return self._membership is not None

    @property
    def needs_lease(self) -> bool:
        """Whether each acknowledgement depends on the master's lease."""
        return self._membership is not None and self._named is None

    @property
    def _named(self) -> frozenset[int] | None:
        return None if self._membership is None else self._membership.needed()

    def _confirmed_by_id(self) -> dict[int, int]:
        """Return the part that each replica with a broker id confirms."""
        found = self._confirmed_by_key()
        return {key.broker_id: end for key, end in found.items() if isinstance(key, ReplicaKey)}

    def _update(self) -> None:
        if self._membership is not None and not self._membership.may_acknowledge():
            self.confirmed = self.confirmed_end
            return
        named = self._named
        if named:
            confirmed_by_id = self._confirmed_by_id()
            if named <= confirmed_by_id.keys():
                lowest = min(confirmed_by_id[each] for each in named)
                self.confirmed_end = max(self.confirmed_end, lowest)
            self.confirmed = self.confirmed_end
            return
        needed = self.needed
        if needed <= 1:
            self.confirmed_end = max(self.confirmed_end, self._appended)
            # A lease has to be checked for each message, also after the process was suspended.
            self.confirmed = self.confirmed_end if self.needs_lease else NO_BOUND
            return
        confirmed = sorted(self._confirmed_by_key().values(), reverse=True)
        if len(confirmed) >= needed - 1:
            self.confirmed_end = max(self.confirmed_end, confirmed[needed - 2])
        self.confirmed = self.confirmed_end
