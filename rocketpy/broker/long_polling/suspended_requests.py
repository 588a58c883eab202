"""Requests that wait for something: found by what they wait for, by who waits, and by time.

A request is suspended under keys of its caller's choice (a pull: its queue and the tags it takes).
Whoever makes something happen wakes a key. Long polling of every kind stands on this table; it
knows nothing of connections, topics or frames.

What must hold:

- An entry that waits is under each of its keys, under its owner and in one time slot; one that was
  woken is under its owner only, until it is released. So it is resumed at most once, and its
  memory counts until its response has been made.
- Nothing looks at all entries: a wake looks at one key, a lost connection at its own entries, a
  step at the time slot that has come. Entries come and go in constant time.
- The owner's `resume` is called without the lock, on the thread that wakes, often the one that
  stores a message: it only queues the request (`WriteScheduler.add`), whose `run` answers it later.
- Over a limit the owner with the most gives way, not the one who comes last: half of what it has
  is resumed early, which answers those requests with what there is.

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
"""Estimated memory of all entries; see `SuspendedRequest.size_bytes`."""
ENTRY_BYTES: Final = 1_300
"""What an entry with its places in the table takes, measured and rounded up."""

_SLOT_MS: Final = 100
_COUNT_INTERVAL_MS: Final = 1_000
"""So often it may be counted who has most of what waits for a full key."""
_MAX_STEP_ENTRIES: Final = 1_000


class RequestOwner(Hashable, Protocol):
    """The connection a request came from."""

    def resume(self, request: "SuspendedRequest", pool: BusinessPool | None = None) -> None:
        """Call the request's `run` in the connection's turn; any thread; must not block."""
        ...


RequestT_contra = TypeVar("RequestT_contra", bound="SuspendedRequest", contravariant=True)


class Reply(Protocol[RequestT_contra]):
    """Makes the response to a resumed request; keeps what that needs of the request."""

    def __call__(self, request: RequestT_contra, /) -> bytes | None:
        """Return a frame; None: the request waits again, or is answered later.

        Errors become responses as well: no caller above could answer the client.
        """
        ...


class SuspendedRequest:
    """One request that waits; subclasses add the fields that its response needs.

    Attributes:
        keys: what it waits for; any of them may wake it.
        owner: the channel it came from; its entries go together.
        reply: makes its response.
        deadline_ms: monotonic time at which it is resumed whatever happened.
        size_bytes: estimated memory, `ENTRY_BYTES` and whatever large it keeps.
        is_waiting: it can still be woken.
        slot: where the table finds it by time; the table's own.
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
        """Return the frame of the response; called in the turn of the owner, once."""
        return self.reply(self)

    def is_ready(self) -> bool:
        """Whether what it waits for is there already, whoever forgot to wake it."""
        return False

    def looks_next(self, now_ms: int) -> int:  # noqa: ARG002 - for subclasses
        """When to ask `is_ready` next; at the deadline unless a subclass wants it earlier."""
        return self.deadline_ms


class _Owner:
    """The entries of one owner, and what they take."""

    __slots__ = ("entries", "size_bytes")

    def __init__(self) -> None:
        self.entries: dict[SuspendedRequest, None] = {}
        self.size_bytes = 0


class SuspendedRequests:
    """All suspended requests of one kind; safe from any thread. Also a service: see `step`.

    Args:
        name: of the service.
        max_count: how many requests may be suspended or resumed and not yet released.
        max_per_key: how many of them may wait for one key.
        max_bytes: their estimated memory.
        pool: where resumed requests run; one without threads is the loop of their channel.

    Attributes:
        count: suspended or resumed, and not yet released; 0 is read without a lock by who tells
            of each message, so that telling nobody costs nothing.
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
        """How many requests wait for a key."""
        return len(self._by_key.get(key, ()))

    def suspend(self, entry: SuspendedRequest, now_ms: int) -> bool:
        """Let a request wait; it may be resumed before this returns.

        Args:
            entry: the request.
            now_ms: monotonic time.

        Returns:
            False when there is no room for it; nothing was kept then.
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
        # What it waits for may have come between its caller's last look and this.
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
            key: what happened.
            wants: decides for each of them; None resumes all.
            limit: resume so many at most, those who wait longest; None: all.

        Returns:
            Whether any was resumed.
        """
        if key not in self._by_key:  # nobody waits: the usual case, and no lock for it
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
        """Forget a request: it was answered, or never will be."""
        with self._lock:
            self._remove(entry)

    def release_owner(self, owner: Hashable) -> list[SuspendedRequest]:
        """Forget all requests of an owner without resuming them: its connection is lost.

        Returns:
            Those that were woken and have not gone on: what they were woken for is there still.
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
        """Forget everything: the broker stops."""
        with self._lock:
            for owner in list(self._by_owner.values()):
                for entry in list(owner.entries):
                    self._remove(entry)

    def step(self, now_ms: int) -> int:
        """Resume what is due; see `rocketpy.runtime.service.Service.step`.

        Many entries are done in several steps, between which the caller's loop serves others.
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
        """Whether a new entry may stay, and add who gives way to it."""
        for key in entry.keys:
            waiting = self._by_key.get(key, {})
            if len(waiting) < self.max_per_key:
                continue
            # Who filled a key is at one of its ends as a rule; they are not all counted each time.
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
        """Remove half of what waits of the owner with the most, unless the new entry's has more.

        Args:
            entry: the new one.
            owners: who may have to give way.
            key: only what waits for it goes; None: all.
            evicted: those that are removed are added to it.
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
        look_ms = min(entry.looks_next(now_ms), entry.deadline_ms)
        entry.slot = -(-look_ms // _SLOT_MS)
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
