"""The simulated disk keeps what was flushed, may lose the rest, and ends processes anywhere."""

import random
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.testing.sim_files import ProcessEndedError, SimFiles

DIRECTORY = Path("/d")
PATH = DIRECTORY / "f"


def after_cuts(prepare, look, seeds=60):
    """Return the states after power cuts of many seeds."""
    found = set()
    for seed in range(seeds):
        files = SimFiles()
        prepare(files)
        files.power_cut(random.Random(seed))
        found.add(look(files))
    return found


def content(files: SimFiles) -> bytes | None:
    return files.read_bytes(PATH)[:1] if files.exists(PATH) else None


def test_flush_brings_bytes_and_name_to_the_disk() -> None:
    def prepare(files: SimFiles) -> None:
        region = files.create(PATH, 4096)
        region.buffer[:1] = b"x"
        region.flush()

    assert after_cuts(prepare, content) == {b"x"}


def test_power_cut_keeps_loses_or_empties_unflushed_files() -> None:
    def prepare(files: SimFiles) -> None:
        region = files.create(PATH, 4096)
        region.buffer[:1] = b"x"

    assert after_cuts(prepare, content) == {None, b"", b"\0", b"x"}


def test_sectors_are_lost_one_by_one() -> None:
    def prepare(files: SimFiles) -> None:
        region = files.create(PATH, 1024)
        region.flush()
        region.buffer[0] = region.buffer[512] = 1

    def look(files: SimFiles) -> tuple[int, int]:
        data = files.read_bytes(PATH)
        return data[0], data[512]

    assert after_cuts(prepare, look) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_only_the_newest_file_comes_back_empty() -> None:
    def prepare(files: SimFiles) -> None:
        for name in "abc":
            files.create(DIRECTORY / name, 512)

    def look(files: SimFiles) -> tuple[int, ...]:
        return tuple(files.size_bytes(DIRECTORY / name) for name in files.list_files(DIRECTORY))

    expected = {(), (0,), (512,), (512, 0), (512, 512), (512, 512, 0), (512, 512, 512)}
    assert after_cuts(prepare, look, 300) == expected


def test_deleted_file_may_come_back_until_directories_are_synced() -> None:
    def prepare(files: SimFiles) -> None:
        files.write_bytes(PATH, b"x")
        files.remove(PATH)

    def prepare_synced(files: SimFiles) -> None:
        prepare(files)
        files.sync_directories()

    assert after_cuts(prepare, content) == {None, b"x"}
    assert after_cuts(prepare_synced, content) == {None}


def test_kill_keeps_everything_and_cuts_off_the_old_process() -> None:
    files = SimFiles()
    region = files.create(PATH, 512)
    region.buffer[:1] = b"x"
    files.kill()
    region.buffer[:1] = b"y"
    assert content(files) == b"x"


def test_process_ends_before_a_chosen_operation_and_stays_dead() -> None:
    files = SimFiles()
    files.write_bytes(PATH, b"x")
    before = files.operation_count
    files.write_bytes(PATH, b"y")
    count = files.operation_count - before
    for operations in range(count):
        files.end_process_after(operations, files.kill)
        with pytest.raises(ProcessEndedError):
            files.write_bytes(PATH, b"z")
        with pytest.raises(ProcessEndedError):
            files.remove(PATH)
        files.start_process()
    files.end_process_after(count, files.kill)
    files.write_bytes(PATH, b"z")
    assert content(files) == b"z"


def test_descriptors_run_out_and_come_back() -> None:
    files = SimFiles()
    region = files.create(PATH, 512)
    files.descriptor_limit = 1
    with pytest.raises(ResourceShortError):
        files.create(DIRECTORY / "g", 512)
    region.close()
    files.create(DIRECTORY / "g", 512)
    files.kill()
    assert files.open_count == 0


def test_full_disk_refuses_and_takes_nothing() -> None:
    files = SimFiles(capacity_bytes=4096)
    region = files.create(PATH, 8192)
    with pytest.raises(DiskFullError):
        region.allocate(0, 8192)
    assert files.used_bytes == 0
    region.allocate(0, 4096)
    region.buffer[5000] = 1
    assert files.unallocated_writes() == [(PATH, 4096)]


def test_fail_flushes_raises_for_matching_paths() -> None:
    files = SimFiles()
    region = files.create(PATH, 512)
    files.fail_flushes("other")
    region.flush()
    files.fail_flushes("/d/")
    with pytest.raises(OSError, match="simulated disk failure"):
        region.flush()
