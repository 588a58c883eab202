"""Scheduling of messages for later delivery, in system topics.

A message with a delay level is stored in SCHEDULE_TOPIC_XXXX, in the queue of its level. A message
with a delivery time (TIMER_*) is stored in rmq_sys_wheel_timer, with its slot in TIMER_OUT_MS. Its
real topic and queue are in REAL_TOPIC and REAL_QID; all other properties are unchanged. A level has
precedence over a delivery time. The delay of a half message starts with its commit.

Code that stores messages of the broker itself (a retry, a decided transaction) calls
`MessageScheduler.postpone` before the put, as a send does.

Recalls are counted by slot of the timer, because their ids are in memory while the slot is
delivered. A recall is a timed message, which any client may send: RECALL_MESSAGE (370) stores one,
and a send with TIMER_DEL_UNIQKEY is one. They are counted here because both pass here.

Source: HookUtils.handleScheduleMessage, transformDelayLevelMessage, transformTimerMessage (5.4.0).
"""

import heapq
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.delivery_time import requested_ms, slot_ms
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessage

MAX_RECALLS_PER_SLOT: Final = 100_000
"""Bound on the memory of one slot's ids: 10 MB (`rocketpy.broker.timer.slot_reader`)."""
MAX_COUNTED_SLOTS: Final = 10_000
"""Bound on the slots with a count; the fullest half survives, since only full slots matter."""


