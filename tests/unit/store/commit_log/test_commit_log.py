import random
import struct
import zlib
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, StoreFormatError
from rocketpy.proto.record.record import topic_field
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.commit_log import commit_log
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.commit_log.prefetch import AllocateService
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.results import PutMessage
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import ReadOnlyLatch, WriteGate
from rocketpy.testing.sim_files import SimFiles

FILE_BYTES = 64 << 10
TOPIC_FIELD = topic_field("T")
HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
EMPTY_RECORD_BYTES = 90 + len(TOPIC_FIELD)


def log_on(files: SimFiles, file_bytes: int = FILE_BYTES) -> CommitLog:
    config = MessageStoreConfig(
        store_path_root_dir="/store", mapped_file_size_commit_log=file_bytes
    )
    log = CommitLog(config, files, StoreOffsets())
    log.load()
    return log


def append(log: CommitLog, size_bytes: int = 200, now_ms: int = 7) -> int:
    body = bytes(size_bytes - EMPTY_RECORD_BYTES)
    message = PutMessage("T", 3, body, born_host=HOST)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    return log.append(message, size_bytes, crc, 5, 0, now_ms, HOST, TOPIC_FIELD)


def test_records_lie_one_after_the_other() -> None:
    log = log_on(SimFiles())
    assert [append(log) for _ in range(3)] == [0, 200, 400]
    assert (log.min_phy_offset, log.max_phy_offset) == (0, 600)
    found = log.check(200)
    assert found is not None
    assert (found.state, found.size_bytes, found.queue_id) == (RecordState.RECORD, 200, 3)
    assert log.store_time_ms(200, 200) == 7
    assert log.record(400, 201) is None  # nothing was written there yet
    assert log.record(1 << 40, 10) is None
    assert [offset for offset, _ in log.scan(0, 600)] == [0, 200, 400]


def test_record_that_does_not_fit_begins_the_next_file() -> None:
    files = SimFiles()
    log = log_on(files)
    size = FILE_BYTES // 2
    assert [append(log, size), append(log, size)] == [0, FILE_BYTES]
    blank = log.check(size)
    assert blank is not None
    assert (blank.state, blank.size_bytes) == (RecordState.BLANK, FILE_BYTES - size)
    assert files.list_files(Path("/store/commitlog")) == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert [offset for offset, _ in log.scan(0, log.max_phy_offset)] == [0, FILE_BYTES]
    assert log.next_file_offset(size) == FILE_BYTES


def test_eight_bytes_stay_free_for_the_blank() -> None:
    log = log_on(SimFiles())
    append(log, FILE_BYTES - 8)
    assert append(log) == FILE_BYTES
    with pytest.raises(StoreFormatError, match="do not fit"):
        log.reserve(FILE_BYTES - 7)


def test_record_is_looked_up_only_where_it_begins() -> None:
    log = log_on(SimFiles())
    append(log)
    append(log)
    record = log.intact_record(200, 400)
    assert record is not None
    assert len(record) == 200
    for offset, end in ((201, 400), (200, 399), (400, 400), (-1, 400), (1 << 50, 1 << 60)):
        assert log.intact_record(offset, end) is None


def test_flush_responses_for_what_was_there_when_it_began() -> None:
    files = SimFiles()
    log = log_on(files)
    append(log)
    files.on_flush = lambda _path: None
    assert log.flush() == 200
    append(log)
    files.fail_flushes("commitlog")
    with pytest.raises(OSError, match="simulated"):
        log.flush()


def test_flushed_content_survives_power_cut() -> None:
    files = SimFiles()
    log = log_on(files)
    for _ in range(3):
        append(log)
    log.flush()
    append(log)
    files.power_cut(random.Random(3))
    again = log_on(files)
    assert [again.check(offset).state for offset in (0, 200, 400)] == [RecordState.RECORD] * 3  # type: ignore[union-attr]


def test_setting_the_end_erases_what_lies_behind() -> None:
    log = log_on(SimFiles())
    for _ in range(3):
        append(log)
    log.set_end(200, 7)
    found = log.check(200)
    assert found is not None
    assert found.state is RecordState.EMPTY
    assert append(log) == 200


def test_nothing_is_written_where_no_space_was_taken() -> None:
    files = SimFiles()
    log = log_on(files)
    for _ in range(1_000):
        append(log)
    assert files.unallocated_writes() == []


def test_full_disk_refuses_and_keeps_the_place() -> None:
    files = SimFiles(capacity_bytes=FILE_BYTES)
    log = log_on(files)
    append(log, FILE_BYTES - 8)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            append(log)
        assert log.max_phy_offset in {FILE_BYTES - 8, FILE_BYTES}
    files.capacity_bytes = None
    assert append(log) == FILE_BYTES


def test_next_file_is_made_ahead() -> None:
    files = SimFiles()
    log = log_on(files)
    service = AllocateService(log, WriteGate(ReadOnlyLatch()), interval_ms=50)
    assert service.step(100) == 150
    append(log, FILE_BYTES // 2 + 200)
    service.step(150)
    assert len(files.list_files(Path("/store/commitlog"))) == 2
    assert log.file_count() == 1
    assert append(log, FILE_BYTES // 2) == FILE_BYTES
    assert log.file_count() == 2


def test_memory_of_what_is_written_next_is_made_ready_once_for_a_log_that_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = 4_096
    monkeypatch.setattr(commit_log, "_STEP_BYTES", step)
    log = log_on(SimFiles())
    warmed: list[tuple[int, int]] = []
    append(log, 1_000)
    assert log.file is not None
    monkeypatch.setattr(
        type(log.file.region), "warm", lambda _region, start, end: warmed.append((start, end))
    )
    log.prepare()
    assert warmed == [], "few messages"
    append(log, step)
    log.prepare()
    log.prepare()
    assert warmed == [(step + 1_000, 4 * step)]
    append(log, step)
    log.prepare()
    assert warmed[1:] == [(4 * step, 5 * step)], "from where it was made ready"
    append(log, 4 * step)
    log.prepare()
    assert warmed[2:] == [(6 * step + 1_000, 9 * step)], "not what is written already"


def test_file_being_written_is_never_deleted() -> None:
    log = log_on(SimFiles())
    for _ in range(3):
        append(log, FILE_BYTES - 8)
    assert [log.delete_oldest() for _ in range(3)] == [True, True, False]
    assert log.min_phy_offset == 2 * FILE_BYTES
    assert log.record(0, 100) is None


def test_number_that_does_not_fit_leaves_no_record() -> None:
    log = log_on(SimFiles())
    append(log)
    with pytest.raises(struct.error):
        append(log, now_ms=1 << 70)
    assert log.max_phy_offset == 200
    assert append(log) == 200


def test_damage_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    log = log_on(SimFiles())
    for offset in (5, 5, 9):
        log.report_damage(offset, "why")
    assert log.damaged == {5, 9}
    assert len(caplog.records) == 2
