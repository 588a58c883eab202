"""Every message is found by its keys: over many files, after a crash, after a full disk."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.proto.record.tags import IndexKeyHasher
from rocketpy.store.files.real_files import RealFiles, RealRegion
from rocketpy.store.index.index_lookup import IndexLookup
from rocketpy.store.index.index_service import IndexService
from rocketpy.store.recovery.index_catch_up import IndexCatchUpService, LogSlice

FOREVER = (1 << 63) - 1
_opened: list[IndexService] = []


@pytest.fixture(autouse=True)
def indexes_are_closed(tmp_path: Path) -> Iterator[None]:
    """Close what a test opened: every index file holds a descriptor."""
    yield
    while _opened:
        _opened.pop().close()


@dataclass
class FakeClock:
    now_ms: int = 1_795_251_240_681

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class FullableFiles(RealFiles):
    """Real files on a disk that can be declared full."""

    full = False
    refusal: type[ResourceShortError] = DiskFullError

    def create(self, path: Path, size_bytes: int) -> RealRegion:
        if self.full:
            raise self.refusal("full")
        return super().create(path, size_bytes)


@dataclass(frozen=True)
class Message:
    phy_offset: int
    topic: str = "Orders"
    uniq_key: str | None = None
    keys: str | None = None
    tags: str | None = None
    size_bytes: int = 100
    store_timestamp_ms: int = 0


def message(number: int) -> Message:
    return Message(
        phy_offset=number * 100,
        uniq_key=f"7F00000100002A139A{number:014X}",
        keys=f"key-{number} shared",
        tags=("red", "green", None)[number % 3],
        store_timestamp_ms=1_795_251_240_000 + number * 10,
    )


def put(index: IndexService, each: Message) -> None:
    index.put(
        each.topic, each.uniq_key, each.keys, each.tags, each.phy_offset, each.store_timestamp_ms
    )


def open_index(
    path: Path,
    *,
    files: RealFiles | None = None,
    flushed: list[tuple[int, int]] | None = None,
    crash_at_ms: int | None = None,
    crash_at_phy: int = 0,
    count: int = 50,
) -> IndexService:
    index = IndexService(
        path / "index",
        max_hash_slots=20,
        max_index_count=count,
        clock=FakeClock(),
        files=files or RealFiles(),
        on_file_flushed=None if flushed is None else lambda *each: flushed.append(each),
    )
    _opened.append(index)
    index.load(crash_at_ms is not None, crash_at_ms or 0, crash_at_phy)
    return index


def places(index: IndexService, key: str, index_type: str | None = None) -> list[int]:
    return index.query("Orders", key, 64, 0, FOREVER, index_type).phy_offsets


def assert_all_found(index: IndexService, messages: list[Message]) -> None:
    for each in messages:
        assert each.uniq_key is not None
        assert places(index, each.uniq_key) == [each.phy_offset]
        assert each.phy_offset in places(index, f"key-{each.phy_offset // 100}")
    newest = [each.phy_offset for each in reversed(messages)]
    assert places(index, "shared") == newest[:64]
    red = [each.phy_offset for each in reversed(messages) if each.tags == "red"]
    assert places(index, "red", "T") == red[:64]
    assert places(index, "red") == []


def test_messages_are_found_over_many_files_and_after_reopening(tmp_path: Path) -> None:
    messages = [message(number) for number in range(100)]
    index = open_index(tmp_path)
    for each in messages:
        put(index, each)
    assert len(index.headers) == 8
    assert_all_found(index, messages)
    result = index.query("Orders", "nothing", 10, 0, FOREVER)
    assert result.last_update_phy_offset == 9_900
    assert result.last_update_timestamp_ms == messages[-1].store_timestamp_ms
    index.close()

    assert_all_found(open_index(tmp_path), messages)


def test_names_are_local_times_and_always_rise(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for number in range(100):
        put(index, message(number))  # the clock stands still
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == len(set(names)) == 8
    assert all(len(name) == 17 for name in names)
    assert names[0].endswith("681")
    assert [int(name) - int(names[0]) for name in names] == list(range(8))


def test_query_is_limited_in_count_and_time(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for number in range(100):
        put(index, replace(message(number), store_timestamp_ms=1_000_000 + number * 1_000))
    assert len(index.query("Orders", "shared", 1_000, 0, FOREVER).phy_offsets) == 64
    assert index.query("Orders", "shared", 2, 0, FOREVER).phy_offsets == [9_900, 9_800]
    window = index.query("Orders", "shared", 64, 1_040_000, 1_043_000).phy_offsets
    assert window == [4_300, 4_200, 4_100, 4_000]
    assert index.query("Orders", "shared", 64, 2_000_000, FOREVER).phy_offsets == []
    assert index.query("Other", "shared", 64, 0, FOREVER).phy_offsets == []


def test_repeats_change_nothing(tmp_path: Path) -> None:
    messages = [message(number) for number in range(30)]
    index = open_index(tmp_path)
    for each in [*messages, *messages[:-1], messages[-1]]:
        put(index, each)
    assert_all_found(index, messages)


def test_load_after_crash_keeps_full_trusted_files_only(tmp_path: Path) -> None:
    messages = [message(number) for number in range(100)]
    flushed: list[tuple[int, int]] = []
    index = open_index(tmp_path, flushed=flushed)
    for each in messages:
        put(index, each)
    index.flush_full_files()
    ends = [header.end_timestamp_ms for header in index.headers]
    assert flushed == [(each.end_phy_offset, each.end_timestamp_ms) for each in index.headers[:-1]]
    kept_end = index.headers[4].end_phy_offset

    again = open_index(tmp_path, crash_at_ms=ends[4])  # the first object is the killed process
    assert [header.end_timestamp_ms for header in again.headers] == ends[:5]
    assert again.end_phy_offset == kept_end
    assert len(list((tmp_path / "index").iterdir())) == 5
    again.begin_recovery(0, 0)
    assert again.missing_from is None
    for each in messages:
        put(again, each)
    assert_all_found(again, messages)


def test_damaged_file_is_deleted_with_all_after_it(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for number in range(100):
        put(index, message(number))
    index.close()
    names = sorted((tmp_path / "index").iterdir())
    names[3].write_bytes(b"cut short")
    again = open_index(tmp_path, crash_at_ms=FOREVER)
    assert sorted((tmp_path / "index").iterdir()) == names[:3]
    assert len(again.headers) == 3


def test_load_keeps_first_file_that_ends_at_trusted_time(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for number in range(100):
        put(index, replace(message(number), store_timestamp_ms=1_000_000))
    assert len(index.headers) == 8
    again = open_index(tmp_path, crash_at_ms=1_000_000)
    assert len(again.headers) == 1


def test_trusted_offset_takes_precedence_over_time(tmp_path: Path) -> None:
    """Store times of several lives may be equal, or go down when the clock was set back."""
    index = open_index(tmp_path)
    for number in range(100):
        put(index, replace(message(number), store_timestamp_ms=1_000_000 - number))
    vouched = index.headers[4].end_phy_offset
    again = open_index(tmp_path, crash_at_ms=2_000_000, crash_at_phy=vouched)
    assert len(again.headers) == 5
    assert again.end_phy_offset == vouched


def test_look_up_needs_no_lock_and_survives_deletion(tmp_path: Path) -> None:
    messages = [message(number) for number in range(100)]
    index = open_index(tmp_path)
    for each in messages:
        put(index, each)
    files = index._index_files
    with index._files_lock, index._flush_lock:
        assert places(index, "key-3") == [300]
    index.delete_expired(FOREVER)
    index.close()
    lookup = IndexLookup(IndexKeyHasher().hash("Orders", "key-3"), 64, 0, FOREVER)
    for file in reversed(files):  # as a look-up that began before the deletion
        lookup.look_into(file)
    assert lookup.phy_offsets == [300]


def test_look_up_says_when_messages_are_still_missing(tmp_path: Path) -> None:
    index = open_index(tmp_path, crash_at_ms=0)
    index.begin_recovery(first_phy_offset=2_000, indexed_to=max(0, index.end_phy_offset))
    assert not index.query("Orders", "key-1", 64, 0, FOREVER).is_complete
    run(IndexCatchUpService(index, FakeLog([message(1)]).read, threading.Lock()), 3)
    assert index.query("Orders", "key-1", 64, 0, FOREVER).is_complete


def test_system_s_refusal_of_a_new_file_only_delays_indexing(tmp_path: Path) -> None:
    files = FullableFiles()
    files.refusal = ResourceShortError
    log = FakeLog([message(number) for number in range(80)])
    index = open_index(tmp_path, files=files)
    for each in log.messages:
        files.full = each.phy_offset >= 2_000
        put(index, each)
    assert index.missing_from is not None
    files.full = False
    run(IndexCatchUpService(index, log.read, threading.Lock()), 5)
    assert_all_found(index, log.messages)


def test_entries_beyond_the_end_of_the_log_go(tmp_path: Path) -> None:
    messages = [message(number) for number in range(100)]
    index = open_index(tmp_path)
    for each in messages:
        put(index, each)
    kept_end = index.headers[3].end_phy_offset
    index.cut(10_000, 0)
    assert len(index.headers) == 8

    cut = kept_end + 300  # the log lost what came after
    index.cut(cut, 0)
    assert index.missing_from == index.end_phy_offset == kept_end
    assert len(list((tmp_path / "index").iterdir())) == 4
    left = [each for each in messages if each.phy_offset < cut]
    run(IndexCatchUpService(index, FakeLog(left).read, threading.Lock()), 3)
    put(index, replace(message(500), phy_offset=cut))
    assert places(index, "key-500") == [cut]
    for each in left:
        assert each.uniq_key is not None
        assert places(index, each.uniq_key) == [each.phy_offset]

    index.cut(0, 0)
    assert index.missing_from is None
    assert index.headers == []


class FakeLog:
    """Messages by place, in slices, as the commit log gives them."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages

    def read(self, phy_offset: int, max_bytes: int) -> LogSlice:
        log_end = max((each.phy_offset + 100 for each in self.messages), default=0)
        end = min(phy_offset + max_bytes, max(log_end, phy_offset))
        found = [each for each in self.messages if phy_offset <= each.phy_offset < end]
        return LogSlice([*found], end)


