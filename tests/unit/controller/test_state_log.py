"""The local log keeps what it acknowledged: crashes at every step, damaged tails, full disks."""

import errno
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from rocketpy.controller.events import AnyEvent, GroupStored, MasterElected, SetAltered
from rocketpy.controller.state_log import ID_NAME, LOG_NAME, LocalStateLog, StateFile
from rocketpy.errors import (
    DiskFullError,
    StoreFormatError,
    StoreLockedError,
    StoreReadOnlyError,
)
from rocketpy.store.files.real_files import RealFiles
from rocketpy.testing.sim_files import ProcessEndedError, SimFiles
from tests.unit.controller.group_kit import NAME, applied, groups_of

HOME = Path("/controller")
PATH = HOME / LOG_NAME
SMALL_BYTES = 4_096
STEPS: list[list[AnyEvent]] = [
    applied(1),
    [MasterElected(NAME, 1, 1, 1)],
    applied(2),
    [SetAltered(NAME, (1, 2), 2)],
    [MasterElected(NAME, 2, 2, 3)],
]


def state_after(steps: int) -> Sequence[GroupStored]:
    return groups_of(*[event for step in STEPS[:steps] for event in step]).snapshot()


def opened(files: SimFiles, size_bytes: int = SMALL_BYTES) -> StateFile:
    file = StateFile(HOME, files, file_bytes=size_bytes)
    file.load()
    return file


def write_all(files: SimFiles) -> None:
    file = opened(files)
    for step in STEPS:
        file.append(step)
    file.close()


def read(files: SimFiles) -> Sequence[GroupStored]:
    file = StateFile(HOME, files, file_bytes=SMALL_BYTES)
    found = file.load()
    file.close()
    return found


def test_appended_events_are_loaded() -> None:
    files = SimFiles()
    write_all(files)
    assert read(files) == state_after(len(STEPS))
    assert files.open_files == 0


def test_state_id_is_made_with_a_new_log_and_stays() -> None:
    files = SimFiles()
    first = opened(files)
    first.close()
    again = opened(files)
    again.close()
    assert len(first.state_id) == 32
    assert again.state_id == first.state_id
    files.remove(PATH)
    lost = opened(files)
    assert lost.state_id not in {"", first.state_id}


def test_state_id_of_a_log_of_an_earlier_version_is_made_once() -> None:
    files = SimFiles()
    write_all(files)
    files.remove(HOME / ID_NAME)
    made = opened(files)
    made.close()
    again = opened(files)
    again.close()
    assert again.state_id == made.state_id != ""
    assert read(files) == state_after(len(STEPS))


def test_state_id_of_a_new_log_that_cannot_be_written_stops_the_start() -> None:
    """Brokers would follow the controller without one, and another one beside it."""
    files = SimFiles()

    def fail(_operation: str, path: Path) -> None:
        if path.name.startswith(ID_NAME):
            raise DiskFullError("no space")

    files.on_operation = fail
    with pytest.raises(DiskFullError):
        opened(files)
    files.on_operation = None
    assert opened(files).state_id


def test_state_id_that_is_damaged_stops_the_start() -> None:
    files = SimFiles()
    write_all(files)
    files.write_bytes(HOME / ID_NAME, b"?")
    with pytest.raises(StoreFormatError, match="stateId is damaged"):
        opened(files)


async def test_local_log_on_a_real_disk(tmp_path: Path) -> None:
    log = LocalStateLog(tmp_path / "a" / "b", RealFiles())
    assert list(await log.load()) == []
    for step in STEPS:
        await log.append(step)
    other = LocalStateLog(tmp_path / "a" / "b", RealFiles())
    with pytest.raises(StoreLockedError):
        await other.load()
    await log.close()
    assert list(await other.load()) == list(state_after(len(STEPS)))
    await other.close()


@pytest.mark.parametrize("power", [False, True])
def test_crash_at_every_step_keeps_what_was_acknowledged(power: bool) -> None:
    total = SimFiles()
    write_all(total)
    for operations in range(total.operation_count):
        rng = random.Random(operations)
        files = SimFiles()
        end = partial(files.power_cut, rng) if power else files.kill
        files.end_process_after(operations, end)
        acknowledged = 0
        try:
            file = opened(files)
            for step in STEPS:
                file.append(step)
                acknowledged += 1
            file.close()
        except ProcessEndedError:
            pass
        files.start_process()
        found = read(files)
        assert found in [state_after(acknowledged), state_after(acknowledged + 1)]
        # It stays so: also after a second loss of power.
        files.power_cut(rng)
        files.start_process()
        assert read(files) == found


def test_crash_at_every_step_of_a_replacement_keeps_the_state() -> None:
    for operations in range(40):
        files = SimFiles()
        file = opened(files)
        for step in STEPS[:2]:
            file.append(step)
        rng = random.Random(operations)
        files.end_process_after(operations, partial(files.power_cut, rng))
        epoch = 1
        try:
            while epoch < 60:
                file.append([SetAltered(NAME, (1,), epoch + 1)])
                epoch += 1
        except ProcessEndedError:
            pass
        files.start_process()
        (group,) = read(files)
        assert group.set_epoch in {epoch, epoch + 1}


def test_full_file_is_replaced_by_a_snapshot() -> None:
    files = SimFiles()
    file = opened(files)
    file.append(STEPS[0])
    file.append(STEPS[1])
    for epoch in range(2, 200):
        file.append([SetAltered(NAME, (1,), epoch)])
    file.close()
    (group,) = read(files)
    assert group.set_epoch == 199
    assert files.size_bytes(PATH) == SMALL_BYTES


