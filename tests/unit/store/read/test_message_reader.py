"""A read is bounded, returns complete records, and gives the next offset."""

import contextlib
import errno
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rocketpy.proto.record.message import decode_message
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.message_store import MessageStore
from rocketpy.store.read.message_reader import MessageReader
from rocketpy.store.results import GetMessageResult, GetMessageStatus
from tests.sampling import sample
from tests.unit.store.store_kit import TOPIC, Kit, bodies, message, put_many

FOUND = GetMessageStatus.FOUND
NONE_MATCHED = GetMessageStatus.NO_MATCHED_MESSAGE


class Filter:
    """Takes messages by tags code, and of these by their body."""

    def __init__(self, code: int | None = None, body: bytes | None = None) -> None:
        self.code, self.body = code, body
        self.weight = 1
        self.looked_at = 0

    def matches_tags_code(self, tags_code: int) -> bool:
        self.looked_at += 1
        return self.code is None or tags_code == self.code

    def matches_record(self, record: memoryview) -> bool:
        return self.body is None or self.body in bytes(record)

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bool] | None:
        return None


class RunFilter(Filter):
    """The same, asked about many records at once."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body=body)
        self.runs: list[int] = []
        self.declines_after = 1 << 30

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bool] | None:
        if len(self.runs) >= self.declines_after:
            return None
        self.runs.append(len(sizes))
        return [
            self.matches_record(view[at : at + size])
            for at, size in zip(positions, sizes, strict=True)
        ]


def get(
    store: MessageStore, offset: int = 0, count: int = 10_000, wanted: Filter | None = None
) -> GetMessageResult:
    return store.get_message(TOPIC, 0, offset, count, 1 << 30, wanted)


def with_little_memory(store: MessageStore, memory_bytes: int) -> MessageStore:
    """Machine with only the end of the log in the page cache."""
    parts = store._parts
    store.reader = MessageReader(
        store.config, parts.table, parts.log, parts.stats, store._clock, memory_bytes=memory_bytes
    )
    return store


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("", 0, 32),
        ("max_transfer_count_on_message_in_memory", 5, 5),
        ("max_transfer_count_on_message_in_memory", 100, 100),
        ("max_transfer_bytes_on_message_in_memory", 1_000, 4),
        ("max_transfer_bytes_on_message_in_memory", 1, 1),
    ],
)
def test_recent_messages_are_limited(setting: str, value: int, expected: int) -> None:
    kit = Kit(**({setting: value} if setting else {}))
    store = kit.open()
    put_many(store, 150)
    result = get(store)
    assert (result.status, result.count, result.next_begin_offset) == (FOUND, expected, expected)
    assert result.size_bytes == sum(len(each) for each in result.buffers)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("", 0, 8),
        ("max_transfer_count_on_message_in_disk", 3, 3),
        ("max_transfer_count_on_message_in_disk", 50, 50),
        ("max_transfer_bytes_on_message_in_disk", 1_000, 4),
    ],
)
def test_old_messages_are_limited_more(setting: str, value: int, expected: int) -> None:
    kit = Kit(**({setting: value} if setting else {}))
    store = with_little_memory(kit.open(), 2_000)  # 40 % of it: the last three messages
    put_many(store, 150)
    assert get(store).count == expected
    assert get(store, 147).count == 3
    assert get(store, count=2).count == 2
    assert bodies(store) == bodies(with_little_memory(store, 1 << 40))


@pytest.mark.parametrize(("weight", "looked_at"), [(2, 400), (25, 32), (32, 32), (1_000, 32)])
def test_filter_that_costs_more_looks_at_fewer_entries(weight: int, looked_at: int) -> None:
    store = Kit(mapped_file_size_commit_log=1 << 20).open()
    put_many(store, 1_000, size=8)
    tags = Filter(code=77)
    tags.weight = weight
    result = get(store, count=1 << 30, wanted=tags)
    assert (result.status, result.next_begin_offset) == (NONE_MATCHED, looked_at)
    assert tags.looked_at == looked_at
    part = store.reader.begin_plain(TOPIC, 0, 0, (32, 1 << 20), weight)
    assert part is not None
    assert len(part.entries) == looked_at * ENTRY_BYTES
    assert store.reader.end_plain(part, looked_at, 0), "no more is looked at"


def test_filter_that_takes_nothing_looks_at_a_bounded_number_of_entries() -> None:
    kit = Kit(mapped_file_size_commit_log=1 << 20)
    store = kit.open()
    put_many(store, 2_000, size=8)
    put_many(store, 1, 2_000)
    tags = Filter(code=77)
    result = get(store, count=1 << 30, wanted=tags)
    assert (result.status, result.next_begin_offset) == (NONE_MATCHED, 800)
    assert tags.looked_at == 800
    offset, rounds = 0, 0
    while offset < 2_001:
        result = get(store, offset, wanted=Filter(code=77))
        assert result.status is NONE_MATCHED
        offset, rounds = result.next_begin_offset, rounds + 1
    assert rounds == 3
    assert get(store, 1_900, wanted=Filter(body=b"00002000")).count == 1


def test_bytes_looked_at_for_nothing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.store.read.selection._MAX_WASTED_BYTES", 10_000)
    store = Kit().open()
    put_many(store, 100, size=800)
    result = get(store, wanted=Filter(body=b"nothing has this"))
    assert (result.status, result.next_begin_offset) == (NONE_MATCHED, 12)


def test_read_returns_early_matches_without_further_scan() -> None:
    store = Kit().open()
    put_many(store, 20)
    store._table.flush()
    put_many(store, 20, 20)
    assert [get(store, offset).next_begin_offset for offset in (0, 19, 20)] == [20, 20, 40]


def test_read_continues_in_memory_after_no_match_on_disk() -> None:
    store = Kit().open()
    put_many(store, 20)
    store._table.flush()
    put_many(store, 20, 20)
    result = get(store, wanted=Filter(body=b"00000030"))
    assert (result.status, result.count) == (FOUND, 1)


def test_sector_that_cannot_be_read_costs_its_message_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = with_little_memory(Kit().open(), 0)
    sent = put_many(store, 20)
    bad = store.queue_entry(TOPIC, 0, 7)
    assert bad is not None
    real = store._log.record_from_disk

    def read(offset: int, size_bytes: int) -> memoryview | None:
        if offset == bad[0]:
            raise OSError(errno.EIO, "Input/output error")
        return real(offset, size_bytes)

    monkeypatch.setattr(store._log, "record_from_disk", read)
    assert bodies(store) == [*sent[:7], *sent[8:]]
    assert store.damaged_phy_offsets == [bad[0]]


@contextlib.contextmanager
def real_store(path: Path) -> Iterator[MessageStore]:
    kit = Kit(store_path_root_dir=str(path))
    store = MessageStore(kit.config, clock=kit.clock, files=RealFiles())
    store.open()
    yield store
    store.close()


def test_read_beside_retention_keeps_what_it_found(tmp_path: Path) -> None:
    with real_store(tmp_path) as store:
        sent = put_many(store, 200)
        result = get(store, 3)
        mapped = store._log.files[0]
        assert store._log.delete_oldest()
        found = [decode_message(each, check_crc=True).body for each in result.buffers]
        assert found == sent[3:35]
        assert bytes(mapped.view[:4])  # a reader that had found the file before it went
        gone = get(store, 0)
        assert gone.status in {GetMessageStatus.MESSAGE_WAS_REMOVING, FOUND}
        store._table.delete_expired(store.min_phy_offset)
        assert bodies(store) == sent[store.min_offset(TOPIC, 0) :]


def test_queue_that_is_not_there() -> None:
    store = Kit().open()
    assert store.get_message("None", 3, 0, 32, 1_000).status is (
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    )
    store.put_message(message(b"x"))
    assert get(store, 1).status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_entry_that_names_another_record_leaves_that_record_to_its_own_queue() -> None:
    store = Kit().open()
    sent = put_many(store, 3)
    own = store.queue_entry(TOPIC, 0, 1)
    assert own is not None
    store.put_message(message(b"other", queue_id=1))
    lying = store._table.get(TOPIC, 1)
    assert lying is not None
    store._table.flush()
    lying.restart_at(0)
    lying.put_recovered(0, own[0], own[1] + 17, 0)
    store._log.verified_from = 1 << 40  # as after a start: messages are checked on their way out
    assert bodies(store, 1) == []
    assert bodies(store) == sent
    assert store.damaged_phy_offsets == []


def test_entries_come_in_runs_from_disk_and_from_memory() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 40)
    store.close()
    store = kit.open()  # those are on disk now
    put_many(store, 10)

    single = [store.queue_entry(TOPIC, 0, at) for at in range(50)]
    assert None not in single
    found: list[tuple[int, int, int]] = []
    while run := store.queue_entries(TOPIC, 0, len(found), 32):
        assert len(run) <= 32
        found += run
    assert found == single

    assert store.queue_entries(TOPIC, 0, 45, 3) == single[45:48]
    assert store.queue_entries(TOPIC, 0, 50, 32) == []
    assert store.queue_entries(TOPIC, 0, -1, 32) == []
    assert store.queue_entries("nobody", 0, 0, 32) == []


def seen(result: GetMessageResult) -> tuple[GetMessageStatus, int, int, list[bytes]]:
    buffers = [bytes(each) for each in result.buffers]
    assert result.count == len(buffers)
    assert result.size_bytes == sum(map(len, buffers))
    return result.status, result.next_begin_offset, result.max_offset, buffers


@pytest.mark.parametrize("seed", sample(range(12), 2))
def test_many_records_matched_at_once_are_read_as_they_are_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With limits, damage, another life, old messages and ends of files in between."""
    rng = random.Random(seed)
    monkeypatch.setattr(
        "rocketpy.store.read.selection._MAX_WASTED_BYTES", rng.choice([5_000, 1 << 20])
    )
    kit = Kit(
        max_transfer_count_on_message_in_memory=rng.choice([1, 9, 32, 500]),
        max_transfer_bytes_on_message_in_memory=rng.choice([2_000, 20_000, 1 << 20]),
        mapped_file_size_commit_log=rng.choice([16_384, 1 << 20]),
    )
    store = kit.open()
    for number in range(600):
        body = rng.choice([b"odd", b"even", b"even"]) + b"x" * rng.choice([9, 9, rng.randrange(99)])
        store.put_message(message(body, queue_id=rng.choice([0, 0, 1])))
        if number == 300:
            store._table.flush()
    total = store.max_offset(TOPIC, 0)
    entries = store.queue_entries(TOPIC, 0, 0, 1_000)
    if seed % 3 == 0:
        for _ in range(5):
            store._log.report_damage(rng.choice(entries)[0], "a test says so")
    if seed % 4 == 0:
        store._log.verified_from = entries[len(entries) // 2][0]
    store = with_little_memory(store, rng.choice([1 << 30, 50_000]))
    used = RunFilter(b"odd")
    for offset in [*range(0, total, 7), *range(total - 12, total)]:
        count, size = rng.choice([1, 10, 32, 1_000]), rng.choice([100, 9_000, 1 << 30])
        used.declines_after = len(used.runs) + rng.choice([0, 1, 99, 99, 99])
        at_once = store.get_message(TOPIC, 0, offset, count, size, used)
        single = store.get_message(TOPIC, 0, offset, count, size, Filter(body=b"odd"))
        assert seen(at_once) == seen(single)
    assert used.runs
    assert max(used.runs) <= 256


@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_usual_messages_are_read_together_as_they_are_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With limits, damage, another life, old messages and ends of files in between."""
    rng = random.Random(seed)
    kit = Kit(
        max_transfer_count_on_message_in_memory=rng.choice([1, 9, 32]),
        max_transfer_bytes_on_message_in_memory=rng.choice([2_000, 20_000, 1 << 20]),
        mapped_file_size_commit_log=rng.choice([16_384, 1 << 20]),
        mapped_file_size_consume_queue=rng.choice([400, 1 << 20]),
    )
    store = kit.open()
    for number in range(500):
        body = b"x" * rng.choice([9, 9, rng.randrange(200)])
        store.put_message(message(body, queue_id=rng.choice([0, 0, 0, 1])))
        if number == 200:
            store._table.flush()
    total = store.max_offset(TOPIC, 0)
    entries = [store.queue_entries(TOPIC, 0, at, 1)[0] for at in range(total)]
    if seed % 4 == 1:
        store._log.verified_from = entries[total // 2][0]
    store = with_little_memory(store, rng.choice([1 << 30, 40_000]))
    for _ in range(2):
        for offset in [*range(-1, total, 5), *range(total - 12, total + 2)]:
            count, size = rng.choice([1, 10, 32, 1_000]), rng.choice([100, 900, 9_000, 1 << 30])
            together = store.get_message(TOPIC, 0, offset, count, size)
            with monkeypatch.context() as patched:
                patched.setattr("rocketpy.store.read.selection.plain_run", lambda *_, **__: None)
                single = store.get_message(TOPIC, 0, offset, count, size)
            assert seen(together) == seen(single)
        store._log.report_damage(rng.choice(entries)[0], "a test says so")


def test_unordered_queue_entries_are_read_one_by_one() -> None:
    """Read damaged entries without touching bytes beyond the file."""
    store = Kit().open()
    put_many(store, 40)
    entries = store.queue_entries(TOPIC, 0, 0, 40)
    queue = store._table.get(TOPIC, 0)
    assert queue is not None
    _, tail = queue.tail
    used = RunFilter(b"000000")
    for size in (0, -5, 1 << 30):
        ENTRY.pack_into(tail, 20 * ENTRY_BYTES, entries[20][0], size, 0)
        result = get(store, 19, wanted=used)
        assert used.runs == []
        assert seen(result) == seen(get(store, 19, wanted=Filter(body=b"000000")))
    ENTRY.pack_into(tail, 20 * ENTRY_BYTES, *entries[3])
    assert seen(get(store, 19, wanted=used)) == seen(get(store, 19, wanted=Filter(body=b"000000")))
    assert used.runs == []
