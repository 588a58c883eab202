"""Scans of a damaged log: skipped records, and the end of the log."""

from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.recovery.log_scan import LogScan, TrustedRange
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.testing.sim_files import SimFiles
from tests.unit.store.commit_log.test_commit_log import append

RECORD_BYTES = 1_000
FILE_BYTES = 16 << 10


def log_of(count: int, times_ms: list[int] | None = None) -> CommitLog:
    config = MessageStoreConfig(
        store_path_root_dir="/store", mapped_file_size_commit_log=FILE_BYTES
    )
    log = CommitLog(config, SimFiles(), StoreOffsets())
    log.load()
    for number in range(count):
        append(log, RECORD_BYTES, now_ms=times_ms[number] if times_ms else number + 1)
    return log


def damage(log: CommitLog, position: int, data: bytes) -> None:
    buffer = log.files[position // FILE_BYTES].buffer
    at = position % FILE_BYTES
    buffer[at : at + len(data)] = data


def walk(
    log: CommitLog, vouched: TrustedRange, *, power_cut: bool | None = False, start: int = 0
) -> tuple[list[int], LogScan]:
    scan = LogScan(log, start, vouched, check_crc=True, power_cut=power_cut)
    return [position // RECORD_BYTES for position, _ in scan], scan


ALL = TrustedRange(1 << 62, 1 << 62)
NOTHING = TrustedRange(0, 0)


def test_whole_log_is_walked_over_its_blanks() -> None:
    log = log_of(20)
    found, scan = walk(log, NOTHING, power_cut=True)
    assert len(found) == 20
    assert (scan.end, scan.last_ms) == (log.max_phy_offset, 20)
    assert (scan.damaged, scan.holes) == ([], [])


def test_wrong_body_is_reported_and_the_others_stay() -> None:
    log = log_of(5)
    damage(log, 2 * RECORD_BYTES + 500, b"\xff")
    for power_cut in (False, None):
        found, scan = walk(log, ALL, power_cut=power_cut)
        assert found == [0, 1, 2, 3, 4]
        assert scan.damaged == [2 * RECORD_BYTES]


def test_damage_in_any_byte_of_a_frame_costs_only_that_record() -> None:
    for at, data in ((0, b"\x7f"), (3, b"\xff"), (4, b"\x00"), (30, b"\xff")):
        log = log_of(5)
        damage(log, 2 * RECORD_BYTES + at, data)
        found, scan = walk(log, NOTHING)  # only the process died
        assert found == [0, 1, 3, 4], at
        assert scan.holes == [(2 * RECORD_BYTES, RECORD_BYTES)]
        found, _ = walk(log, ALL, power_cut=True)
        assert found == [0, 1, 3, 4], at


def test_power_cut_damage_after_trusted_offset_ends_the_log() -> None:
    log = log_of(5)
    damage(log, 2 * RECORD_BYTES, b"\x7f")
    found, scan = walk(log, TrustedRange(0, 2 * RECORD_BYTES), power_cut=True)
    assert found == [0, 1]
    assert scan.end == 2 * RECORD_BYTES
    found, _ = walk(log, TrustedRange(0, 3 * RECORD_BYTES), power_cut=True)
    assert found == [0, 1, 3, 4]


def test_sector_that_never_came_to_the_disk_ends_the_log_only_after_a_power_cut() -> None:
    log = log_of(5)
    damage(log, 2 * RECORD_BYTES + 48, bytes(RECORD_BYTES - 48))
    found, scan = walk(log, TrustedRange(0, RECORD_BYTES), power_cut=True)
    assert (found, scan.end) == ([0, 1], 2 * RECORD_BYTES)
    found, _ = walk(log, NOTHING)
    assert found == [0, 1, 3, 4]


def test_clock_that_went_back_hides_no_record_of_ours() -> None:
    log = log_of(6, [50, 51, 52, 10, 11, 12])
    damage(log, 2 * RECORD_BYTES, b"\x7f")
    found, _ = walk(log, NOTHING)
    assert found == [0, 1, 3, 4, 5]


def test_in_a_log_of_apache_older_records_are_left_overs() -> None:
    log = log_of(6, [50, 51, 52, 10, 11, 12])
    damage(log, 2 * RECORD_BYTES, b"\x7f" + bytes(RECORD_BYTES - 1))
    found, scan = walk(log, TrustedRange(1 << 62), power_cut=None)
    assert (found, scan.end) == ([0, 1], 2 * RECORD_BYTES)


def test_last_record_stays_when_it_was_on_disk_though_it_is_damaged() -> None:
    log = log_of(3)
    damage(log, 2 * RECORD_BYTES + 500, b"\xff")
    found, scan = walk(log, TrustedRange(0, 3 * RECORD_BYTES), power_cut=True)
    assert (found, scan.damaged) == ([0, 1, 2], [2 * RECORD_BYTES])
    found, scan = walk(log, TrustedRange(0, 2 * RECORD_BYTES), power_cut=True)
    assert (found, scan.damaged, scan.end) == ([0, 1], [], 2 * RECORD_BYTES)


def test_scan_yields_state_of_each_record() -> None:
    log = log_of(3)
    damage(log, RECORD_BYTES + 500, b"\xff")
    states = [found.state for _, found in LogScan(log, 0, ALL, check_crc=True, power_cut=False)]
    assert states == [RecordState.RECORD, RecordState.DAMAGED, RecordState.RECORD]
