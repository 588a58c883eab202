"""Table of suspended requests, by awaited key, by connection, and by time.

A request is suspended under keys chosen by its operation (a pull: its queue and its tags). An event
wakes a key. All kinds of long polling use this table, which knows no connections, topics or frames.

Invariants:

- A waiting entry is under each of its keys, under its owner, and in one time slot. A resumed entry
  is only under its owner, until it is released. So it is resumed at most once, and its memory
  counts until its response was made.
- No operation visits all entries: a wake visits one key, a lost connection its own entries, a step
  the time slots that are due. Entries are added and removed in constant time.
- The owner's `resume` is called without the lock, on the thread that wakes, often one that stores a
  message. It only queues the request (`TurnScheduler.add`); its `run` makes the response later.
- At a limit, the owner whose entries use the most memory gives way to a new entry, unless the new
  entry's owner uses as much. About half of its waiting entries are resumed early, although nothing
  arrived for them. At a full key these are the entries there, of the larger of the owners of the
  first and the last entry; if that does not help, of the owner with the most entries there.

Source: PullRequestHoldService.java, ManyPullRequest.java, PopLongPollingService.java (5.4.0).
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from rocketpy.remoting.business_pool import BusinessPool

STEP_INTERVAL_MS: Final = 1_000
MAX_BYTES: Final = 192 * 1024 * 1024
"""Bound on the estimated memory of all entries; see `SuspendedRequest.size_bytes`."""
ENTRY_BYTES: Final = 1_300
"""Memory of an entry with its references in the table, measured and rounded up."""

_SLOT_MS: Final = 100
_COUNT_INTERVAL_MS: Final = 1_000
"""Shortest time between two counts of the owners at a full key, which visit all its entries."""
_MAX_STEP_ENTRIES: Final = 1_000
"""Bound of one step, which runs on the loop of the connections."""


class RequestOwner(Hashable, Protocol):
    """Interface of the connection of a request."""

    def resume(self, request: "SuspendedRequest", pool: BusinessPool | None = None) -> None:
        """Call the request's `run` in the connection's turn; on any thread; must not block."""
        ...


RequestT_contra = TypeVar("RequestT_contra", bound="SuspendedRequest", contravariant=True)


class Reply(Protocol[RequestT_contra]):
    """Makes the response to a resumed request; refers only to the data that it needs."""

    def __call__(self, request: RequestT_contra, /) -> bytes | None:
        """Return a frame, or None when the request is suspended again or answered later.

        Errors become responses as well: no caller above could answer the client.
        """
        ...


class SuspendedRequest:
    """A suspended request; subclasses add the fields that its response needs.

    Attributes:
        keys: what it waits for; any of them may wake it.
        owner: its connection; all entries of an owner are released together.
        reply: makes its response.
        deadline_ms: monotonic time at which it is resumed in any case.
        size_bytes: estimated memory: `ENTRY_BYTES` and any large objects.
        is_waiting: whether it can still be resumed.
        slot: its time slot; used by the table only.
    """

    __slots__ = ("deadline_ms", "is_waiting", "keys", "owner", "reply", "size_bytes", "slot")

    def __init__(
        self,
        keys: Iterable[Hashable],
        owner: RequestOwner,
        deadline_ms: int,
        reply: Reply[Any],
        size_bytes: int = 0,
    ) -> None:
        self.keys: tuple[Hashable, ...] = tuple(keys)
        self.owner: RequestOwner = owner
        self.reply: Reply[Any] = reply
        self.deadline_ms: int = deadline_ms
        self.size_bytes: int = ENTRY_BYTES + size_bytes
        self.is_waiting: bool = False
        self.slot: int = 0

    def run(self) -> bytes | None:
        """Return the frame of the response; called once, in the owner's turn."""
        return self.reply(self)

    def is_ready(self) -> bool:
        """Return whether the awaited event has happened, even without a wake."""
        return False

    def next_check_ms(self, now_ms: int) -> int:  # noqa: ARG002 - for subclasses
        """Return when to call `is_ready` next; the deadline unless a subclass is earlier."""
        return self.deadline_ms


class _Owner:
    """Entries of one owner, and their memory."""

    __slots__ = ("entries", "size_bytes")

    def __init__(self) -> None:
        self.entries: dict[SuspendedRequest, None] = {}
        self.size_bytes = 0


