"""An index file has Apache's bytes, survives a half-done put, and writes only allocated bytes."""

import struct
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import DiskFullError, StoreFormatError
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.index.index_file import IndexFile, index_file_bytes
from rocketpy.store.index.index_lookup import IndexLookup

SLOTS = 100
COUNT = 400
APACHE = Path(__file__).parent / "index_made_by_apache"
FOREVER = (1 << 63) - 1


def make(path: Path, slots: int = SLOTS, count: int = COUNT) -> IndexFile:
    region = RealFiles().create(path, index_file_bytes(slots, count))
    return IndexFile(path.name, region, max_hash_slots=slots, max_index_count=count)


def open_again(path: Path) -> IndexFile:
    return IndexFile(path.name, RealFiles().open(path), max_hash_slots=SLOTS, max_index_count=COUNT)


def found(file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = FOREVER) -> list[int]:
    lookup = IndexLookup(key_hash, 64, begin_ms, end_ms)
    lookup.look_into(file)
    return lookup.phy_offsets


def apache_entries(data: bytes) -> list[tuple[int, int, int]]:
    (count,) = struct.unpack_from(">i", data, 36)
    start = 40 + 4 * SLOTS
    return [struct.unpack_from(">iqi", data, start + 20 * k) for k in range(1, count)]


@pytest.mark.parametrize("name", sorted(path.name for path in APACHE.iterdir()))
def test_same_puts_make_the_same_bytes_as_apache(name: str, tmp_path: Path) -> None:
    data = (APACHE / name).read_bytes()
    begin_ms, end_ms = struct.unpack_from(">qq", data, 0)
    ours = make(tmp_path / name)
    for key_hash, phy_offset, seconds in apache_entries(data):
        assert ours.put([key_hash], phy_offset, begin_ms + seconds * 1000) == 1
    ours.flush()
    ours.close()

    written = (tmp_path / name).read_bytes()
    assert written[40:] == data[40:]
    assert written[:8] == data[:8]
    assert written[16:40] == data[16:40]
    assert struct.unpack_from(">q", written, 8)[0] == begin_ms + (end_ms - begin_ms) // 1000 * 1000


def test_apache_file_is_read(tmp_path: Path) -> None:
    name = "20261121085400681"
    path = tmp_path / name
    path.write_bytes((APACHE / name).read_bytes())
    file = open_again(path)

    entries = apache_entries(path.read_bytes())
    assert len(entries) == COUNT - 1
    assert file.is_full
    for key_hash in {entry[0] for entry in entries}:
        expected = [phy for a_hash, phy, _ in reversed(entries) if a_hash == key_hash]
        assert found(file, key_hash) == list(dict.fromkeys(expected))


def test_one_key_and_many_keys_write_the_same(tmp_path: Path) -> None:
    one, many = make(tmp_path / "1"), make(tmp_path / "2")
    for number in range(300):
        assert one.put_one(number * 7 % 150, number * 50, 1_000 + number * 300)
        assert many.put([number * 7 % 150], number * 50, 1_000 + number * 300) == 1
    one.close()
    many.close()
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_full_file_takes_no_more(tmp_path: Path) -> None:
    file = make(tmp_path / "f", slots=4, count=3)
    assert file.put([1, 2, 3], 100, 5) == 2
    assert file.is_full
    assert file.put([4], 200, 6) == 0
    assert not file.put_one(4, 200, 6)
    assert (file.end_phy_offset, file.end_timestamp_ms) == (100, 5)


def test_window_is_on_whole_seconds_from_the_begin(tmp_path: Path) -> None:
    file = make(tmp_path / "f")
    for second in range(10):
        file.put([9], second, 1_000_000 + second * 1000)
    assert found(file, 9, 1_003_000, 1_005_000) == [5, 4, 3]
    assert found(file, 9, 1_020_000) == []
    assert file.covers(0, 1_000_000)
    assert not file.covers(0, 999_999)
    assert not file.covers(1_009_001, FOREVER)


def test_time_before_the_begin_counts_as_the_begin(tmp_path: Path) -> None:
    file = make(tmp_path / "f")
    file.put([1], 10, 5_000)
    file.put([2], 20, 1_000)
    assert found(file, 2, 5_000, 5_000) == [20]


def test_put_cut_short_by_a_kill_is_not_seen(tmp_path: Path) -> None:
    file = make(tmp_path / "f")
    file.put([5], 10, 1_000)
    header = bytes(file._buffer[:40])
    file.put([5], 20, 2_000)
    file._buffer[:40] = header  # the entry and the slot were written, the header was not
    file.close()

    reopened = open_again(tmp_path / "f")
    assert reopened.header.index_count == 2
    assert 20 not in found(reopened, 5)
    assert reopened.put_one(5, 20, 2_000)
    assert found(reopened, 5)[0] == 20


def test_chain_that_does_not_go_down_ends(tmp_path: Path) -> None:
    file = make(tmp_path / "f")
    for place in (10, 20, 30):
        file.put_one(5, place, 1_000)
    previous_of_the_second = 40 + 4 * SLOTS + 20 * 2 + 16
    for wrong in (2, 3, -1, 1_000):
        struct.pack_into(">i", file._buffer, previous_of_the_second, wrong)
        assert found(file, 5) == [30, 20]


def test_nothing_is_written_before_it_is_allocated(tmp_path: Path) -> None:
    allocated: list[tuple[int, int]] = []
    file = make(tmp_path / "f", slots=1_000, count=500_000)
    region = file._region

    class Recording:
        size_bytes = region.size_bytes
        buffer = region.buffer
        view = region.view
        full = False

        def allocate(self, start: int, end: int) -> None:
            if self.full:
                raise DiskFullError("full")
            allocated.append((start, end))

        def erase(self, start: int, end: int) -> bool:
            return region.erase(start, end)

        def flush(self) -> None:
            region.flush()

        def close(self) -> None:
            region.close()

    recording: Any = Recording()
    watched = IndexFile("f", recording, max_hash_slots=1_000, max_index_count=500_000)
    watched.begin_after(0, 0)
    while len(allocated) < 3:
        watched.put_one(watched.header.index_count, watched.header.index_count, 1_000)
        assert 40 + 4_000 + 20 * watched.header.index_count <= allocated[-1][1]
    assert [start for start, _ in allocated] == [0, *(end for _, end in allocated[:-1])]

    recording.full = True
    before = watched.header
    with pytest.raises(DiskFullError):
        watched.put(list(range(100_000)), 1 << 40, 2_000)
    assert watched.header == before


def test_wrong_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(1_000))
    with pytest.raises(StoreFormatError, match="1000 bytes"):
        open_again(tmp_path / "f")
