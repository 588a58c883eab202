"""Delivery time of a timed message, to the millisecond.

The wheel knows only slots: a message of slot T is due after T, and at the end of the slot at the
latest. The exact time is in the message: TIMER_DELIVER_MS, or its store time plus its delay. A time
outside the slot (the message was rolled meanwhile, or its properties changed) is replaced by the
end of the slot, which Apache uses for all messages.

Source: HookUtils.transformTimerMessage, TimerMessageStore.dequeue (5.4.0).
"""

import re
from collections.abc import Mapping
from typing import Final

from rocketpy.proto.record.properties import (
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX: Final = (1 << 63) - 1


def decimal(text: str | None) -> int | None:
    """Return a number of 64 bits, or None for any other text."""
    if text is None or _DECIMAL.fullmatch(text) is None:
        return None
    value = int(text)
    return value if ~_LONG_MAX <= value <= _LONG_MAX else None


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return the requested delivery time; None when the property is not a number.

    Args:
        properties: with at least one of TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS; the
            first one in this order counts.
        now_ms: start of a delay.
    """
    if PROPERTY_TIMER_DELAY_SEC in properties:
        seconds = decimal(properties[PROPERTY_TIMER_DELAY_SEC])
        return None if seconds is None else now_ms + seconds * 1_000
    if PROPERTY_TIMER_DELAY_MS in properties:
        delay_ms = decimal(properties[PROPERTY_TIMER_DELAY_MS])
        return None if delay_ms is None else now_ms + delay_ms
    return decimal(properties.get(PROPERTY_TIMER_DELIVER_MS))


def slot_ms(deliver_ms: int, precision_ms: int) -> int:
    """Return the start of the slot of a delivery time: the last one that starts before it."""
    # One less, so that a time on a slot's edge belongs to the slot before: it is due at its end.
    return (deliver_ms - 1) // precision_ms * precision_ms


def due_ms(
    properties: Mapping[str, str], store_timestamp_ms: int, slot: int, precision_ms: int
) -> int:
    """Return when a message of a slot is due.

    Args:
        properties: properties of the stored message.
        store_timestamp_ms: its store time.
        slot: start of its slot, ms.
        precision_ms: duration of a slot.
    """
    end_ms = slot + precision_ms
    if PROPERTY_TIMER_ROLL_TIMES in properties:
        # A rolled message was stored again, so a delay relative to the store time is meaningless.
        store_timestamp_ms = end_ms
    wanted = requested_ms(properties, store_timestamp_ms)
    return wanted if wanted is not None and slot < wanted <= end_ms else end_ms
