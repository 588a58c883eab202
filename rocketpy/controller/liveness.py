"""Heartbeats of replicas: which ones are alive, and until when a master holds its lease.

Kept in memory only; a restarted controller has no heartbeats until the replicas send the next ones.
Callers pass monotonic times. A replica is dead when the connection of its last
heartbeat has closed, or its timeout has passed.

Source: DefaultBrokerHeartbeatManager, BrokerLiveInfo (5.4.0)
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rocketpy.controller.rules import Standing, highest

LEASE_MS: Final = 10_000
"""Length of a master's lease.

Not a setting: a restarted controller waits as long, until leases of its last process have ended.
"""
DEFAULT_TIMEOUT_MS: Final = 10_000
_MIN_TIMEOUT_MS: Final = 1_000
_MAX_TIMEOUT_MS: Final = 60_000
_SILENT_SHARE: Final = 3
_SILENT_MS: Final = 3_000
"""A silence of all replicas for a third of a heartbeat timeout, and at least 3 s, means that this
controller was cut off: each of them sends several heartbeats in that time."""
_LATE_MS: Final = 1_000
"""Time after a silence in which delayed heartbeats arrive that were sent before or during it, and
then the ends of their connections."""


class ReplicaKey(NamedTuple):
    """Name of a group, and the id of a replica."""

    group: str
    replica_id: int


class Lease(NamedTuple):
    """Right of a master to acknowledge without its whole sync-state set.

    Attributes:
        holder: id of the replica.
        end_ms: monotonic time.
    """

    holder: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Last heartbeat of a replica.

    Attributes:
        received_ms: monotonic time.
        timeout_ms: time after which the replica is dead without another one.
        standing: end and epoch of its log.
        confirm_offset: end of what is confirmed, for display.
        needs_all: every member of the sync-state set confirms a message before this master
            acknowledges it; None: not reported (Apache's brokers).
        connection: connection on which it arrived.
        is_closed: whether that connection has closed.
    """

    received_ms: int
    timeout_ms: int
    standing: Standing
    confirm_offset: int = 0
    needs_all: bool | None = None
    connection: Hashable = None
    is_closed: bool = False

    @property
    def deadline_ms(self) -> int:
        """Time from which the replica is overdue."""
        return self.received_ms + self.timeout_ms


class _Stranger(NamedTuple):
    """Highest epochs that unregistered replicas of a group report."""

    epoch: int
    set_epoch: int
    until_ms: int