def test_snapshot_that_fills_a_file_makes_it_longer() -> None:
    files = SimFiles()
    file = opened(files)
    for number in range(100):
        file.append(applied(1, name=f"broker-{number}"))
    file.close()
    assert len(read(files)) == 100
    assert files.size_bytes(PATH) > SMALL_BYTES


def damage(files: SimFiles, position: int, data: bytes) -> None:
    file = files.open_file(PATH)
    file.write(position, data)
    file.flush()
    file.close()


def record_ends(files: SimFiles) -> list[int]:
    """Return where each record begins, and the end of the last one."""
    data = files.read_bytes(PATH)
    places, at = [], data.find(b"RPC1")
    while at >= 0:
        places.append(at)
        at = data.find(b"RPC1", at + 1)
    return [*places, len(data.rstrip(b"\0"))]


def test_torn_last_record_is_removed() -> None:
    whole = SimFiles()
    write_all(whole)
    start, end = record_ends(whole)[-2:]
    for cut in range(start, end):
        files = SimFiles()
        write_all(files)
        damage(files, cut, bytes(end - cut))
        assert read(files) == state_after(len(STEPS) - 1)
        file = opened(files)
        file.append(STEPS[-1])
        file.close()
        assert read(files) == state_after(len(STEPS))


def test_last_record_without_its_start_is_removed() -> None:
    files = SimFiles()
    write_all(files)
    start, _ = record_ends(files)[-2:]
    damage(files, start, bytes(20))
    assert read(files) == state_after(len(STEPS) - 1)


def test_damage_before_a_valid_record_stops_the_start() -> None:
    whole = SimFiles()
    write_all(whole)
    places = record_ends(whole)
    for position in range(places[0], places[-2]):
        files = SimFiles()
        write_all(files)
        byte = files.read_bytes(PATH)[position]
        damage(files, position, bytes([byte ^ 0x41]))
        with pytest.raises(StoreFormatError, match="backup"):
            read(files)
        files.kill()
        with pytest.raises(StoreFormatError):  # its lock was released, its content kept
            read(files)


def test_missing_record_stops_the_start() -> None:
    files = SimFiles()
    write_all(files)
    places = record_ends(files)
    data = files.read_bytes(PATH)
    shifted = data[places[3] : places[-1]] + bytes(places[3] - places[2])
    damage(files, places[2], shifted)
    with pytest.raises(StoreFormatError, match="damaged"):
        read(files)


def test_full_disk_refuses_and_a_later_append_succeeds() -> None:
    files = SimFiles()
    file = opened(files)
    file.append(STEPS[0])

    def full(operation: str, path: Path) -> None:
        if operation == "write":
            raise DiskFullError("full")

    files.on_operation = full
    with pytest.raises(DiskFullError):
        file.append(STEPS[1])
    files.on_operation = None
    file.append(STEPS[1])
    file.close()
    assert read(files) == state_after(2)


def test_full_disk_refuses_nothing_before_the_file_is_full() -> None:
    """Another program has filled the disk; masters have to be elected nevertheless."""
    files = SimFiles()
    file = opened(files, 4 * SMALL_BYTES)
    files.capacity_bytes = files.used_bytes
    file.append([*applied(1), *applied(2), MasterElected(NAME, 1, 1, 1)])
    set_epoch = 1
    while file._end < 3 * SMALL_BYTES:
        set_epoch += 1
        file.append([SetAltered(NAME, (1, 2), set_epoch)])
    file.close()
    assert read(files)[0].set_epoch == set_epoch


def test_failed_flush_ends_the_log_until_a_restart() -> None:
    files = SimFiles()
    file = opened(files)
    file.append(STEPS[0])
    files.fail_flushes()
    with pytest.raises(StoreReadOnlyError):
        file.append(STEPS[1])
    files.on_flush = None
    with pytest.raises(StoreReadOnlyError, match="restart"):
        file.append(STEPS[1])
    file.close()
    assert read(files) in [state_after(1), state_after(2)]


def is_refused(file: StateFile, event: AnyEvent) -> bool:
    try:
        file.append([event])
    except DiskFullError:
        return True
    return False


def test_failed_replacement_keeps_the_old_file() -> None:
    files = SimFiles()
    file = opened(files)
    file.append(STEPS[0])
    file.append(STEPS[1])

    def full(operation: str, path: Path) -> None:
        if path.name.endswith(".tmp"):
            raise DiskFullError("full")

    files.on_operation = full
    epoch = 1
    while not is_refused(file, SetAltered(NAME, (1,), epoch + 1)):
        epoch += 1
    files.on_operation = None
    file.append([SetAltered(NAME, (1,), epoch + 1)])
    file.close()
    (group,) = read(files)
    assert group.set_epoch == epoch + 1


def test_load_of_a_broken_disk_releases_the_lock() -> None:
    files = SimFiles()
    write_all(files)

    def broken(operation: str, path: Path) -> None:
        raise OSError(errno.EIO, "simulated")

    files.on_operation = broken
    with pytest.raises(OSError, match="simulated"):
        read(files)
    files.on_operation = None
    assert read(files) == state_after(len(STEPS))


@pytest.mark.parametrize("name", ["dledger-n0", "raft_meta"])
def test_directory_of_apaches_controller_is_refused(name: str) -> None:
    files = SimFiles()
    files.make_directories(HOME / name)
    with pytest.raises(StoreFormatError, match="controllerStorePath"):
        read(files)
