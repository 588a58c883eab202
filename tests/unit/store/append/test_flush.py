"""Flush services: when bytes reach the disk, and which waiters are answered."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.store.append import flush
from rocketpy.store.append.flush import (
    FlushConsumeQueueService,
    FlushDeadlineService,
    FlushRealTimeService,
    GroupCommitService,
    LogFlusher,
)
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import ReadOnlyLatch
from tests.unit.store.store_kit import Kit, message


class FakeLog:
    """A log of numbers: what the disk says, and what happens meanwhile."""

    def __init__(self, offsets: StoreOffsets) -> None:
        self._offsets = offsets
        self.flushes = 0
        self.error: OSError | None = None
        self.meanwhile: Callable[[], object] = lambda: None

    def append(self, size: int, now_ms: int) -> int:
        self._offsets.appended += size
        self._offsets.appended_ms = now_ms
        return self._offsets.appended

    def flush(self) -> int:
        self.flushes += 1
        end = self._offsets.appended
        self.meanwhile()
        if self.error is not None:
            raise self.error
        return end


class Bench:
    def __init__(self) -> None:
        kit = Kit()
        self.offsets = StoreOffsets(asks_flush=True)
        self.log = FakeLog(self.offsets)
        self.latch = ReadOnlyLatch()
        self.latch.add_listener(self.offsets.fail)
        self.checkpoint = Checkpoint(Path("/store/checkpoint"), kit.files)
        self.flushed: list[int] = []
        self.offsets.on_visible = self.flushed.append
        self.flusher = LogFlusher(
            self.log,  # type: ignore[arg-type]
            self.offsets,
            self.checkpoint,
            self.latch,
        )
        self.group = GroupCommitService(self.flusher, self.offsets)
        self.responses: list[tuple[str, bool]] = []

    def wait(self, name: str, phy_end: int, deadline_ms: int = 1_000) -> None:
        self.offsets.wait_for(phy_end, deadline_ms, lambda ok: self.responses.append((name, ok)))


def test_flush_moves_the_stamp_to_what_was_there_before_it() -> None:
    bench = Bench()
    bench.log.append(10, now_ms=5)
    bench.log.meanwhile = lambda: bench.log.append(1, now_ms=9)
    assert bench.flusher.flush()
    assert bench.flushed == [10]
    assert bench.checkpoint.physic_ms == 5


def test_first_failed_flush_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.wait("early", bench.log.append(10, now_ms=5))
    bench.log.error = OSError(5, "input/output error")
    bench.group.step(0)
    assert bench.responses == [("early", False)]
    bench.log.error = None
    assert not bench.flusher.flush()
    bench.wait("late", 10)
    assert bench.responses[1:] == [("late", False)]
    assert bench.log.flushes == 1
    assert bench.checkpoint.physic_ms == 0
    assert "input/output" in (bench.latch.reason or "")
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_flush_answers_all_earlier_waiters() -> None:
    bench = Bench()
    wakes: list[int] = []
    bench.group.wake = lambda: wakes.append(1)
    for name in "ab":
        bench.wait(name, bench.log.append(10, now_ms=1))
    bench.log.meanwhile = lambda: bench.wait("c", bench.log.append(10, now_ms=2))
    assert bench.group.step(0) == 0  # somebody asked during the flush: again at once
    assert bench.responses == [("a", True), ("b", True)]
    bench.log.meanwhile = lambda: None
    assert bench.group.step(0) > 0
    assert bench.responses[2:] == [("c", True)]
    assert bench.log.flushes == 2
    assert len(wakes) == 2  # the second of a and b found it asked for already


def test_wait_for_flushed_offset_is_answered_at_once() -> None:
    bench = Bench()
    end = bench.log.append(10, now_ms=1)
    bench.flusher.flush()
    bench.wait("a", end)
    assert bench.responses == [("a", True)]


def test_flush_that_hangs_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    bench.wait("a", bench.log.append(10, now_ms=1), deadline_ms=100)
    bench.wait("b", bench.log.append(10, now_ms=1), deadline_ms=200)
    deadline = FlushDeadlineService(bench.offsets)
    assert deadline.step(99) == 199
    assert bench.responses == []
    deadline.step(100)
    assert bench.responses == [("a", False)]
    bench.group.step(150)
    assert bench.responses == [("a", False), ("b", True)]


def test_async_flush_waits_for_pages_or_time() -> None:
    bench = Bench()
    config = MessageStoreConfig(
        flush_commit_log_least_pages=4, flush_commit_log_thorough_interval=10_000
    )
    service = FlushRealTimeService(bench.flusher, config)
    assert service.step(0) == 500
    bench.log.append(4 * 4096 - 1, now_ms=1)
    service.step(500)
    assert bench.log.flushes == 0
    bench.log.append(1, now_ms=1)
    service.step(1_000)
    assert bench.log.flushes == 1
    bench.log.append(1, now_ms=1)
    service.step(10_999)
    assert bench.log.flushes == 1
    service.step(11_000)
    assert bench.log.flushes == 2
    service.step(30_000)  # nothing is dirty
    assert bench.log.flushes == 2


class Queues:
    """Runs the service of a real store on simulated files."""

    def __init__(self) -> None:
        self.kit = Kit(flush_consume_queue_thorough_interval=60_000)
        self.store = self.kit.open()
        self.checkpoint = self.store._parts.checkpoint
        self.step()

    def step(self) -> None:
        self.kit.step(self.store, FlushConsumeQueueService.name)

    def put(self, count: int) -> int:
        for number in range(count):
            self.store.put_message(message(b"%d" % number))
        return self.kit.clock.time_ms()


def test_queues_are_flushed_thoroughly_after_the_interval() -> None:
    queues = Queues()
    before_ms = queues.checkpoint.logics_ms
    stamp_ms = queues.put(3)
    queues.kit.clock.advance(59_999)
    queues.step()
    assert queues.checkpoint.logics_ms == before_ms
    queues.kit.clock.advance(1)
    queues.step()
    assert queues.checkpoint.logics_ms == stamp_ms
    assert queues.store._table.dirty_bytes == 0


def test_queues_are_flushed_thoroughly_when_much_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flush, "_MUCH_DIRTY_BYTES", 60)
    queues = Queues()
    before_ms = queues.checkpoint.logics_ms
    queues.put(2)
    queues.step()
    assert queues.checkpoint.logics_ms == before_ms
    stamp_ms = queues.put(1)
    queues.step()
    assert queues.checkpoint.logics_ms == stamp_ms


def test_queues_are_looked_at_more_often_while_much_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flush, "_MUCH_DIRTY_BYTES", 60)
    queues = Queues()
    service = next(
        each for each in queues.store.services if each.name == FlushConsumeQueueService.name
    )
    assert service.step(5_000) == 6_000
    queues.put(3)
    assert service.step(6_000) == 6_250
    assert service.step(6_250) == 7_250


def test_queue_that_cannot_be_flushed_makes_the_store_read_only() -> None:
    queues = Queues()
    queues.put(1)
    queues.kit.files.fail_flushes("consumequeue")
    queues.kit.clock.advance(60_000)
    queues.step()
    assert not queues.store.is_writable
    assert "consume queues" in (queues.store.read_only_reason or "")


def test_queues_are_flushed_thoroughly_when_much_of_the_log_is_not_covered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A few large messages have few entries; readers of the files would be far behind."""
    monkeypatch.setattr(flush, "_MUCH_LOG_BYTES", 10_000)
    queues = Queues()
    queues.store.put_message(message(b"x" * 6_000))
    queues.step()
    assert queues.store._table.dirty_bytes > 0
    queues.store.put_message(message(b"x" * 6_000))
    queues.step()
    assert queues.store._table.dirty_bytes == 0
    assert queues.checkpoint.queues_phy_offset == queues.store.max_phy_offset