class Liveness:
    """Last heartbeats of the registered replicas; the caller removes those of replicas that end."""

    def __init__(self) -> None:
        self._heartbeats: dict[ReplicaKey, Heartbeat] = {}
        self._by_group: dict[str, set[int]] = {}
        self._leases: dict[str, Lease] = {}
        self._strangers: dict[str, _Stranger] = {}
        self._heard_ms: int | None = None
        self._silence_end_ms: int | None = None
        # A connection has one replica; several if one process runs several brokers.
        self._by_connection: dict[Hashable, set[ReplicaKey]] = {}

    def __len__(self) -> int:
        return len(self._heartbeats)

    def take(self, key: ReplicaKey, heartbeat: Heartbeat) -> None:
        """Replace the last heartbeat of a replica."""
        now_ms, heard_ms = heartbeat.received_ms, self._heard_ms
        silent_ms = max(_SILENT_MS, heartbeat.timeout_ms // _SILENT_SHARE)
        if heard_ms is not None and now_ms - heard_ms >= silent_ms:
            self._silence_end_ms = now_ms
        self._heard_ms = now_ms
        old = self._heartbeats.get(key)
        if old is not None and old.connection != heartbeat.connection:
            self._forget_connection(old.connection, key)
        self._heartbeats[key] = heartbeat
        self._by_group.setdefault(key.group, set()).add(key.replica_id)
        if heartbeat.connection is not None:
            self._by_connection.setdefault(heartbeat.connection, set()).add(key)

    def close(self, connection: Hashable) -> list[ReplicaKey]:
        """Note that a connection has closed; return its replicas, which are dead now."""
        keys = sorted(self._by_connection.pop(connection, ()))
        for key in keys:
            self._heartbeats[key] = replace(self._heartbeats[key], is_closed=True, connection=None)
        return keys

    def forget(self, key: ReplicaKey) -> None:
        """Remove a replica that has started again, or was removed."""
        old = self._heartbeats.pop(key, None)
        if old is None:
            return
        self._forget_connection(old.connection, key)
        ids = self._by_group[key.group]
        ids.discard(key.replica_id)
        if not ids:
            del self._by_group[key.group]

    def forget_group(self, group: str) -> None:
        """Remove all replicas of a group."""
        for number in sorted(self._by_group.get(group, ())):
            self.forget(ReplicaKey(group, number))
        self._strangers.pop(group, None)
        self.end_lease(group)

    def clear(self) -> None:
        """Forget everything, at the start and the end of a leadership."""
        self._heartbeats.clear()
        self._by_group.clear()
        self._by_connection.clear()
        self._leases.clear()
        self._strangers.clear()
        self._heard_ms = self._silence_end_ms = None

    def get(self, key: ReplicaKey) -> Heartbeat | None:
        """Return the last heartbeat of a replica, or None."""
        return self._heartbeats.get(key)

    def is_alive(self, key: ReplicaKey, now_ms: int) -> bool:
        """Return whether a replica is alive."""
        last = self._heartbeats.get(key)
        return last is not None and not last.is_closed and now_ms < last.deadline_ms

    def silence_wait_ms(self, key: ReplicaKey) -> int:
        """Return until when a replica may be heard again after a silence of all; 0: no wait.

        It has one heartbeat timeout from the end of the silence.
        """
        last, end_ms = self._heartbeats.get(key), self._silence_end_ms
        if last is None or end_ms is None or last.received_ms >= end_ms + _LATE_MS:
            return 0
        return end_ms + last.timeout_ms

    def is_overdue(self, key: ReplicaKey, now_ms: int) -> bool:
        """Return whether a replica has been silent for its timeout; True if it was never heard."""
        last = self._heartbeats.get(key)
        return last is None or now_ms >= last.deadline_ms

    def standings(self, group: str, now_ms: int) -> dict[int, Standing]:
        """Return the standings of the alive replicas of a group, by id."""
        return {
            number: self._heartbeats[key].standing
            for number in self._by_group.get(group, ())
            if self.is_alive(key := ReplicaKey(group, number), now_ms)
        }

    def take_stranger(self, group: str, standing: Standing, until_ms: int) -> None:
        """Note the epochs of a replica of a known group that is not registered here as it is.

        Args:
            group: the group; the caller knows it, so that their number is bounded.
            standing: the epochs of its log and of its set.
            until_ms: when they are forgotten.
        """
        last = self._strangers.get(group, _Stranger(0, 0, 0))
        self._strangers[group] = _Stranger(
            highest((last.epoch, standing.newest_epoch)),
            highest((last.set_epoch, standing.set_epoch)),
            max(last.until_ms, until_ms),
        )

    def highest_epochs(self, group: str, now_ms: int) -> tuple[int, int]:
        """Return the highest epochs that alive replicas of a group report: of logs, and of sets."""
        alive = [*self.standings(group, now_ms).values()]
        epochs = [each.newest_epoch for each in alive]
        set_epochs = [each.set_epoch for each in alive]
        stranger = self._strangers.get(group)
        if stranger is not None and now_ms < stranger.until_ms:
            epochs.append(stranger.epoch)
            set_epochs.append(stranger.set_epoch)
        return highest(epochs), highest(set_epochs)

    def grant_lease(self, key: ReplicaKey, now_ms: int) -> None:
        """Grant a master its lease, from now on.

        The lease also lasts after its holder has lost the mastership: the holder acknowledges
        messages by it until it is notified of the loss.
        """
        self._leases[key.group] = Lease(key.replica_id, now_ms + LEASE_MS)

    def lease(self, group: str) -> Lease | None:
        """Return the last lease of a group, which may have ended; None without one."""
        return self._leases.get(group)

    def end_lease(self, group: str) -> None:
        """End the lease of a master that acknowledges nothing any more."""
        self._leases.pop(group, None)

    def overdue_groups(self, now_ms: int) -> set[str]:
        """Return the groups with a replica that is overdue."""
        return {key.group for key, last in self._heartbeats.items() if now_ms >= last.deadline_ms}

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when the next alive replica will be overdue without another heartbeat."""
        return min(self._future_deadlines(now_ms), default=None)

    def _future_deadlines(self, now_ms: int) -> Iterator[int]:
        for last in self._heartbeats.values():
            if now_ms < last.deadline_ms:
                yield last.deadline_ms

    def _forget_connection(self, connection: Hashable, key: ReplicaKey) -> None:
        keys = self._by_connection.get(connection)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._by_connection[connection]


def bounded_timeout_ms(asked_ms: int | None) -> int:
    """Return the timeout of a replica that asks for one, within sensible limits."""
    return max(_MIN_TIMEOUT_MS, min(asked_ms or DEFAULT_TIMEOUT_MS, _MAX_TIMEOUT_MS))