def run(service: IndexCatchUpService, steps: int) -> list[int]:
    now_ms, waits = 0, []
    for _ in range(steps):
        due_ms = service.step(now_ms)
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    return waits


def test_full_disk_only_delays_indexing(tmp_path: Path) -> None:
    files = FullableFiles()
    log = FakeLog([])
    index = open_index(tmp_path, files=files)
    service = IndexCatchUpService(index, log.read, threading.Lock(), slice_bytes=500)
    for number in range(80):
        files.full = 20 <= number < 60
        log.messages.append(message(number))
        put(index, log.messages[-1])
        if number == 50:
            assert run(service, 3) == [1_000] * 3
    assert index.missing_from is not None
    assert index.missing_from < 5_000

    waits = run(service, 30)
    assert index.missing_from is None
    assert waits[-1] == 1_000
    assert_all_found(index, log.messages)
    put(index, message(80))
    assert places(index, "key-80") == [8_000]


def test_part_not_scanned_by_recovery_is_read_back(tmp_path: Path) -> None:
    messages = [message(number) for number in range(40)]
    index = open_index(tmp_path, crash_at_ms=0)
    index.begin_recovery(first_phy_offset=2_000, indexed_to=max(0, index.end_phy_offset))
    for each in messages[20:]:
        put(index, each)
    assert index.missing_from == 0
    run(IndexCatchUpService(index, FakeLog(messages).read, threading.Lock()), 3)
    assert index.missing_from is None
    assert_all_found(index, messages)


