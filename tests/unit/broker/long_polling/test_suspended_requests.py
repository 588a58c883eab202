"""The table of suspended requests."""

from collections.abc import Hashable
from typing import Any

import pytest

from rocketpy.broker.long_polling.suspended_requests import (
    ENTRY_BYTES,
    STEP_INTERVAL_MS,
    SuspendedRequest,
    SuspendedRequests,
)


class Owner:
    """Counts how often each of its requests is resumed; equal to others of its name."""

    def __init__(self, name: Hashable) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and other.name == self.name

    def resume(self, request: Any, _pool: object = None) -> None:
        assert not request.is_waiting
        request.resumed += 1


class Entry(SuspendedRequest):
    """Knows whether it was resumed, and whether it is ready."""

    __slots__ = ("interval_ms", "ready", "resumed")

    def __init__(
        self,
        *keys: Hashable,
        owner: Hashable = "o",
        deadline_ms: int = 10_000,
        size_bytes: int = 0,
        interval_ms: int | None = None,
    ) -> None:
        super().__init__(keys, Owner(owner), deadline_ms, lambda _: None, size_bytes)
        self.interval_ms = interval_ms
        self.ready = False
        self.resumed = 0

    def is_ready(self) -> bool:
        return self.ready

    def next_check_ms(self, now_ms: int) -> int:
        return self.deadline_ms if self.interval_ms is None else now_ms + self.interval_ms


def table(**limits: Any) -> SuspendedRequests:
    return SuspendedRequests("test", **limits)


def is_clean(suspended: SuspendedRequests) -> bool:
    """Whether nothing is left anywhere inside."""
    return (
        suspended.count == suspended.size_bytes == 0
        and not suspended._by_key
        and not suspended._by_owner
        and not suspended._slots
    )


@pytest.mark.parametrize("key", ["a", "b"])
def test_suspended_request_any_key_wakes_once(key: str) -> None:
    suspended, entry = table(), Entry("a", "b")
    assert suspended.suspend(entry, 0)
    suspended.wake("c")
    assert entry.resumed == 0
    for other in (key, "a", "b"):
        suspended.wake(other)
    suspended.step(10_000)
    assert entry.resumed == 1
    suspended.release(entry)
    assert is_clean(suspended)


def test_wake_predicate_selects_requests() -> None:
    suspended, wanted, other = table(), Entry("a"), Entry("a")
    suspended.suspend(wanted, 0)
    suspended.suspend(other, 0)
    suspended.wake("a", lambda one: one is wanted)
    assert (wanted.resumed, other.resumed) == (1, 0)
    assert suspended.count_at("a") == 1


def test_suspend_ready_request_is_resumed_at_once() -> None:
    suspended, entry = table(), Entry("a")
    entry.ready = True
    assert suspended.suspend(entry, 0)
    assert entry.resumed == 1
    suspended.wake("a")
    assert entry.resumed == 1


def test_deadline_resumes_within_a_tenth_of_a_second() -> None:
    suspended, entry = table(), Entry("a", deadline_ms=5_050)
    suspended.suspend(entry, 0)
    assert suspended.step(5_049) == 5_049 + STEP_INTERVAL_MS
    assert entry.resumed == 0
    suspended.step(5_100)
    assert entry.resumed == 1


def test_step_polls_is_ready() -> None:
    suspended, entry = table(), Entry("a", interval_ms=2_000)
    suspended.suspend(entry, 0)
    suspended.step(2_000)
    entry.ready = True
    suspended.step(3_000)
    assert entry.resumed == 0, "not its time"
    suspended.step(4_000)
    assert entry.resumed == 1


def test_step_is_bounded_and_repeated_at_once() -> None:
    suspended = table()
    entries = [Entry(number) for number in range(2_500)]
    for entry in entries:
        suspended.suspend(entry, 0)
    assert [suspended.step(10_000) for _ in range(3)] == [10_000, 10_000, 11_000]
    assert {entry.resumed for entry in entries} == {1}


def test_resumed_request_counts_until_released() -> None:
    suspended, entry = table(max_count=1), Entry("a")
    suspended.suspend(entry, 0)
    suspended.wake("a")
    assert suspended.count == 1
    assert not suspended.suspend(Entry("a"), 0)
    suspended.release(entry)
    suspended.release(entry)
    assert suspended.suspend(Entry("a"), 0)


