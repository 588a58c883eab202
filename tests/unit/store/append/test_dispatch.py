"""Dispatchers receive each visible message once, in the order of the log."""

import threading
from typing import Any

from rocketpy.proto.record.record_check import RecordCheck, RecordState
from rocketpy.store.append.dispatch import (
    DispatcherList,
    DispatchRequest,
    DispatchRun,
    EncodedRun,
    read_back,
)
from rocketpy.store.results import BatchColumns, BatchEntry
from rocketpy.store.store_offsets import StoreOffsets


class Queue:
    """Part of a queue that dispatch uses."""

    def __init__(self) -> None:
        self.queue_id = 3
        self.is_deleted = False


class Recorder:
    """Dispatcher that records its calls."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.fails_at = -1

    def dispatch(self, request: DispatchRequest) -> None:
        if request.phy_offset == self.fails_at:
            raise AssertionError("unexpected error")
        self.told.append(request.phy_offset)

    def dispatch_run(self, run: DispatchRun) -> None:
        self.told += run.phy_offsets

    def dispatch_encoded(self, run: EncodedRun) -> None:
        self.told += [queue_offset for _, queue_offset, _, _ in run.places]


class Bench:
    def __init__(self, *, asks_flush: bool) -> None:
        self.offsets = StoreOffsets(asks_flush=asks_flush)
        self.lock = threading.Lock()
        self.dispatchers = [Recorder(), Recorder()]
        self.list = DispatcherList(self.dispatchers, self.offsets, self.lock)
        self.offsets.on_visible = self.list.release
        self.queue: Any = Queue()
        self.arrivals: list[tuple[str, int, int, int]] = []
        self.list.on_arrival = lambda *each: self.arrivals.append(each)

    def append(self, size: int = 10) -> bool:
        at = self.offsets.appended
        self.offsets.appended = at + size
        with self.lock:
            return self.list.submit(
                DispatchRequest(self.queue, "T", 3, at, at, size, 7, at, 0, None, None, None)
            )

    def append_run(self, count: int) -> bool:
        at = self.offsets.appended
        self.offsets.appended = at + 10 * count
        places = [at + 10 * each for each in range(count)]
        entries = [BatchEntry(b"", tags_code=each) for each in range(count)]
        run = DispatchRun(
            self.queue, "T", at, places, [10] * count, BatchColumns.of(entries), at, 0
        )
        with self.lock:
            return self.list.submit(run)

    @property
    def told(self) -> list[int]:
        first, second = self.dispatchers
        assert first.told == second.told
        return first.told


def test_visible_message_is_dispatched_at_once() -> None:
    bench = Bench(asks_flush=False)
    assert bench.append()
    assert bench.append_run(2)
    assert bench.told == [0, 10, 20]
    assert bench.offsets.dispatched == bench.offsets.appended == 30
    assert bench.arrivals == []  # the sender announces it, without the lock


def test_invisible_messages_are_dispatched_later_in_order() -> None:
    bench = Bench(asks_flush=True)
    assert not bench.append()
    assert not bench.append_run(2)
    assert not bench.append()
    assert (bench.told, bench.list.pending_count) == ([], 3)
    bench.offsets.flush_reached(25)  # within the batch
    assert (bench.told, bench.offsets.dispatched) == ([0], 10)
    bench.offsets.flush_reached(40)
    assert (bench.told, bench.offsets.dispatched) == ([0, 10, 20, 30], 40)
    assert bench.arrivals[0] == ("T", 3, 1, 7)
    assert len(bench.arrivals) == 4


def test_dispatch_never_overtakes_waiting_messages() -> None:
    bench = Bench(asks_flush=True)
    bench.append()
    bench.offsets.flushed = 1_000  # flushed, but not released yet
    assert not bench.append()
    bench.offsets.flush_reached(1_000)
    assert bench.told == [0, 10]


def test_message_of_deleted_queue_calls_no_listener() -> None:
    bench = Bench(asks_flush=True)
    bench.append()
    bench.queue.is_deleted = True
    bench.offsets.flush_reached(10)
    assert bench.arrivals == []


def test_one_failure_costs_one_message() -> None:
    for asks_flush in (False, True):
        bench = Bench(asks_flush=asks_flush)
        bench.dispatchers[0].fails_at = 10
        for _ in range(3):
            bench.append()
        bench.offsets.flush_reached(30)
        assert bench.dispatchers[0].told == [0, 20]
        assert bench.offsets.dispatched == 30


def test_failing_listener_is_called_for_later_messages() -> None:
    bench = Bench(asks_flush=True)

    def fail(*arrival: Any) -> None:
        bench.arrivals.append(arrival)
        raise OSError("listener failed")

    bench.list.on_arrival = fail
    for _ in range(3):
        bench.append()
    bench.offsets.flush_reached(30)
    assert len(bench.arrivals) == 3
    assert bench.offsets.dispatched == 30


def test_record_of_the_log_makes_the_same_request() -> None:
    properties = b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02TAGS\x01t\x02"
    found = RecordCheck(RecordState.RECORD, 99, 2, 5, 0, 1_000, b"T", properties)
    expected = DispatchRequest(None, "T", 2, 5, 400, 99, 116, 1_000, 0, "u", "a b", "t")
    assert read_back(found, 400, ()) == expected
    delayed = found._replace(topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x012\x02")
    request = read_back(delayed, 400, (1_000, 5_000))
    assert request is not None
    assert request.tags_code == 6_000
    assert read_back(found._replace(topic=b"\xff"), 400, ()) is None