def test_expired_files_go_but_never_the_last(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for number in range(100):
        put(index, message(number))
    third_end = index.headers[2].end_phy_offset
    assert index.delete_expired(third_end) == 2
    assert index.delete_expired(third_end + 1) == 1
    assert index.delete_expired(FOREVER) == 4
    assert len(index.headers) == len(list((tmp_path / "index").iterdir())) == 1
    index.flush()
    assert places(index, "key-99") == [9_900]


@pytest.mark.parametrize(
    ("uniq_key", "keys", "tags", "count", "found"),
    [
        (None, None, None, 0, ""),
        ("u", None, None, 1, "u"),
        ("u", " a  b ", "t", 4, "uab"),
        (None, "a", "", 1, "a"),
    ],
)
def test_put_indexes_id_keys_and_tag(
    tmp_path: Path,
    uniq_key: str | None,
    keys: str | None,
    tags: str | None,
    count: int,
    found: str,
) -> None:
    index = open_index(tmp_path)
    index.put("T", uniq_key, keys, tags, 0, 1)
    assert sum(each.index_count - 1 for each in index.headers) == count
    for key in "uab":
        assert index.query("T", key, 9, 0, FOREVER).phy_offsets == [0] * (key in found)
        assert index.query("Other", key, 9, 0, FOREVER).phy_offsets == []


def test_only_flushed_full_files_are_trusted(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    assert index.on_disk_to == (0, 0)
    for number in range(100):
        put(index, message(number))
    assert index.on_disk_to == (0, 0)
    index.flush_full_files()
    last_full = index.headers[-2]
    assert index.on_disk_to == (last_full.end_phy_offset, last_full.end_timestamp_ms)
    third = index.headers[2]
    index.cut(third.end_phy_offset + 100, 0)
    assert index.on_disk_to == (third.end_phy_offset, third.end_timestamp_ms)


@pytest.mark.parametrize("crash", [False, True])
def test_clock_set_back_between_two_lives_hides_nothing(tmp_path: Path, crash: bool) -> None:
    """Every message is found in a range that holds only its own store time, in few files."""
    flushed: list[tuple[int, int]] = []
    messages = [message(number) for number in range(90)]
    for start, back_ms in ((30, 3_600_000), (60, 7_200_000)):
        messages[start : start + 30] = [
            replace(each, store_timestamp_ms=each.store_timestamp_ms - back_ms)
            for each in messages[start : start + 30]
        ]
    index = open_index(tmp_path, count=200, flushed=flushed)
    for each in messages:
        put(index, each)
    index.flush()
    index.close()
    phy, _ = flushed[-1]
    index = open_index(
        tmp_path, count=200, crash_at_phy=phy if crash else 0, crash_at_ms=1 if crash else None
    )
    kept = messages[:60] if crash else messages
    assert [header.end_phy_offset for header in index.headers][:2] == [2_900, 5_900]
    for each in kept:
        at = each.store_timestamp_ms
        for key in (each.uniq_key, "shared"):
            assert key is not None
            found = index.query("Orders", key, 64, at, at)
            assert each.phy_offset in found.phy_offsets
            assert found.is_complete
    oldest = min(each.store_timestamp_ms for each in kept)
    assert index.query("Orders", "shared", 64, 0, oldest - 1_000).phy_offsets == []
    put(index, replace(message(100), store_timestamp_ms=messages[-1].store_timestamp_ms + 5))
    index.close()
