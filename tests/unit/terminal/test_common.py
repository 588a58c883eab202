from datetime import UTC, datetime, timedelta

import click
import pytest

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.terminal.common import confirm, key_values, permission, position, queue_of


def test_positions() -> None:
    assert position("earliest") == "earliest"
    assert position("latest") == "latest"
    assert position("1700000000000") == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert position("2026-01-31T12:00+01:00") == datetime(2026, 1, 31, 11, 0, tzinfo=UTC)
    local = position("2026-01-31T12:00")
    assert isinstance(local, datetime)
    assert local.tzinfo is not None
    ago = position("2h")
    assert isinstance(ago, datetime)
    assert abs(datetime.now(UTC) - timedelta(hours=2) - ago) < timedelta(minutes=1)


def test_digits_are_date_or_milliseconds() -> None:
    date = position("20261127")
    assert isinstance(date, datetime)
    assert (date.year, date.month, date.day, date.hour) == (2026, 11, 27, 0)
    for text in ("0", "1", "2026", "1764201600", "99999999999"):
        with pytest.raises(click.BadParameter, match="too early for a time; use earliest"):
            position(text)


@pytest.mark.parametrize(
    "text", ["20261350", "", "now", "5w", "99999999999999999999", "999999999999d", "-1"]
)
def test_wrong_positions_are_usage_errors(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not earliest, latest, a time"):
        position(text)


def test_permissions() -> None:
    assert [permission(text) for text in ("r", "w", "rw", "WR", "4", "2", "6")] == [
        4, 2, 6, 6, 4, 2, 6,
    ]  # fmt: skip
    for text in ("", "x", "7", "0", "rwx"):
        with pytest.raises(click.BadParameter, match="is not a permission: r, w or rw"):
            permission(text)


def test_key_values() -> None:
    assert key_values(["a=1", "b=x=y", "c="], "--header") == {"a": "1", "b": "x=y", "c": ""}
    for text in ("a", "=1"):
        with pytest.raises(click.UsageError, match="is not key=value"):
            key_values([text], "--header")


def test_queues() -> None:
    assert queue_of("t", "broker-a:3") == MessageQueue("t", "broker-a", 3)
    for text in ("3", ":3", "broker-a:", "broker-a:x"):
        with pytest.raises(click.UsageError, match="is not BROKER:NUMBER"):
            queue_of("t", text)


def test_yes_is_not_asked() -> None:
    confirm("Really?", yes=True)