class SuspendedRequests:
    """All suspended requests of one kind, and the service that ends them; safe from any thread.

    Args:
        name: name of the service.
        max_count: maximal number of requests that are suspended, or resumed and not released.
        max_per_key: maximal number of requests at one key.
        max_bytes: maximal estimated memory.
        pool: runs resumed requests; without threads they run on the loop of their channel.

    Attributes:
        count: number of requests that are suspended, or resumed and not released. It is read
            without a lock for each stored message, so that without requests there is no cost.
        max_count: as given; may be changed.
        max_per_key: as given; may be changed.
    """

    def __init__(
        self,
        name: str,
        max_count: int = 100_000,
        max_per_key: int = 10_000,
        max_bytes: int = MAX_BYTES,
        pool: BusinessPool | None = None,
    ) -> None:
        self.name = name
        self.max_count = max_count
        self.max_per_key = max_per_key
        self._max_bytes = max_bytes
        self._pool = None if pool is None or pool.runs_inline else pool
        self._lock = threading.Lock()
        self._by_key: dict[Hashable, dict[SuspendedRequest, None]] = {}
        self._by_owner: dict[Hashable, _Owner] = {}
        self._slots: dict[int, dict[SuspendedRequest, None]] = {}
        self.count: int = 0
        self._size_bytes = 0
        self._count_at_ms = 0

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all entries."""
        return self._size_bytes

    def count_at(self, key: Hashable) -> int:
        """Return the number of requests that wait for a key."""
        return len(self._by_key.get(key, ()))

    def suspend(self, entry: SuspendedRequest, now_ms: int) -> bool:
        """Suspend a request; it may be resumed before this returns.

        Args:
            entry: the request.
            now_ms: monotonic time.

        Returns:
            False when there is no room; the request is not kept then.
        """
        evicted: list[SuspendedRequest] = []
        with self._lock:
            has_room = self._make_room(entry, evicted, now_ms)
            if has_room:
                self._add(entry, now_ms)
        for one in evicted:
            one.owner.resume(one, self._pool)
        if not has_room:
            return False
        # The event may have happened between the caller's last read and the suspension.
        if entry.is_ready():
            self._resume_if_waiting(entry)
        return True

    def wake(
        self,
        key: Hashable,
        wants: Callable[[Any], bool] | None = None,
        limit: int | None = None,
    ) -> bool:
        """Resume the requests that wait for a key.

        Args:
            key: key of the event.
            wants: decides for each of them; None resumes all.
            limit: maximal number of requests, those that wait longest; None: all.

        Returns:
            Whether any request was resumed.
        """
        if key not in self._by_key:  # the common case, without a lock
            return False
        with self._lock:
            waiting = self._by_key.get(key, ())
            woken = list(islice((one for one in waiting if wants is None or wants(one)), limit))
            for one in woken:
                self._stop_waiting(one)
        for one in woken:
            one.owner.resume(one, self._pool)
        return bool(woken)

    def release(self, entry: SuspendedRequest) -> None:
        """Remove a request: it was answered, or never will be."""
        with self._lock:
            self._remove(entry)

    def release_owner(self, owner: Hashable) -> list[SuspendedRequest]:
        """Remove all requests of a lost owner without resuming them.

        Returns:
            Requests that were resumed and did not run yet: their events are still unhandled.
        """
        with self._lock:
            mine = self._by_owner.get(owner)
            if mine is None:
                return []
            entries = list(mine.entries)
            woken = [entry for entry in entries if not entry.is_waiting]
            for entry in entries:
                self._remove(entry)
        return woken

    def release_all(self) -> None:
        """Remove all requests, because the broker stops."""
        with self._lock:
            for owner in list(self._by_owner.values()):
                for entry in list(owner.entries):
                    self._remove(entry)

    def step(self, now_ms: int) -> int:
        """Resume due requests; see `rocketpy.runtime.service.Service.step`.

        Many entries are split into several steps, between which the loop serves connections.
        """
        with self._lock:
            due = self._take_due(now_ms)
        for entry in due:
            if now_ms >= entry.deadline_ms or entry.is_ready():
                self._resume_if_waiting(entry)
            else:
                with self._lock:
                    if entry.is_waiting:
                        self._put_in_slot(entry, now_ms)
        return now_ms if len(due) == _MAX_STEP_ENTRIES else now_ms + STEP_INTERVAL_MS

    def _take_due(self, now_ms: int) -> list[SuspendedRequest]:
        due: list[SuspendedRequest] = []
        for slot in sorted(one for one in self._slots if one <= now_ms // _SLOT_MS):
            entries = self._slots[slot]
            for entry in list(islice(entries, _MAX_STEP_ENTRIES - len(due))):
                due.append(entry)
                del entries[entry]
            if not entries:
                del self._slots[slot]
        return due

    def _resume_if_waiting(self, entry: SuspendedRequest) -> None:
        with self._lock:
            if not entry.is_waiting:
                return
            self._stop_waiting(entry)
        entry.owner.resume(entry, self._pool)

    def _make_room(
        self, entry: SuspendedRequest, evicted: list[SuspendedRequest], now_ms: int
    ) -> bool:
        """Return whether a new entry has room; adds the entries that were removed to `evicted`."""
        for key in entry.keys:
            waiting = self._by_key.get(key, {})
            if len(waiting) < self.max_per_key:
                continue
            # The owner that filled a key is usually at one of its ends, so the owners are counted
            # only if that did not help.
            ends = [one.owner for one in (*islice(waiting, 1), *islice(reversed(waiting), 1))]
            self._evict(entry, ends, key, evicted)
            if len(waiting) >= self.max_per_key and now_ms >= self._count_at_ms:
                self._count_at_ms = now_ms + _COUNT_INTERVAL_MS
                counts = Counter(one.owner for one in waiting)
                self._evict(entry, [owner for owner, _ in counts.most_common(1)], key, evicted)
            if len(waiting) >= self.max_per_key:
                return False
        if not self._has_room(entry):
            self._evict(entry, self._by_owner, None, evicted)
        return self._has_room(entry)

    def _evict(
        self,
        entry: SuspendedRequest,
        owners: Iterable[Hashable],
        key: Hashable | None,
        evicted: list[SuspendedRequest],
    ) -> None:
        """Remove about half of the waiting entries of the owner with the most memory.

        Nothing is removed if the owner of the new entry would then have as much memory.

        Args:
            entry: the new entry.
            owners: owners whose entries may be removed.
            key: only entries at this key are removed; None: all.
            evicted: receives the removed entries.
        """
        mine = self._by_owner.get(entry.owner)
        found_owners = (self._by_owner[owner] for owner in owners if owner in self._by_owner)
        most = max(found_owners, key=lambda one: one.size_bytes, default=mine)
        if (
            most is None
            or most is mine
            or most.size_bytes <= entry.size_bytes + (mine.size_bytes if mine else 0)
        ):
            return
        found = [one for one in most.entries if one.is_waiting and (key is None or key in one.keys)]
        del found[len(found) // 2 + 1 :]
        for one in found:
            self._remove(one)
        evicted += found

    def _has_room(self, entry: SuspendedRequest) -> bool:
        return (
            self.count < self.max_count and self._size_bytes + entry.size_bytes <= self._max_bytes
        )

    def _add(self, entry: SuspendedRequest, now_ms: int) -> None:
        owner = self._by_owner.get(entry.owner)
        if owner is None:
            owner = self._by_owner[entry.owner] = _Owner()
        owner.entries[entry] = None
        owner.size_bytes += entry.size_bytes
        self.count += 1
        self._size_bytes += entry.size_bytes
        by_key = self._by_key
        for key in entry.keys:
            entries = by_key.get(key)
            if entries is None:
                entries = by_key[key] = {}
            entries[entry] = None
        entry.is_waiting = True
        self._put_in_slot(entry, now_ms)

    def _put_in_slot(self, entry: SuspendedRequest, now_ms: int) -> None:
        check_ms = min(entry.next_check_ms(now_ms), entry.deadline_ms)
        entry.slot = -(-check_ms // _SLOT_MS)
        self._slots.setdefault(entry.slot, {})[entry] = None

    def _stop_waiting(self, entry: SuspendedRequest) -> None:
        entry.is_waiting = False
        for key in entry.keys:
            _discard(self._by_key, key, entry)
        _discard(self._slots, entry.slot, entry)

    def _remove(self, entry: SuspendedRequest) -> None:
        owner = self._by_owner.get(entry.owner)
        if owner is None or entry not in owner.entries:
            return
        if entry.is_waiting:
            self._stop_waiting(entry)
        del owner.entries[entry]
        owner.size_bytes -= entry.size_bytes
        if not owner.entries:
            del self._by_owner[entry.owner]
        self.count -= 1
        self._size_bytes -= entry.size_bytes


def _discard(
    table: dict[Any, dict[SuspendedRequest, None]], key: Hashable, entry: SuspendedRequest
) -> None:
    entries = table.get(key)
    if entries is not None and entries.pop(entry, entry) is None and not entries:
        del table[key]
