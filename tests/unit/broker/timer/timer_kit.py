"""A store with a timer, on simulated files and time."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler, TimerLimits
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.timer.flush import TimerFlush
from rocketpy.broker.timer.service import TimerService
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.topic_names import TIMER_TOPIC
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.store.timer.state import TimerState
from tests.unit.broker.fakes import MemoryFile
from tests.unit.store.store_kit import Kit as StoreKit

QUEUE = 2


class PickyStore:
    """A store that may refuse puts."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.refusal: Callable[[PutMessage], PutMessageStatus | None] = lambda _message: None
        self.when_durable = store.when_durable

    def put_message(self, message: PutMessage) -> PutMessageResult:
        status = self.refusal(message)
        return self.store.put_message(message) if status is None else PutMessageResult(status)


class Kit:
    """Store directory that `start` opens like a broker."""

    def __init__(self, *, window: int = 172_800, log_file_bytes: int = 4096, **config: Any) -> None:
        self.disk = StoreKit(
            **{"mapped_file_size_commit_log": 65_536, "mapped_file_size_consume_queue": 20_000}
            | config
        )
        self.clock, self.files = self.disk.clock, self.disk.files
        self.window, self.log_file_bytes = window, log_file_bytes
        self.deleted: set[str] = set()
        self.queues = 4
        self.counts_file = MemoryFile()
        self.precision_ms = 1_000
        self.count = 0
        self.start()

    def start(self) -> None:
        self.open()
        self.timer.load()
        self._flush_ms = self.clock.monotonic_ms()

    def open(self) -> None:
        """Open the store, and build a timer that has loaded nothing."""
        self.store = self.disk.open()
        self.picky = PickyStore(self.store)
        put = SystemWriter(self.picky, lambda _topic, _count, _size: None)
        self.postponement = MessageScheduler(
            (1_000,), self.clock, TimerLimits(precision_ms=self.precision_ms)
        )
        self.state = TimerState(
            Path("/store"),
            precision_ms=self.precision_ms,
            log_file_bytes=self.log_file_bytes,
            files=self.files,
            clock=self.clock,
        )
        self.counts = PendingCounts(
            "TimerCounts",
            "timingCount",
            self.counts_file,
            topic_exists=lambda topic: topic not in self.deleted,
            clock=self.clock,
        )
        self.timer = TimerService(
            self.store,
            put,
            self.state,
            PutRetry(put, self.postponement.delay, (1_000,)),
            roll_window_slots=self.window,
            queue_of=self.queue_of,
            counts=self.counts,
            clock=self.clock,
        )
        self.wakes = 0
        self.timer.use_wake(self.woken)
        self.store.on_arrival = self.arrived
        self.flush = TimerFlush(self.timer, self.state, self.store, 1_000)

    def woken(self) -> None:
        self.wakes += 1

    def arrived(self, topic: str, queue_id: int, _next_offset: int, _tags_code: int) -> None:
        if topic == TIMER_TOPIC:
            self.timer.on_arrival(queue_id)

    def queue_of(self, topic: str, queue_id: int) -> int | None:
        return None if topic in self.deleted else queue_id % self.queues

    def stop(self) -> None:
        """End cleanly."""
        self.timer.persist()
        self.store.close()

    def kill(self) -> None:
        """End the process; what was written stays."""
        self.files.kill()
        self.files.start_process()

    def send(self, body: bytes, topic: str = "T", **properties: str) -> int:
        """Send a timed message; return the phy offset."""
        self.count += 1
        given = {"UNIQ_KEY": f"U{self.count}", **properties}
        message = PutMessage(topic, QUEUE, body, encode_properties(given))
        refused = self.postponement.postpone(message)
        assert refused is None, refused
        result = self.store.put_message(message)
        assert result.status is PutMessageStatus.PUT_OK
        return result.phy_offset

    def refused(self, **properties: str) -> Refusal | None:
        message = PutMessage("T", QUEUE, b"x", encode_properties(properties))
        return self.postponement.postpone(message)

    def at(self, later_ms: int) -> dict[str, str]:
        """Properties of a message that is due so much later."""
        return {"TIMER_DELIVER_MS": str(self.clock.time_ms() + later_ms)}

    def recall(self, key: str, later_ms: int) -> None:
        self.send(b"0", TIMER_DEL_UNIQKEY=key, **self.at(later_ms))

    def step(self) -> int:
        now_ms = self.clock.monotonic_ms()
        if now_ms >= self._flush_ms:
            self._flush_ms = self.flush.step(now_ms)
        return self.timer.step(now_ms)

    def run(self, elapsed_ms: int) -> None:
        """Let time pass; the services run when they want to."""
        end_ms = self.clock.monotonic_ms() + elapsed_ms
        while True:
            next_ms = self.step()
            if next_ms > end_ms:
                break
            self.clock.advance(max(0, next_ms - self.clock.monotonic_ms()))
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    def delivered(self, topic: str = "T", queue_id: int = QUEUE) -> list[MessageExt]:
        found: list[MessageExt] = []
        while len(found) < self.store.max_offset(topic, queue_id):
            records = self.store.get_message(topic, queue_id, len(found), 32, 1 << 20).buffers
            found += [decode_message(each) for each in records]
        return found

    def bodies(self, topic: str = "T") -> list[bytes]:
        return [each.body for each in self.delivered(topic)]

    def replace_config(self, **changes: Any) -> None:
        self.disk.config = dataclasses.replace(self.disk.config, **changes)
