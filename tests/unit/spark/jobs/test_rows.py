import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import click
import pytest

from rocketpy.spark.jobs.rows import collected, range_options

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


def test_range_options_of_an_end_before_the_start_raises() -> None:
    with pytest.raises(click.UsageError, match="--until is before --from"):
        range_options(NOON, NOON - timedelta(seconds=1))


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_collected_times_of_the_local_zone_are_shown_in_utc() -> None:
    twice = datetime(2026, 11, 1, 1, 30, 0, 437_000)  # noqa: DTZ001 - as Spark returns it
    row: Any = {"stored": twice, "again": twice.replace(fold=1), "topic": "t", "none": None}
    frame: Any = SimpleNamespace(collect=lambda: [SimpleNamespace(asDict=lambda: row)])

    assert collected(frame) == [
        {
            "stored": "2026-11-01T05:30:00.437Z",
            "again": "2026-11-01T06:30:00.437Z",
            "topic": "t",
            "none": None,
        }
    ]
