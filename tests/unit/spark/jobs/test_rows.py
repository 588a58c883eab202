from datetime import UTC, datetime

import click
import pytest

from rocketpy.spark.jobs.rows import range_options

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_range_options_of_a_range_of_time() -> None:
    assert range_options("earliest", "latest") == {}
    assert range_options(NOON, NOON) == {
        "startingTimestamp": "1780315200000",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "1780315200000",
    }


@pytest.mark.parametrize(("start", "end"), [("latest", "latest"), ("earliest", "earliest")])
def test_range_options_of_an_empty_range_raises(start: str, end: str) -> None:
    with pytest.raises(click.UsageError):
        range_options(start, end)  # type: ignore[arg-type]
