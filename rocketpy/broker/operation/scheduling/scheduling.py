"""Messages that are to be delivered later: they wait in a topic of the system.

A message with a delay level waits in SCHEDULE_TOPIC_XXXX, in the queue of its level; a message with
a moment (TIMER_*) in rmq_sys_wheel_timer, and in TIMER_OUT_MS stands from when on it is due. Where
it belongs stands in REAL_TOPIC and REAL_QID; the other properties stay as they are. A level counts
before a moment. A half message waits from its commit on.

Whoever stores a message of the broker's own making (a retry, a decided transaction) asks
`MessageScheduler.postpone` before the put, as a send does.

Source: HookUtils.handleScheduleMessage, transformDelayLevelMessage, transformTimerMessage (5.4.0).

How many recalls wait in each slot of the timer: their ids are in memory while it is delivered.

What calls a message back is a timed message itself, which anybody may send: RECALL_MESSAGE (370)
stores one, and a send with TIMER_DEL_UNIQKEY is one. So they are counted where both come by.
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
"""What the ids of one slot take: 10 MB (`rocketpy.broker.timer.slot_reader`)."""
MAX_COUNTED_SLOTS: Final = 10_000


class RecallCounts:
    """How many recalls this process took for each slot of the timer; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()

    def take(self, slot: int, slot_now: int) -> bool:
        """Count one more; False when there are too many."""
        with self._lock:
            if self._counts[slot] >= MAX_RECALLS_PER_SLOT:
                return False
            self._counts[slot] += 1
            if len(self._counts) > MAX_COUNTED_SLOTS:
                ahead = {key: n for key, n in self._counts.items() if key >= slot_now}
                most = heapq.nlargest(MAX_COUNTED_SLOTS // 2, ahead, key=ahead.__getitem__)
                self._counts = Counter({key: ahead[key] for key in most})
            return True


TIMER_PROPERTIES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
"""What asks for a time of delivery; the first one that is there counts."""
_TOO_MANY_RECALLS: Final = Refusal(
    ResponseCode.SYSTEM_BUSY, "recall failed, too many messages of that second are called back"
)
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT_MAX: Final = (1 << 31) - 1


def delay_level(properties: Mapping[str, str]) -> int | Refusal:
    """Return the delay level that properties ask for, 0 for none, or why it is none.

    Args:
        properties: of one message.
    """
    text = properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if text is None:
        return 0
    if _DECIMAL.fullmatch(text) is None or not ~_INT_MAX <= int(text) <= _INT_MAX:
        remark = f"property DELAY is not a decimal integer: {text[:32]!r}"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return max(0, int(text))


def refuse_later_in_batch(properties: Mapping[str, str]) -> Refusal | None:
    """Refuse a batch, or a message of one, that is to be delivered later.

    Args:
        properties: of the batch, or of one of its messages.
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
    """What timed messages may ask for.

    Attributes:
        is_enabled: whether there are any.
        precision_ms: time of one slot of the timer wheel.
        max_delay_ms: how far away a moment may be.
    """

    is_enabled: bool = True
    precision_ms: int = 1_000
    max_delay_ms: int = 259_200_000


class MessageScheduler:
    """Sends messages that are to be delivered later to where they wait; safe from any thread.

    Args:
        delays_ms: the delays, level 1 first.
        clock: time.
        timers: what timed messages may ask for.
    """

    def __init__(
        self, delays_ms: tuple[int, ...], clock: Clock, timers: TimerLimits | None = None
    ) -> None:
        self.timers: TimerLimits = timers or TimerLimits()
        self._max_level = len(delays_ms)
        self._clock = clock
        self._recalls = RecallCounts()

    def postpone(self, message: PutMessage) -> Refusal | None:
        """Change a message, in place, when its properties ask for a later delivery.

        Only for messages outside of a transaction and for committed ones: a half message is not
        delivered anyway.

        Args:
            message: about to be stored; its ``properties`` say whether and how long it waits.

        Returns:
            Why it cannot be stored like this; None when it can.
        """
        if (
            message.sys_flag & TRANSACTION_MASK not in {0, TRANSACTION_COMMIT}
            or message.topic == TRANS_HALF_TOPIC
        ):
            return None
        encoded = message.properties
        if b"DELAY" not in encoded and b"TIMER_DELIVER_MS" not in encoded:
            return None  # nothing to parse them for: none of the four names is there
        properties = parse_properties(encoded)
        level = delay_level(properties)
        if isinstance(level, Refusal):
            return level
        if level:
            self.delay(message, properties, level)
            return None
        if message.topic == TIMER_TOPIC or PROPERTY_TIMER_OUT_MS in properties:
            return None  # it waited before
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
        """Say why a message with these properties could not be delivered later.

        A half message is asked about when it is sent: when it is committed would be too late.

        Args:
            properties: of the message.
        """
        level = delay_level(properties)
        if isinstance(level, Refusal):
            return level
        slot = 0 if level else self._slot(properties)
        return slot if isinstance(slot, Refusal) else None

    def _slot(self, properties: Mapping[str, str]) -> int | Refusal:
        """Start of the slot that properties ask for, ms; 0 when they ask for none."""
        if not any(name in properties for name in TIMER_PROPERTIES):
            return 0
        timers = self.timers
        if not timers.is_enabled:
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        now_ms = self._clock.time_ms()
        deliver_ms = requested_ms(properties, now_ms)
        if deliver_ms is None or deliver_ms - now_ms > timers.max_delay_ms:
            return self._illegal()
        if deliver_ms <= now_ms:
            return self._illegal() if PROPERTY_TIMER_DEL_UNIQKEY in properties else 0
        return slot_ms(deliver_ms, timers.precision_ms)

    def _takes_recall(self, slot: int) -> bool:
        precision_ms = self.timers.precision_ms
        return self._recalls.take(slot // precision_ms, self._clock.time_ms() // precision_ms)

    def _illegal(self) -> Refusal:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self.timers.max_delay_ms}ms; or if set del msg, the delay time should be bigger "
            "than the current time",
        )

    def delay(self, message: PutMessage, properties: dict[str, str], level: int) -> None:
        """Let a message wait for a delay level, in place.

        Args:
            message: about to be stored.
            properties: its properties; both these and the message's own are changed.
            level: from 1; levels above the last one count as the last.
        """
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
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
            return self.refusal(properties)  # a half message: it waits once it is committed
        return self.postpone(message)


def _store_in(message: PutMessage, properties: dict[str, str], topic: str, queue_id: int) -> None:
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    message.properties = encode_properties(properties)
    message.topic, message.queue_id = topic, queue_id
