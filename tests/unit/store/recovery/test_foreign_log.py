"""Queues of one store beside the log of another one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.results import PutMessage
from tests.unit.store.store_kit import OK, Kit

LOG = Path("/store/commitlog")


def stored(bodies: Callable[[int], bytes], count: int = 300, topics: int = 2) -> Kit:
    """Return a closed store; its first message is the same for any bodies."""
    kit = Kit()
    store = kit.open()
    for number in range(count):
        topic = f"T{number % topics}"
        assert store.put_message(PutMessage(topic, 0, bodies(number))).status is OK
    store.close()
    return kit


def short(number: int) -> bytes:
    return b"%d" % number


def longer(number: int) -> bytes:
    return b"%d" % number + bytes(50)


def content(kit: Kit, directory: Path = Path("/store")) -> dict[Path, bytes]:
    found = {
        directory / name: kit.files.read_bytes(directory / name)
        for name in kit.files.list_files(directory)
    }
    for name in kit.files.list_directories(directory):
        found |= content(kit, directory / name)
    return found


def put_log(kit: Kit, other: Kit) -> None:
    kit.files.remove_tree(LOG)
    kit.files.make_directories(LOG)
    for name in other.files.list_files(LOG):
        kit.files.write_bytes(LOG / name, other.files.read_bytes(LOG / name))


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_log_of_another_store_is_refused_and_nothing_changes(
    end: str, *, has_checkpoint: bool
) -> None:
    kit, own = stored(short), stored(short)
    if end == "kill":
        kit.open()
        kit.files.kill()
    if not has_checkpoint:
        kit.files.remove(Path("/store/checkpoint"))
    put_log(kit, stored(longer))
    before = content(kit)
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=r"commitlog has .* the log of another store"):
            kit.open()
        assert content(kit) == before
        kit.files.kill()
    put_log(kit, own)
    store = kit.open()
    assert [store.max_offset(f"T{each}", 0) for each in range(2)] == [150, 150]


def test_log_of_another_store_is_taken_when_the_queues_were_moved_away() -> None:
    kit = stored(short)
    put_log(kit, stored(longer, 100, topics=4))
    kit.files.remove_tree(Path("/store/consumequeue"))
    kit.files.remove_tree(Path("/store/index"))
    kit.files.remove(Path("/store/checkpoint"))
    store = kit.open()
    assert [store.max_offset(f"T{each}", 0) for each in range(4)] == [25] * 4


@pytest.mark.parametrize("part", [0.0, 0.4, 0.75])
def test_log_with_a_large_damaged_part_is_not_another_one(part: float) -> None:
    kit = stored(short)
    path = LOG / kit.files.list_files(LOG)[0]
    data = bytearray(kit.files.read_bytes(path))
    begin = int(len(data) * part)
    data[begin : begin + len(data) // 4] = bytes(len(data) // 4)
    kit.files.write_bytes(path, bytes(data))
    store = kit.open()
    assert store.max_offset("T1", 0) > 0


def test_log_of_a_store_with_few_messages_is_not_compared() -> None:
    kit = stored(short, 4, topics=1)
    put_log(kit, stored(longer, 4, topics=1))
    kit.open()


def test_log_that_lost_most_of_its_files_is_not_another_one() -> None:
    kit = stored(longer)
    names = kit.files.list_files(LOG)
    assert len(names) >= 3
    for name in names[1:]:
        kit.files.remove(LOG / name)
    kit.files.remove(Path("/store/checkpoint"))  # as the error about missing files says
    assert 0 < kit.open().max_offset("T0", 0) < 150


def test_light_queues_of_apache_are_not_compared() -> None:
    kit = stored(short)
    queues = Path("/store/consumequeue")
    for number in range(40):
        light = queues / f"%LMQ%{number}" / "0"
        kit.files.make_directories(light)
        for name in kit.files.list_files(queues / "T0" / "0"):
            kit.files.write_bytes(light / name, kit.files.read_bytes(queues / "T0" / "0" / name))
    store = kit.open()
    assert [store.max_offset(f"T{each}", 0) for each in range(2)] == [150, 150]


def test_log_of_another_store_with_many_queues_is_refused() -> None:
    kit = stored(short, 700, topics=70)
    put_log(kit, stored(longer, 700, topics=70))
    with pytest.raises(StoreFormatError, match="the log of another store"):
        kit.open()
