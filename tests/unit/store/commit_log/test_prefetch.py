import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import Service
from rocketpy.store.commit_log.prefetch import PIECE_BYTES, RECENT_BYTES, LogPrefetcher
from rocketpy.store.files.descriptor_reserve import process_reserve
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.read.message_reader import MessageReader
from tests.unit.store.store_kit import TOPIC, Kit, put_many

END = 1 << 30
FILE_BYTES = 8 * PIECE_BYTES


class Region:
    """Remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def read_ahead(self, start: int, end: int) -> None:
        self.asked.append((start // PIECE_BYTES, end // PIECE_BYTES))


class Log:
    """Files of eight pieces each."""

    def __init__(self, first: int = 0) -> None:
        self.max_phy_offset = END
        self.files = [
            SimpleNamespace(base_offset=base, end_offset=base + FILE_BYTES, region=Region())
            for base in range(first, END, FILE_BYTES)
        ]

    def asked(self) -> list[tuple[int, int, int]]:
        return [
            (number, *asked)
            for number, file in enumerate(self.files)
            for asked in file.region.asked
        ]


def reads(log: Log) -> tuple[LogPrefetcher, list[int]]:
    cold = LogPrefetcher(log)  # type: ignore[arg-type]
    woken: list[int] = []
    cold.wake = lambda: woken.append(1)
    return cold, woken


def test_read_in_a_new_piece_has_it_and_the_next_read_once() -> None:
    log = Log()
    cold, woken = reads(log)
    for phy_offset in range(PIECE_BYTES, 2 * PIECE_BYTES, 32_768):
        cold.expect(phy_offset)
    assert woken == [1]
    assert log.asked() == [], "not on the thread that reads"
    assert cold.step(5) > 5
    assert log.asked() == [(0, 1, 3)]
    cold.expect(2 * PIECE_BYTES)
    cold.step(6)
    assert log.asked()[1:] == [(0, 2, 4)]
    cold.step(7)
    assert len(log.asked()) == 2


def test_prefetch_continues_in_next_file() -> None:
    log = Log()
    cold, _ = reads(log)
    cold.expect(FILE_BYTES - 1)
    cold.step(5)
    assert log.asked() == [(0, 7, 8), (1, 0, 1)]


def test_end_of_the_log_is_in_memory_and_a_deleted_begin_is_gone() -> None:
    log = Log(first=FILE_BYTES)
    cold, woken = reads(log)
    cold.expect(END - RECENT_BYTES)
    cold.expect(END)
    assert woken == []
    cold.expect(0)
    cold.step(5)
    assert log.asked() == []


def test_pieces_long_ago_are_asked_for_again() -> None:
    log = Log()
    cold, woken = reads(log)
    for piece in (*range(65), 64, 0):
        cold.expect(piece * PIECE_BYTES)
    assert len(woken) == 66


def test_disk_that_hangs_lets_nothing_pile_up() -> None:
    log = Log()
    cold, _ = reads(log)
    for number in range(2_000):
        cold.expect(number % 100 * PIECE_BYTES)
    assert len(cold._wanted) == 64
    cold.step(5)
    assert (12, 3, 5) in log.asked(), "the newest: piece 99"


class Runner:
    """Drives nothing."""

    def __init__(self, service: Service, _clock: Clock) -> None:
        self.service = service

    def start(self) -> None:
        """See `rocketpy.runtime.service.ServiceRunner.start`."""

    def wake(self) -> None:
        """See `rocketpy.runtime.service.ServiceRunner.wake`."""

    def stop(self) -> None:
        """See `rocketpy.runtime.service.ServiceRunner.stop`."""


def test_store_that_runs_wakes_the_thread_that_reads_ahead() -> None:
    store = Kit().open()
    made: list[Runner] = []

    def run(service: Service, clock: Clock) -> Runner:
        made.append(Runner(service, clock))
        return made[-1]

    store.start(run)
    cold = store._parts.cold_reads
    assert cold.wake in [each.wake for each in made if each.service is cold]
    store.close()
    assert cold.wake not in [each.wake for each in made]


def test_reader_says_where_it_reads() -> None:
    store = Kit().open()
    put_many(store, 10)
    parts, heard = store._parts, list[int]()
    reader = MessageReader(
        *(store.config, parts.table, parts.log, parts.stats, store._clock), expect=heard.append
    )
    reader.get(TOPIC, 0, 3, 2, 1 << 30, None)
    reader.begin_plain(TOPIC, 0, 5, reader.plain_limit(2, 1 << 30), 1)
    entries = [store.queue_entry(TOPIC, 0, offset) for offset in (3, 5)]
    assert heard == [entry[0] for entry in entries if entry]
    assert len(heard) == 2


def test_reading_ahead_is_asked_of_the_system_and_only_a_matter_of_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _fd, *asked_for: asked.append(asked_for), raising=False
    )
    path = tmp_path / "file"
    region = RealFiles().create(path, 10_000)
    region.read_ahead(0, 8_192)
    region.rest()
    region.read_ahead(8_192, 10_000)
    path.unlink()
    region.read_ahead(0, 8_192)
    advice = os.POSIX_FADV_WILLNEED
    assert asked == [(0, 8_192, advice), (8_192, 1_808, advice)]
    region.close()


def test_reading_ahead_takes_no_descriptor_that_is_kept_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = RealFiles().create(tmp_path / "file", 10_000)
    open_file = os.open

    def no_descriptor(path: str | Path, flags: int, mode: int = 0o777) -> int:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    kept = list(process_reserve()._kept)
    monkeypatch.setattr(os, "open", no_descriptor)
    region.read_ahead(0, 8_192)
    assert process_reserve()._kept == kept != []
    monkeypatch.setattr(os, "open", open_file)
    region.close()
