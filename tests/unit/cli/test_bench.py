import io

import pytest

from rocketpy.cli.bench import Measured, percentile
from rocketpy.testing.progress import ProgressBars


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100), (0.0, 1)]
)
def test_percentiles(share: float, expected: int) -> None:
    assert percentile(list(range(1, 101)), share) == expected


def test_percentiles_of_few() -> None:
    assert percentile([], 0.99) == 0
    assert percentile([7], 0.5) == percentile([7], 0.999) == 7


def test_what_was_measured() -> None:
    measured = Measured(ProgressBars({"sent": 3}, io.StringIO()), "sent")
    measured.begin()
    for time_us in (1000, 3000, 2000):
        measured.add(time_us, 10)
    measured.failed = 1
    row = measured.row()
    assert (row["messages"], row["failed"]) == (3, 1)
    assert (row["p50_ms"], row["p99_ms"], row["p999_ms"]) == (2.0, 3.0, 3.0)
    assert list(row) == [
        "messages", "failed", "seconds", "messages_per_s", "mib_per_s", "p50_ms", "p99_ms",
        "p999_ms",
    ]  # fmt: skip
