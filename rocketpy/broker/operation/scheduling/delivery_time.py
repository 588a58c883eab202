"""When a timed message is due, to the millisecond.

The wheel knows the slot only: a message of slot T is due after T, and no later than the slot's
end. The exact moment stands in the message: TIMER_DELIVER_MS, or when it was stored and how much
later it is wanted. Where that does not fit the slot (the message was put back meanwhile, or its
properties changed), it is due at the slot's end, which is what Apache does with all of them.

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
    """Return a number of 64 bits, or None when the text is none."""
    if text is None or _DECIMAL.fullmatch(text) is None:
        return None
    value = int(text)
    return value if ~_LONG_MAX <= value <= _LONG_MAX else None


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return when properties want a message delivered; None when they name no number.

    Args:
        properties: with at least one of TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS; the
            first one that is there counts.
        now_ms: what a delay begins at.
    """
    if PROPERTY_TIMER_DELAY_SEC in properties:
        seconds = decimal(properties[PROPERTY_TIMER_DELAY_SEC])
        return None if seconds is None else now_ms + seconds * 1_000
    if PROPERTY_TIMER_DELAY_MS in properties:
        delay_ms = decimal(properties[PROPERTY_TIMER_DELAY_MS])
        return None if delay_ms is None else now_ms + delay_ms
    return decimal(properties.get(PROPERTY_TIMER_DELIVER_MS))


def slot_ms(deliver_ms: int, precision_ms: int) -> int:
    """Return the start of the slot for a moment: the last one that begins before it."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def due_ms(
    properties: Mapping[str, str], store_timestamp_ms: int, slot: int, precision_ms: int
) -> int:
    """Return when a message of a slot is due.

    Args:
        properties: of the stored message.
        store_timestamp_ms: when it was stored.
        slot: start of its slot, ms.
        precision_ms: time of a slot.
    """
    end_ms = slot + precision_ms
    if PROPERTY_TIMER_ROLL_TIMES in properties:
        store_timestamp_ms = end_ms  # it was stored again: only an absolute moment still holds
    wanted = requested_ms(properties, store_timestamp_ms)
    return wanted if wanted is not None and slot < wanted <= end_ms else end_ms
