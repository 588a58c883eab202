"""Contract of the file systems of a store: the machine's and the simulated one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.errors import ResourceShortError, StoreFormatError, StoreLockedError
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.files.store_files import DiskUsage, StoreFiles
from rocketpy.testing.sim_files import SimFiles

PAGE = 4096


class World:
    """A file system and a directory in it."""

    def __init__(self, files: StoreFiles, root: Path) -> None:
        self.files = files
        self.root = root
        self.path = root / "a" / "b" / "file"


@pytest.fixture(params=["real", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "real":
        yield World(RealFiles(), tmp_path)
    else:
        yield World(SimFiles(), Path("/store"))


# -- regions: whole files in memory ----------------------------------------------------------


def test_new_region_is_zeros_of_its_whole_length(world: World) -> None:
    region = world.files.create(world.path, 3 * PAGE)
    assert region.size_bytes == len(region.view) == len(region.buffer) == 3 * PAGE
    assert not any(region.view)
    assert world.files.size_bytes(world.path) == 3 * PAGE
    region.close()


def test_written_bytes_are_there_at_next_open(world: World) -> None:
    region = world.files.create(world.path, 2 * PAGE)
    region.allocate(0, PAGE)
    region.populate(0, PAGE)
    region.buffer[10:13] = b"abc"
    region.flush()
    region.close()
    again = world.files.open(world.path)
    assert again.size_bytes == 2 * PAGE
    assert bytes(again.view[9:14]) == b"\0abc\0"
    again.close()


def test_region_is_never_made_over_a_file_that_is_there(world: World) -> None:
    world.files.write_bytes(world.path, b"precious")
    with pytest.raises(ResourceShortError):
        world.files.create(world.path, PAGE)
    assert world.files.read_bytes(world.path) == b"precious"


def test_empty_file_has_no_region_and_a_missing_one_neither(world: World) -> None:
    world.files.write_bytes(world.path, b"")
    with pytest.raises(StoreFormatError, match="empty"):
        world.files.open(world.path)
    with pytest.raises(FileNotFoundError):
        world.files.open(world.path.with_name("none"))


def test_memory_is_never_taken_from_a_reader(world: World) -> None:
    region = world.files.create(world.path, PAGE)
    region.allocate(0, PAGE)
    region.buffer[:3] = b"abc"
    view = region.view[:3]
    region.rest()
    region.close()
    world.files.remove(world.path)
    assert bytes(view) == b"abc"


def test_region_at_rest_does_all_it_did_before(world: World) -> None:
    region = world.files.create(world.path, 2 * PAGE)
    region.rest()
    region.allocate(0, PAGE)
    region.buffer[:1] = b"x"
    region.flush()
    assert PAGE <= region.first_hole() <= 2 * PAGE
    assert region.erase(0, PAGE)
    region.rest()
    region.close()
    region.close()
    region.flush()  # nothing happens: the file may be gone


def test_erasing_says_whether_there_was_anything(world: World) -> None:
    region = world.files.create(world.path, 2 * PAGE)
    region.allocate(0, 2 * PAGE)
    region.buffer[10:12] = b"ab"
    assert not region.erase(11 + 1, 2 * PAGE)
    assert region.erase(11, 2 * PAGE)
    assert bytes(region.view[9:13]) == b"\0a\0\0", "not a byte before the range"
    assert not region.erase(11, 2 * PAGE)
    region.close()


# -- plain files: open for a moment ----------------------------------------------------------


def test_plain_file_is_read_and_written_at_positions(world: World) -> None:
    file = world.files.create_file(world.path, PAGE)
    assert file.size_bytes == PAGE
    file.write(100, b"abcd")
    file.write(102, memoryview(b"XY"))
    assert file.read(99, 6) == b"\0abXY\0"
    assert file.read(PAGE - 2, 10) == b"\0\0", "fewer at the end"
    assert file.read(PAGE, 10) == b""
    file.flush()
    file.close()
    again = world.files.open_file(world.path)
    assert again.read(100, 4) == b"abXY"
    again.close()


def test_plain_file_replaces_one_that_is_there(world: World) -> None:
    world.files.write_bytes(world.path, b"old")
    world.files.create_file(world.path, 8).close()
    assert world.files.read_bytes(world.path) == bytes(8)


def test_plain_file_knows_where_it_has_data(world: World) -> None:
    file = world.files.create_file(world.path, 4 * PAGE)
    assert not file.has_data(0, 4 * PAGE)
    file.write(PAGE + 5, b"x")
    assert file.has_data(0, 4 * PAGE)
    assert not file.has_data(0, PAGE + 5)
    assert not file.has_data(PAGE + 6, 4 * PAGE)
    assert file.erase(PAGE, 4 * PAGE)
    assert not file.erase(PAGE, 4 * PAGE)
    assert not file.has_data(0, 4 * PAGE)
    assert 0 <= file.first_hole() <= 4 * PAGE
    file.close()


def test_file_that_is_not_there_cannot_be_opened_or_read(world: World) -> None:
    for use in (world.files.open_file, world.files.read_bytes, world.files.size_bytes):
        with pytest.raises(FileNotFoundError):
            use(world.path)
    assert not world.files.exists(world.path)


# -- names -----------------------------------------------------------------------------------


def test_names_are_listed_in_order_files_and_directories_apart(world: World) -> None:
    for name in ("two", "one", "d/three"):
        world.files.write_bytes(world.root / "x" / name, b"1")
    world.files.make_directories(world.root / "x" / "e" / "f")
    assert world.files.list_files(world.root / "x") == ["one", "two"]
    assert world.files.list_directories(world.root / "x") == ["d", "e"]
    assert world.files.exists(world.root / "x" / "e" / "f")
    assert world.files.list_files(world.root / "none") == []
    assert world.files.list_directories(world.root / "none") == []


def test_file_is_not_taken_for_an_empty_directory(world: World) -> None:
    world.files.write_bytes(world.root / "commitlog", b"in the way")
    for look in (world.files.list_files, world.files.list_directories):
        with pytest.raises(StoreFormatError, match="commitlog is not a directory"):
            look(world.root / "commitlog")


def test_rename_replaces_and_moves_whole_directories(world: World) -> None:
    one, two = world.root / "x" / "one", world.root / "x" / "two"
    world.files.write_bytes(one, b"1")
    world.files.write_bytes(two, b"2")
    world.files.rename(one, two)
    assert world.files.list_files(world.root / "x") == ["two"]
    assert world.files.read_bytes(two) == b"1"
    world.files.rename(world.root / "x", world.root / "y")
    assert world.files.read_bytes(world.root / "y" / "two") == b"1"
    assert not world.files.exists(world.root / "x")
    with pytest.raises(FileNotFoundError):
        world.files.rename(one, two)


def test_removing_what_is_not_there_does_nothing(world: World) -> None:
    world.files.write_bytes(world.path, b"1")
    world.files.remove(world.path)
    world.files.remove(world.path)
    assert not world.files.exists(world.path)
    world.files.write_bytes(world.path, b"1")
    world.files.remove_tree(world.root / "a")
    world.files.remove_tree(world.root / "a")
    assert not world.files.exists(world.root / "a")
    world.files.sync_directories()


def test_bytes_are_replaced_as_a_whole(world: World) -> None:
    world.files.write_bytes(world.path, b"long content")
    world.files.write_bytes(world.path, b"short")
    assert world.files.read_bytes(world.path) == b"short"
    assert world.files.size_bytes(world.path) == 5
    assert world.files.modified_ms(world.path) > 1_000_000_000_000


# -- the rest --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3, 40])
def test_results_for_many_items_come_in_their_order(world: World, count: int) -> None:
    assert world.files.each(lambda item: item * 2, range(count)) == [2 * n for n in range(count)]


@pytest.mark.parametrize("count", [3, 40])
def test_failure_of_one_of_many_is_raised(world: World, count: int) -> None:
    def operation(item: int) -> None:
        if item == 1:
            raise OSError("disk failed")

    with pytest.raises(OSError, match="disk failed"):
        world.files.each(operation, range(count))


def test_lock_is_held_by_one_until_it_is_released(world: World) -> None:
    lock = world.files.lock(world.root / "lock")
    with pytest.raises(StoreLockedError):
        world.files.lock(world.root / "lock")
    other = world.files.lock(world.root / "other")
    lock.close()
    other.close()
    world.files.lock(world.root / "lock").close()
    assert world.files.read_bytes(world.root / "lock") == b"lock"


def test_boot_id_is_stable_until_reboot(world: World) -> None:
    assert world.files.boot_id() == world.files.boot_id()


def test_disk_says_how_full_it_is(world: World) -> None:
    world.files.write_bytes(world.path, b"1")
    usage = world.files.disk_usage(world.root)
    assert usage.total_bytes >= usage.used_bytes + usage.free_bytes
    assert 0.0 <= usage.used_ratio <= 1.0


@pytest.mark.parametrize(
    ("used", "free", "ratio"), [(0, 10, 0.0), (10, 0, 1.0), (30, 10, 0.75), (0, 0, 0.0)]
)
def test_reserved_disk_space_counts_as_used(used: int, free: int, ratio: float) -> None:
    assert DiskUsage(100, used, free).used_ratio == ratio