def test_release_owner_removes_its_requests() -> None:
    suspended = table()
    mine, woken, other = Entry("a", owner=1), Entry("b", owner=1), Entry("a", owner=2)
    for entry in (mine, woken, other):
        suspended.suspend(entry, 0)
    suspended.wake("b")
    suspended.release_owner(Owner(1))
    suspended.wake("a")
    assert (mine.resumed, woken.resumed, other.resumed) == (0, 1, 1)
    suspended.release_owner(Owner(2))
    assert is_clean(suspended)


class Unhashed:
    """An owner that says when it is compared with another one."""

    compared = 0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        Unhashed.compared += 1
        return self is other


def test_release_owner_cost_is_its_own_requests() -> None:
    """The entries of others are not looked at, however many there are."""
    suspended = table()
    for number in range(1_000):
        suspended.suspend(Entry(number, owner=Unhashed()), 0)
    gone = Unhashed()
    suspended.suspend(Entry("a", owner=gone), 0)
    Unhashed.compared = 0
    suspended.release_owner(Owner(gone))
    assert Unhashed.compared < 10
    assert suspended.count == 1_000


def test_requests_per_key_are_bounded() -> None:
    suspended = table(max_per_key=2)
    assert [suspended.suspend(Entry("a"), 0) for _ in range(3)] == [True, True, False]
    assert suspended.suspend(Entry("b"), 0)
    assert (suspended.count_at("a"), suspended.count) == (2, 3)


def test_full_table_evicts_largest_owner() -> None:
    suspended = table(max_count=10)
    greedy = [Entry(number, owner="greedy") for number in range(9)]
    for entry in (*greedy, Entry("x", owner="modest")):
        assert suspended.suspend(entry, 0)
    assert not suspended.suspend(Entry("y", owner="greedy"), 0), "it has the most already"
    assert suspended.suspend(Entry("y", owner="modest"), 0)
    assert [entry.resumed for entry in greedy].count(1) == 5, "half of them go early"
    assert suspended.count == 6


def test_full_memory_evicts_largest_owner() -> None:
    suspended = table(max_bytes=10 * ENTRY_BYTES)
    assert suspended.suspend(Entry("a", size_bytes=8 * ENTRY_BYTES), 0)
    assert not suspended.suspend(Entry("b", owner="p", size_bytes=9 * ENTRY_BYTES), 0)
    assert suspended.suspend(Entry("c", owner="p"), 0)
    assert suspended.size_bytes == 10 * ENTRY_BYTES
    suspended.release_all()
    assert is_clean(suspended)


def test_full_table_equal_owners_do_not_evict_each_other() -> None:
    suspended = table(max_count=2)
    for owner in ("a", "b"):
        assert suspended.suspend(Entry(owner, owner=owner), 0)
    assert not suspended.suspend(Entry("c", owner="c"), 0)
    assert suspended.count == 2


@pytest.mark.parametrize("honest_first", [False, True])
def test_full_key_evicts_owner_that_filled_it(honest_first: bool) -> None:
    suspended = table(max_per_key=20)
    honest, greedy = Entry("a", owner="honest"), []
    if honest_first:
        suspended.suspend(honest, 0)
    while suspended.count < 20:
        greedy.append(Entry("a", owner="greedy"))
        assert suspended.suspend(greedy[-1], 0)
    elsewhere = Entry("b", owner="greedy")
    suspended.suspend(elsewhere, 0)
    assert not suspended.suspend(Entry("a", owner="greedy"), 0)
    assert suspended.suspend(Entry("a", "b", owner="other"), 0)
    assert sum(entry.resumed for entry in greedy) == len(greedy) // 2 + 1
    assert (honest.resumed, elsewhere.resumed) == (0, 0)
    suspended.release_all()
    assert is_clean(suspended)


def test_full_key_owners_are_counted_once_a_second() -> None:
    """Small owners at both ends must not hide the largest one."""
    suspended = table(max_per_key=20)
    greedy = [Entry("a", owner="greedy") for _ in range(18)]
    for entry in (Entry("a", owner="first"), *greedy, Entry("a", owner="last")):
        assert suspended.suspend(entry, 0)
    assert suspended.suspend(Entry("a", owner="other"), 0)
    assert sum(entry.resumed for entry in greedy) == 10
    while suspended.count_at("a") < 19:
        assert suspended.suspend(Entry("a", owner="greedy"), 500)
    assert suspended.suspend(Entry("a", owner="end"), 500)
    assert not suspended.suspend(Entry("a", owner="another"), 999)
    assert suspended.suspend(Entry("a", owner="another"), 1_000)
    suspended.release_all()
    assert is_clean(suspended)


def test_key_with_limit_zero_suspends_nothing() -> None:
    assert not table(max_per_key=0).suspend(Entry("a"), 0)
