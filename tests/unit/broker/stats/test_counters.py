"""Counters and their windows."""

import threading

from rocketpy.broker.stats.counters import CounterSet


def test_counters_keys_beyond_bound_are_not_counted() -> None:
    counters = CounterSet(max_keys=2)
    for key in ("a", "b", "c", "a"):
        counters.add(key, 1, 10)
    assert sorted(counters.keys()) == ["a", "b"]
    assert counters.totals("a") == (2, 20)
    assert counters.totals("c") == (0, 0)


def test_counters_concurrent_adds_are_all_counted() -> None:
    counters = CounterSet()

    def work() -> None:
        for _ in range(5_000):
            counters.add("k", 1, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.totals("k") == (20_000, 40_000)


def test_counter_without_samples_has_empty_windows() -> None:
    counters = CounterSet()
    counters.add("k", 5)
    data = counters.data("k", "count")
    assert data is not None
    assert (data.minute.sum, data.hour.sum, data.day.sum) == (0, 0, 0)


def test_counter_rings_are_bounded() -> None:
    counters = CounterSet()
    counters.add("k", 5)
    for at in range(1, 100):
        counters.sample(at * 10_000, minute=True, hour=True, day=True)
        counters.add("k", 1)
    data = counters.data("k", "count")
    assert data is not None
    assert (data.minute.sum, data.hour.sum, data.day.sum) == (6, 6, 24)
