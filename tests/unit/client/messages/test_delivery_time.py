"""Messages that are to be delivered later, as their sender says it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocketpy.client.consumer.offset_store import start_time_ms
from rocketpy.client.messages.delivery_time import DeliveryTime, delivery_time_of, level_property
from rocketpy.errors import IllegalMessageError

NOW = 1_800_000_000_000
AT = datetime(2027, 1, 15, 8, 0, 0, 500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [
        (1.5, 1_500),
        (timedelta(seconds=2), 2_000),
        (0.0001, 1),
        (0.3, 300),
        (1e-9, 0),
        (2.0005, 2_001),
    ],
)
def test_delay_is_never_rounded_down(delay: Any, delay_ms: int) -> None:
    assert delivery_time_of(delay, None, 0) == DeliveryTime(delay_ms=delay_ms)


def test_time_is_never_rounded_down() -> None:
    assert delivery_time_of(None, AT, 0) == DeliveryTime(deliver_ms=NOW + 1)
    assert delivery_time_of(None, AT.replace(microsecond=0), 0) == DeliveryTime(deliver_ms=NOW)
    assert DeliveryTime(deliver_ms=NOW).properties == {"TIMER_DELIVER_MS": str(NOW)}
    assert DeliveryTime(delay_ms=5).properties == {"TIMER_DELAY_MS": "5"}


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (AT.replace(tzinfo=None), int(AT.replace(tzinfo=None).timestamp() * 1_000) + 1),
        (NOW / 1_000 + 0.25, NOW + 250),
        (NOW, NOW),
    ],
    ids=repr,
)
def test_moment_is_local_time_seconds_or_ms(moment: Any, ms: int) -> None:
    assert delivery_time_of(None, moment, 0) == DeliveryTime(deliver_ms=ms)
    assert start_time_ms(moment) == ms, "as for the start of a consumer"


@pytest.mark.parametrize("nothing", [None, 0, 0.0, timedelta(0)])
def test_no_delay_is_none(nothing: Any) -> None:
    assert delivery_time_of(nothing, None, 0) is None
    assert level_property(0) == {}


@pytest.mark.parametrize(
    ("delay", "deliver_at", "level"),
    [
        (-1, None, 0),
        (timedelta(seconds=-1), None, 0),
        (float("inf"), None, 0),
        (float("nan"), None, 0),
        (1e300, None, 0),
        (None, float(NOW), 0),
        (None, float("nan"), 0),
        (None, 0, 3),
        (1, AT, 0),
        (1, None, 3),
        (None, AT, 3),
    ],
)
def test_invalid_delivery_time_raises(delay: Any, deliver_at: Any, level: int) -> None:
    with pytest.raises(IllegalMessageError):
        delivery_time_of(delay, deliver_at, level)


@pytest.mark.parametrize("level", [-1, 19, 1 << 40])
def test_levels_that_do_not_exist(level: int) -> None:
    with pytest.raises(IllegalMessageError, match=r"1\.\.18"):
        level_property(level)
    assert level_property(18) == {"DELAY": "18"}


@pytest.mark.parametrize(
    ("moment", "level"),
    [
        (DeliveryTime(delay_ms=1), "DELAY\x011\x02"),
        (DeliveryTime(delay_ms=1_000), "DELAY\x011\x02"),
        (DeliveryTime(delay_ms=1_001), "DELAY\x012\x02"),
        (DeliveryTime(delay_ms=7_200_000), "DELAY\x0118\x02"),
        (DeliveryTime(deliver_ms=NOW + 30_000), "DELAY\x014\x02"),
        (DeliveryTime(deliver_ms=NOW), ""),
        (DeliveryTime(deliver_ms=NOW - 5), ""),
    ],
)
def test_broker_before_5_0_gets_the_nearest_level_that_is_not_shorter(
    moment: DeliveryTime, level: str
) -> None:
    (pair,) = moment.properties.items()
    text = f"A\x01a\x02{pair[0]}\x01{pair[1]}\x02B\x01b\x02"
    assert moment.as_delay_level(text, NOW) == f"A\x01a\x02{level}B\x01b\x02"


def test_broker_before_5_0_has_nothing_longer_than_two_hours() -> None:
    with pytest.raises(IllegalMessageError, match="two hours"):
        DeliveryTime(delay_ms=7_200_001).as_delay_level("", NOW)
