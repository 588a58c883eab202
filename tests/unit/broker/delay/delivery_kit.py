"""A delivery of delayed messages on a real store with simulated files and time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketpy.broker.delay.delivery import DelayDelivery
from rocketpy.broker.delay.offsets import DelayOffsets
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.store.config import parse_delay_levels
from rocketpy.store.files.json_file import JsonFile
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.store.store_kit import Kit as StoreKit

LEVELS = "1s 5s 10s"
PATH = Path("/store/config/delayOffset.json")


class _PickyStore:
    """A store that may refuse puts."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.refusal: Callable[[PutMessage], PutMessageStatus | None] = lambda _message: None
        self.when_durable = store.when_durable

    def put_message(self, message: PutMessage) -> PutMessageResult:
        status = self.refusal(message)
        return self.store.put_message(message) if status is None else PutMessageResult(status)


class Kit:
    def __init__(self, **config: Any) -> None:
        self.disk = StoreKit(message_delay_level=LEVELS, **config)
        self.clock = self.disk.clock
        self.deleted: set[str] = set()
        self.queues = 4
        self.start()

    def start(self) -> None:
        """Open the directory as a broker does that starts."""
        self.store = self.disk.open()
        self.picky = _PickyStore(self.store)
        delays_ms = parse_delay_levels(self.disk.config.message_delay_level)
        self.postponement = MessageScheduler(delays_ms, self.clock)
        self.offsets = DelayOffsets(
            JsonFile(PATH, self.disk.files),
            self.clock,
            interval_ms=10_000,
            version_step=200,
            kept_phy_offset=lambda: self.store.flushed_phy_offset,
            flush_log=self.store.flush_log,
        )
        self.offsets.load()
        put = SystemWriter(self.picky, lambda _topic, _count, _size: None)
        self.delivery = DelayDelivery(
            self.store,
            put,
            self.offsets,
            PutRetry(put, self.postponement.delay, delays_ms),
            delays_ms=delays_ms,
            queue_of=self.queue_of,
            topic_of=lambda _topic: None,
            clock=self.clock,
        )
        self.wakes = 0
        self.delivery.use_wake(self.woken)
        self.store.on_arrival = self.arrived

    def woken(self) -> None:
        self.wakes += 1

    def arrived(self, topic: str, queue_id: int, _next_offset: int, _tags_code: int) -> None:
        if topic == SCHEDULE_TOPIC:
            self.delivery.on_arrival(queue_id)

    def step(self) -> int:
        """Run one step; when the next one is due, from now."""
        now_ms = self.clock.monotonic_ms()
        return self.delivery.step(now_ms) - now_ms

    def queue_of(self, topic: str, queue_id: int) -> int | None:
        return None if topic in self.deleted else queue_id % self.queues

    def stop(self) -> None:
        self.offsets.persist()
        self.store.close()

    def send(self, body: bytes, level: int, topic: str = "T", **changes: Any) -> None:
        properties = {"DELAY": str(level), "TAGS": "a", "UNIQ_KEY": "U"}
        message = PutMessage(
            topic,
            2,
            body,
            encode_properties(properties),
            uniq_key="U",
            tags="a",
            tags_code=tags_code("a"),
            **changes,
        )
        assert self.postponement.postpone(message) is None
        assert self.store.put_message(message).status is PutMessageStatus.PUT_OK

    def run(self, elapsed_ms: int) -> None:
        """Let time pass; the service runs when it wants to."""
        end_ms = self.clock.monotonic_ms() + elapsed_ms
        while True:
            next_ms = self.delivery.step(self.clock.monotonic_ms())
            if next_ms > end_ms:
                break
            self.clock.advance(max(0, next_ms - self.clock.monotonic_ms()))
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    def delivered(self, topic: str = "T") -> list[MessageExt]:
        found: list[MessageExt] = []
        while len(found) < self.store.max_offset(topic, 2):
            records = self.store.get_message(topic, 2, len(found), 32, 1 << 20).buffers
            found += [decode_message(each) for each in records]
        return found

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.delivered()]
