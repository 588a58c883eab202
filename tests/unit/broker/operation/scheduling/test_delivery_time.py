"""Delivery times and their slots."""

import pytest

from rocketpy.broker.operation.scheduling.delivery_time import decimal, slot_ms


@pytest.mark.parametrize(
    ("deliver_ms", "slot"), [(5_000, 4_000), (5_001, 5_000), (5_999, 5_000), (6_000, 5_000)]
)
def test_slot_of_delivery_time_is_last_one_starting_before_it(deliver_ms: int, slot: int) -> None:
    assert slot_ms(deliver_ms, 1_000) == slot


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("-5", -5), ("+5", 5), ("", None), (None, None), ("1_0", None), (" 5", None),
     ("9223372036854775807", (1 << 63) - 1), ("9223372036854775808", None), ("9" * 99, None)],
)  # fmt: skip
def test_decimal_accepts_64_bits_only(text: str | None, value: int | None) -> None:
    assert decimal(text) == value
