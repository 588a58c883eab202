import pytest

from rocketpy.cli.measure.figures import Figures, Latencies


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.9, 90), (0.99, 99), (0.999, 100), (1.0, 100), (0.0, 1)]
)
def test_percentiles(share: float, expected: int) -> None:
    latencies = Latencies()
    for value in range(1, 101):
        latencies.add(value)
    assert latencies.percentile(share) == expected


def test_percentiles_of_few() -> None:
    latencies = Latencies()
    assert latencies.percentile(0.99) == 0
    latencies.add(70_001)
    assert latencies.percentile(0.5) == latencies.percentile(0.999) == 70_001


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 4_095, 4_096, 1_000_003, 3_600_000_000])
def test_bucket_is_at_most_a_64th_too_large(value: int) -> None:
    latencies = Latencies()
    latencies.add(value)
    latencies.add(1 << 40)
    assert value <= latencies.percentile(0.5) <= value + value / 64
    assert latencies.largest == 1 << 40


def test_memory_does_not_grow_with_what_is_added() -> None:
    latencies = Latencies()
    for value in range(0, 1 << 20, 7):
        latencies.add(value)
    assert latencies.count == (1 << 20) // 7 + 1
    assert len(latencies._buckets) <= 128 + 64 * 13


def test_spread_has_no_gaps() -> None:
    latencies = Latencies()
    assert latencies.spread() == []
    latencies.add(3, 5)
    latencies.add(20)
    assert latencies.spread() == [(4, 5), (8, 0), (16, 0), (32, 1)]
    assert sum(count for _, count in latencies.spread()) == latencies.count


def test_figures_have_counts_rates_and_percentiles() -> None:
    watch = Watch()
    figures = Figures(watch)
    watch.now_s = 150.0
    figures.begin()
    for time_us in (1000, 3000, 2000):
        watch.now_s += 0.5
        figures.add(time_us, 1 << 20)
    figures.fail(OSError("first"), 2)
    figures.fail(OSError("second"))
    row = figures.row()
    assert (row["messages"], row["failed"], row["seconds"]) == (3, 3, 1.5)
    assert (row["messages_per_s"], row["mib_per_s"]) == (2.0, 2.0)
    assert row["p50_ms"] == pytest.approx(2.0, rel=1 / 64)
    assert row["p90_ms"] == row["p99_ms"] == row["p999_ms"] == row["max_ms"] == 3.0
    assert str(figures.failure) == "first"
    assert list(row) == [
        "messages", "failed", "seconds", "messages_per_s", "mib_per_s",
        "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms",
    ]  # fmt: skip


def test_messages_of_a_batch_take_the_same_time() -> None:
    figures = Figures(Watch())
    figures.add(500, 3200, 32)
    assert (figures.messages, figures.body_bytes) == (32, 3200)


def test_rates_of_a_short_run() -> None:
    watch = Watch()
    figures = Figures(watch)
    for _ in range(4):
        watch.now_s += 0.05
        figures.add(1, 1)
    rates = figures.rates(12)
    assert rates[-1][0] == pytest.approx(0.2)
    parts = zip([0.0, *(end for end, _ in rates)], rates, strict=False)
    assert sum(rate * (end - begin) for begin, (end, rate) in parts) == pytest.approx(4)


def test_run_of_hours_is_kept_in_few_periods() -> None:
    watch = Watch()
    figures = Figures(watch)
    for _ in range(10_000):
        watch.now_s += 1.0
        figures.add(1, 1)
    assert len(figures._periods) <= 2_000
    assert sum(figures._periods) == 10_000
    rates = figures.rates(10)
    assert len(rates) <= 10
    assert rates[0][1] == pytest.approx(1.0, rel=0.01)


def test_nothing_was_sent() -> None:
    figures = Figures(Watch())
    assert figures.row()["messages_per_s"] == 0
    assert [rate for _, rate in figures.rates(5)] == [0.0]