class RecallCounts:
    """Number of recalls for each slot of the timer, in this process; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()

    def take(self, slot: int, slot_now: int) -> bool:
        """Count a recall; False when the slot has too many."""
        with self._lock:
            # Counted under the lock: two threads must not both take the last place of a slot.
            if self._counts[slot] >= MAX_RECALLS_PER_SLOT:
                return False
            self._counts[slot] += 1
            if len(self._counts) > MAX_COUNTED_SLOTS:
                # Slots of the past are delivered, and need no count.
                ahead = {key: n for key, n in self._counts.items() if key >= slot_now}
                most = heapq.nlargest(MAX_COUNTED_SLOTS // 2, ahead, key=ahead.__getitem__)
                self._counts = Counter({key: ahead[key] for key in most})
            return True


TIMER_PROPERTIES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
"""Properties that request a delivery time; the first existing one counts."""
_TOO_MANY_RECALLS: Final = Refusal(
    ResponseCode.SYSTEM_BUSY, "recall failed, too many messages of that second are called back"
)
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT_MAX: Final = (1 << 31) - 1


def delay_level(properties: Mapping[str, str]) -> int | Refusal:
    """Return the delay level of properties, 0 without one, or the refusal of an invalid one.

    Args:
        properties: properties of one message.
    """
    text = properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if text is None:
        return 0
    if _DECIMAL.fullmatch(text) is None or not ~_INT_MAX <= int(text) <= _INT_MAX:
        remark = f"property DELAY is not a decimal integer: {text[:32]!r}"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return max(0, int(text))


def refuse_later_in_batch(properties: Mapping[str, str]) -> Refusal | None:
    """Refuse a batch, or a message of one, with a delay.

    Args:
        properties: properties of the batch, or of one of its messages.
    """
    level = delay_level(properties)
    if isinstance(level, Refusal):
        return level
    if level or any(properties.get(name) for name in TIMER_PROPERTIES):
        remark = "messages of a batch cannot be delayed (DELAY, TIMER_*)"
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerLimits:
    """Limits of timed messages.

    Attributes:
        is_enabled: whether the timer is enabled.
        precision_ms: duration of one slot of the timer wheel.
        max_delay_ms: longest delay.
    """

    is_enabled: bool = True
    precision_ms: int = 1_000
    max_delay_ms: int = 259_200_000


class MessageScheduler:
    """Schedules messages for later delivery; safe from any thread.

    Args:
        delays_ms: the delays, level 1 first.
        clock: time.
        timers: limits of timed messages.
    """

    def __init__(
        self, delays_ms: tuple[int, ...], clock: Clock, timers: TimerLimits | None = None
    ) -> None:
        self.timers: TimerLimits = timers or TimerLimits()
        self._max_level = len(delays_ms)
        self._clock = clock
        self._recalls = RecallCounts()

    def postpone(self, message: PutMessage) -> Refusal | None:
        """Redirect a message, in place, if its properties request a later delivery.

        Only messages outside of a transaction and committed ones are scheduled; a half message is
        not delivered.

        Args:
            message: about to be stored; its `properties` contain the delay.

        Returns:
            Why it is refused; None when it can be stored.
        """
        if (
            message.sys_flag & TRANSACTION_MASK not in {0, TRANSACTION_COMMIT}
            or message.topic == TRANS_HALF_TOPIC
        ):
            return None
        encoded = message.properties
        # Each of the four property names contains one of these texts, so most messages are not
        # parsed.
        if b"DELAY" not in encoded and b"TIMER_DELIVER_MS" not in encoded:
            return None
        properties = parse_properties(encoded)
        level = delay_level(properties)
        if isinstance(level, Refusal):
            return level
        # A level wins over a delivery time, as in Apache.
        if level:
            self.delay(message, properties, level)
            return None
        if message.topic == TIMER_TOPIC or PROPERTY_TIMER_OUT_MS in properties:
            return None  # it was scheduled before, and is being delivered or rolled
        # 0 also stands for a time that has passed: such a message is stored for delivery at once.
        slot = self._slot(properties)
        if isinstance(slot, Refusal):
            return slot
        if slot:
            if PROPERTY_TIMER_DEL_UNIQKEY in properties and not self._takes_recall(slot):
                return _TOO_MANY_RECALLS
            properties[PROPERTY_TIMER_OUT_MS] = str(slot)
            _store_in(message, properties, TIMER_TOPIC, 0)
        return None

    def refusal(self, properties: Mapping[str, str]) -> Refusal | None:
        """Return why a message with these properties cannot be scheduled.

        Half messages are checked when they are sent: a refusal of the commit would be too late.

        Args:
            properties: properties of the message.
        """
        level = delay_level(properties)
        if isinstance(level, Refusal):
            return level
        slot = 0 if level else self._slot(properties)
        return slot if isinstance(slot, Refusal) else None

    def _slot(self, properties: Mapping[str, str]) -> int | Refusal:
        """Return the start of the requested slot, ms; 0 when no delivery time is requested."""
        if not any(name in properties for name in TIMER_PROPERTIES):
            return 0
        timers = self.timers
        if not timers.is_enabled:
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        now_ms = self._clock.time_ms()
        deliver_ms = requested_ms(properties, now_ms)
        # The wheel covers `max_delay_ms`; a later slot would be taken for one of the next turn.
        if deliver_ms is None or deliver_ms - now_ms > timers.max_delay_ms:
            return self._illegal()
        if deliver_ms <= now_ms:
            # A past delivery time is delivered at once; a past recall would have no effect.
            return self._illegal() if PROPERTY_TIMER_DEL_UNIQKEY in properties else 0
        return slot_ms(deliver_ms, timers.precision_ms)

    def _takes_recall(self, slot: int) -> bool:
        precision_ms = self.timers.precision_ms
        return self._recalls.take(slot // precision_ms, self._clock.time_ms() // precision_ms)

    def _illegal(self) -> Refusal:
        most_ms = self.timers.max_delay_ms
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{most_ms}ms ({_in_days(most_ms)}); or if set del msg, the delay time should be "
            "bigger than the current time",
        )

    def delay(self, message: PutMessage, properties: dict[str, str], level: int) -> None:
        """Redirect a message to a delay level, in place.

        Args:
            message: about to be stored.
            properties: its properties; both these and the message's own are changed.
            level: from 1; levels above the last one count as the last.
        """
        # A level has precedence; a delivery time would schedule the message a second time.
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        # Clients may know more levels than this broker is configured with.
        level = min(level, self._max_level)
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        message.delay_level = level
        _store_in(message, properties, SCHEDULE_TOPIC, level - 1)

    def __call__(
        self, message: PutMessage, properties: Mapping[str, str], _request: SendRequest
    ) -> Refusal | None:
        """See `rocketpy.broker.operation.send.put_transforms.PutTransform`."""
        if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true" and not (
            message.reconsume_times > 0 and properties.get(PROPERTY_DELAY_TIME_LEVEL)
        ):
            return self.refusal(properties)  # a half message: it is scheduled by its commit
        return self.postpone(message)


def _store_in(message: PutMessage, properties: dict[str, str], topic: str, queue_id: int) -> None:
    # The delivery reads the target from the properties: topic and queue of the record are the
    # system topic's.
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    message.properties = encode_properties(properties)
    message.topic, message.queue_id = topic, queue_id


def _in_days(duration_ms: int) -> str:
    """Return a duration in words; a text of nine digits of milliseconds is hard to read."""
    days = duration_ms / 86_400_000
    return f"{days:g} days" if days >= 1 else f"{duration_ms / 1000:g} s"
