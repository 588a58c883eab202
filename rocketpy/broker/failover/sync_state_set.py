"""Sync-state set at its master: which replicas are waited for, and when it changes. No I/O.

The controller stores the set, and elects its members only. The master waits for all members of the
stored set and of the one that it has asked for: it never acknowledges a message that a replica
lacks that may be elected.

Source: ReplicasManager.checkSyncStateSetAndDoReport, AutoSwitchHAService (5.4.0).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

CLOSED_MS: Final = 1_000
"""A replica without a connection for this long leaves the set."""


@dataclass(slots=True)
class _Member:
    """Times of one replica, monotonic.

    Attributes:
        level_ms: when it last had everything that the master had.
        seen_ms: when it last had a connection.
    """

    level_ms: int
    seen_ms: int


class SyncStateSet:
    """Sync-state set of one mastership.

    Args:
        own_id: id of the master.
        members: the set that the controller has stored.
        set_epoch: its epoch.
        epoch_start: end of the log when this mastership began.
        not_level_ms: a replica that is not level with the master for so long leaves the set.
        now_ms: monotonic time.
    """

    def __init__(
        self,
        own_id: int,
        members: Iterable[int],
        set_epoch: int,
        *,
        epoch_start: int,
        not_level_ms: int,
        now_ms: int,
    ) -> None:
        self._own_id = own_id
        self._stored = frozenset(members) | {own_id}
        self._set_epoch = set_epoch
        self._asked: frozenset[int] = frozenset()
        self._epoch_start = epoch_start
        self._not_level_ms = not_level_ms
        self._members = {each: _Member(now_ms, now_ms) for each in self._stored}
        self._end = 0
        self._end_ms = now_ms

    @property
    def stored(self) -> frozenset[int]:
        """The set that the controller has stored, as far as the master knows."""
        return self._stored

    @property
    def set_epoch(self) -> int:
        """Epoch of the stored set."""
        return self._set_epoch

    @property
    def needed(self) -> frozenset[int]:
        """Replicas that must have a message before it is acknowledged, without the master."""
        return (self._stored | self._asked) - {self._own_id}

    @property
    def is_asking(self) -> bool:
        """Whether a request to the controller is open."""
        return bool(self._asked)

    def wanted(
        self, replicas: Mapping[int, int], *, end: int, confirmed: int, now_ms: int
    ) -> frozenset[int] | None:
        """Return the set to ask the controller for; None if the stored one is right.

        Called regularly. The caller passes the result to `ask` before it sends the request.

        Args:
            replicas: end of the part of the log that each connected replica confirms, by id.
            end: end of the master's log.
            confirmed: end of the part that all needed replicas have.
            now_ms: monotonic time.
        """
        for number, replica_end in replicas.items():
            known = self._members.setdefault(number, _Member(0, now_ms))
            known.seen_ms = now_ms
            # The end of the last call counts as well: the log grows while reports are on their way.
            if replica_end >= end:
                known.level_ms = now_ms
            elif replica_end >= self._end:
                known.level_ms = self._end_ms
        self._end, self._end_ms = end, now_ms
        if self._asked:
            return None
        staying = {each for each in self._stored if self._stays(each, now_ms)}
        joining = {
            number
            for number, replica_end in replicas.items()
            if number not in self._stored and replica_end >= max(confirmed, self._epoch_start)
        }
        wanted = frozenset(staying | joining)
        return None if wanted == self._stored else wanted

    def _stays(self, number: int, now_ms: int) -> bool:
        if number == self._own_id:
            return True
        member = self._members[number]
        is_level = now_ms - member.level_ms <= self._not_level_ms
        return is_level and now_ms - member.seen_ms <= CLOSED_MS

    def ask(self, wanted: frozenset[int]) -> None:
        """Note that the controller is asked: from here on, the new members are waited for, too."""
        self._asked = wanted

    def failed(self) -> None:
        """Note that the request was refused, so that the controller did not store the set.

        Not for a request without an answer: the controller may have stored that set.
        """
        self._asked = frozenset()

    def retry(self) -> frozenset[int]:
        """Return the set of the open request, which is repeated until it is answered."""
        return self._asked

    def set_stored(self, members: Iterable[int], set_epoch: int, now_ms: int) -> None:
        """Apply the set that the controller has stored; older ones are ignored.

        Args:
            members: the set.
            set_epoch: its epoch.
            now_ms: monotonic time.
        """
        if set_epoch <= self._set_epoch:
            return
        before, self._stored = self._stored, frozenset(members) | {self._own_id}
        self._set_epoch = set_epoch
        self._asked = frozenset()
        for number in self._stored - before:
            self._members[number] = _Member(now_ms, now_ms)
