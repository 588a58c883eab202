"""A put takes what it needs, or is refused alone; only a failed flush stops the store."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import BatchColumns, BatchEntry, PutBatch, PutMessageStatus
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies, message, put_many

SHORT = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
SHORTAGES = [
    OSError(errno.EMFILE, "too many open files"),
    OSError(errno.ENFILE, "too many open files in the system"),
    OSError(errno.ENOMEM, "cannot allocate memory"),
    OSError(errno.ENOSPC, "no space left on device"),
    OSError(errno.EIO, "input/output error"),
    FileExistsError(errno.EEXIST, "file exists"),
    DiskFullError("no space"),
    ResourceShortError("no descriptor"),
]


def failing(error: Exception) -> Callable[..., object]:
    def fail(*_arguments: object, **_more: object) -> object:
        raise error

    return fail


def fill_to_the_roll(store: MessageStore) -> list[bytes]:
    """Put until the next message needs a new file of the log."""
    sent: list[bytes] = []
    while store.max_phy_offset % 16384 < 16384 - 300:
        sent += put_many(store, 1, len(sent))
    return sent


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda each: type(each).__name__ + str(each)[:9])
@pytest.mark.parametrize("as_batch", [False, True])
def test_roll_without_a_resource_refuses_that_put_and_the_next_one_works(
    error: Exception, as_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit()
    store = kit.open()
    sent = fill_to_the_roll(store)
    end, offset = store.max_phy_offset, store.max_offset(TOPIC, 0)

    def put() -> PutMessageStatus:
        if as_batch:
            return store.put_batch(
                PutBatch(TOPIC, 0, BatchColumns.of([BatchEntry(bytes(400))]))
            ).status
        return store.put_message(message(bytes(400))).status

    with monkeypatch.context() as patch:
        patch.setattr(kit.files, "create", failing(error))
        assert put() is SHORT
        assert put() is SHORT
    assert store.is_writable
    assert (store.max_phy_offset, store.max_offset(TOPIC, 0)) == (end, offset)
    assert put() is OK
    assert bodies(store) == [*sent, bytes(400)]


@pytest.mark.parametrize("error", SHORTAGES[:2], ids=lambda each: str(each)[:9])
def test_queue_that_cannot_reserve_refuses_that_put(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 1)
    queue = store._table.get(TOPIC, 0)
    assert queue is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(queue), "reserve", failing(error))
        assert store.put_message(message(b"new queue", queue_id=7)).status is SHORT
    assert store.is_writable
    result = store.put_message(message(b"new queue", queue_id=7))
    assert (result.status, result.queue_offset) == (OK, 0)


@pytest.mark.parametrize("is_new_log", [False, True])
def test_shortage_lasts_until_the_log_finds_the_resource_again(is_new_log: bool) -> None:
    kit = Kit()
    store = kit.open()
    if not is_new_log:
        fill_to_the_roll(store)
    kit.files.capacity_bytes = 0
    assert store.shortage is None
    assert store.put_message(message(bytes(400))).status is SHORT
    for _ in range(3):
        kit.step(store, "AllocateService")
        assert store.shortage == "no space is left on the disk"
    kit.files.capacity_bytes = None
    kit.step(store, "AllocateService")
    kit.step(store, "AllocateService")
    assert store.shortage is None, "without a put"
    assert store.put_message(message(bytes(400))).status is OK


def test_shortage_of_a_queue_lasts_while_puts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 1)
    queue = store._table.get(TOPIC, 0)
    with monkeypatch.context() as patch:
        patch.setattr(type(queue), "reserve", failing(SHORTAGES[0]))
        for _ in range(3):
            assert store.put_message(message(b"new queue", queue_id=7)).status is SHORT
            kit.step(store, "AllocateService")
            assert "no file descriptor is left" in (store.shortage or "")
    kit.step(store, "AllocateService")
    assert store.shortage is None


def test_shortage_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit()
    store = kit.open()
    fill_to_the_roll(store)
    kit.files.capacity_bytes = 0
    for _ in range(5):
        assert store.put_message(message(bytes(400))).status is SHORT
    assert caplog.text.count("no space, messages rejected") == 1
    kit.clock.advance(10_000)
    store.put_message(message(bytes(400)))
    assert caplog.text.count("no space, messages rejected") == 2


def test_long_append_makes_store_busy_regardless_of_wall_clock() -> None:
    kit = Kit()
    assert kit.config.os_page_cache_busy_time_out_mills == 1_000
    kit.clock.advance(5_000)
    store = kit.open()
    real = store._writer._log.append
    seen: list[tuple[int, PutMessageStatus]] = []

    def slow(*arguments: Any) -> int:
        kit.clock.jump(3_600_000)
        assert store.lock_time_ms == 0
        kit.clock.advance(1_001)
        seen.append((store.lock_time_ms, store._writer.put(message(b"other")).status))
        return real(*arguments)

    store._log.append = slow  # type: ignore[method-assign, assignment]
    assert store.put_message(message(b"slow")).status is OK
    assert seen == [(1_001, PutMessageStatus.OS_PAGE_CACHE_BUSY)]
    assert store.lock_time_ms == 0


def test_hanging_append_limits_wait_of_other_appends() -> None:
    """Sends run on the loop of their connections: all others would wait with them."""
    kit = Kit(os_page_cache_busy_time_out_mills=30)
    kit.clock.advance(5_000)
    store = kit.open()
    hangs, goes_on = threading.Event(), threading.Event()
    real = store._writer._log.append

    def hang(*arguments: Any) -> int:
        hangs.set()
        assert goes_on.wait(20)
        return real(*arguments)

    store._log.append = hang  # type: ignore[method-assign, assignment]
    results: list[PutMessageStatus] = []
    thread = threading.Thread(
        target=lambda: results.append(store.put_message(message(b"slow")).status)
    )
    thread.start()
    assert hangs.wait(20)
    assert store.put_message(message(b"other")).status is PutMessageStatus.OS_PAGE_CACHE_BUSY
    batch = PutBatch(TOPIC, 0, BatchColumns.of([BatchEntry(b"batch")]))
    assert store.put_batch(batch).status is PutMessageStatus.OS_PAGE_CACHE_BUSY
    goes_on.set()
    thread.join(20)
    assert results == [OK]
    assert store.put_message(message(b"after")).status is OK


def test_put_counts_what_it_stored_and_what_failed() -> None:
    kit = Kit()
    store = kit.open()
    sizes = [store.put_message(message(b"x" * size)).size_bytes for size in (1, 50)]
    result = store.put_batch(
        PutBatch(TOPIC, 0, BatchColumns.of([BatchEntry(b"a"), BatchEntry(b"b")]))
    )
    store.put_message(message(b"", queue_id=-1))
    stats = store._stats
    assert (stats.put_count, stats.put_failed_count) == (4, 1)
    assert stats.put_bytes == sum(sizes) + result.size_bytes


def test_dispatcher_that_fails_costs_one_message_one_entry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for mode in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        kit = Kit(flush_disk_type=mode)
        store = kit.open()
        assert store._index is not None
        real = store._index.put
        calls: list[int] = []

        def put(*arguments: object, real: object = real, calls: list[int] = calls) -> None:
            calls.append(1)
            if len(calls) == 2:
                raise OSError(errno.EIO, "index")
            real(*arguments)  # type: ignore[operator]

        for dispatcher in store._parts.dispatcher_list:
            if hasattr(dispatcher, "_put"):
                monkeypatch.setattr(dispatcher, "_put", put)
        sent = put_many(store, 4)
        if mode == "SYNC_FLUSH":
            kit.step(store, "GroupCommitService")
        assert bodies(store) == sent
        found = store.query_index(TOPIC, "k", 32, 0, 1 << 60).phy_offsets
        assert len(found) == 3
        assert store.dispatch_behind_bytes == 0
    assert caplog.text.count("dispatch failed") == 2


def test_store_files_are_where_the_configuration_says(tmp_path: Path) -> None:
    kit = Kit(store_path_commit_log=str(tmp_path / "log"))
    store = kit.open()
    put_many(store, 1)
    assert kit.files.list_files(tmp_path / "log")


def test_failing_listener_does_not_affect_stored_message() -> None:
    """Its sender would send it again, and it would be there twice."""
    store = Kit().open()

    def fail(*_arrival: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    store.on_arrival = fail
    assert store.put_message(message(b"one")).status is OK
    entries = [BatchEntry(b"two"), BatchEntry(b"three")]
    assert store.put_batch(PutBatch(TOPIC, 0, BatchColumns.of(entries))).status is OK
    assert bodies(store) == [b"one", b"two", b"three"]
