"""Leading entries are taken together only where each of them is as usual."""

import random
from typing import Any

import pytest

from rocketpy.proto.record.record_check import is_intact
from rocketpy.store.consume_queue.queue_entry import BLANK_ENTRY, ENTRY
from rocketpy.store.message_store import MessageStore
from rocketpy.store.read.bulk_read import BulkRead, plain_run
from tests.unit.store.store_kit import TOPIC, Kit, bodies, message, put_many

FILE = bytes(range(200))
BASE = 1_000


def run_joined(
    window: memoryview, most_bytes: int, file: tuple[memoryview, int, int]
) -> BulkRead | None:
    return plain_run(window, most_bytes, file, may_join=True)


def run(
    *entries: tuple[int, int], most_bytes: int = 1 << 20, end: int = 200, blank: bool = False
) -> list[bytes] | None:
    packed = [ENTRY.pack(BASE + at, size, 7) for at, size in entries]
    window = memoryview(b"".join([*packed, BLANK_ENTRY] if blank else packed))
    file = memoryview(FILE), BASE, BASE + end
    found, joined = plain_run(window, most_bytes, file), run_joined(window, most_bytes, file)
    if found is None:
        assert joined is None
        return None
    assert joined is not None
    assert joined._replace(records=[]) == found._replace(records=[])
    assert b"".join(joined.records) == b"".join(found.records)
    assert len(found.places) == len(found.records)
    assert found.size_bytes == sum(map(len, found.records))
    assert [BASE + record[0] for record in found.records] == list(found.places)
    return [bytes(record) for record in found.records]


def test_records_one_behind_the_other_with_or_without_others_between() -> None:
    assert run((0, 10)) == [FILE[:10]]
    assert run((0, 10), (10, 5), (40, 160)) == [FILE[:10], FILE[10:15], FILE[40:]]


@pytest.mark.parametrize(
    ("most_bytes", "count"), [(1, 1), (29, 1), (30, 2), (59, 2), (60, 3), (1000, 3)]
)
def test_bulk_read_returns_what_fits_and_at_least_one(most_bytes: int, count: int) -> None:
    found = run((0, 10), (20, 20), (50, 30), most_bytes=most_bytes)
    assert found is not None
    assert len(found) == count


@pytest.mark.parametrize(("end", "count"), [(9, 0), (10, 1), (39, 1), (40, 2)])
def test_bulk_read_stops_at_unwritten_bytes_and_file_end(end: int, count: int) -> None:
    found = run((0, 10), (20, 20), end=end)
    assert len(found or []) == count


@pytest.mark.parametrize(
    "entries",
    [
        [(20, 10), (0, 10)],
        [(0, 10), (9, 10)],
        [(0, 10), (0, 10)],
        [(0, 10), (10, 0)],
        [(0, -3), (10, 5)],
        [(-5, 10), (10, 5)],
    ],
)
def test_entries_out_of_order_or_of_no_record_are_looked_at_one_by_one(
    entries: list[tuple[int, int]],
) -> None:
    assert run(*entries) is None


@pytest.mark.parametrize(
    ("entries", "lengths"),
    [
        ([(0, 10)], [10]),
        ([(0, 10), (10, 5), (15, 1)], [16]),
        ([(0, 10), (10, 5), (20, 5), (25, 7), (32, 1)], [15, 13]),
        ([(0, 10), (10, 5), (20, 5), (30, 5), (35, 5)], [15, 5, 10]),
        ([(0, 10), (11, 5), (16, 5)], [10, 5, 5]),
    ],
)
def test_neighbours_come_as_one_where_the_first_two_are_some(
    entries: list[tuple[int, int]], lengths: list[int]
) -> None:
    window = memoryview(b"".join(ENTRY.pack(BASE + at, size, 7) for at, size in entries))
    found = run_joined(window, 1 << 20, (memoryview(FILE), BASE, BASE + 200))
    assert found is not None
    assert len(found.places) == len(entries)
    assert [len(record) for record in found.records] == lengths
    assert run(*entries)


def test_blank_entry_is_looked_at_by_itself() -> None:
    assert run((0, 10), blank=True) is None


def test_runs_return_what_a_look_at_each_entry_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files and queues, other lengths, damage; messages of this life and of the last."""
    rng = random.Random(7)
    kit = Kit(
        max_transfer_count_on_message_in_memory=40, max_transfer_bytes_on_message_in_memory=5_000
    )

    def put(store: MessageStore, count: int) -> None:
        for number in range(count):
            body = bytes([number % 256]) * rng.choice((0, 1, 30, 100, 700))
            store.put_message(message(body, queue_id=number // rng.choice((1, 1, 6, 40)) % 2))

    store = kit.open()
    put(store, 300)
    bad = [store.queue_entry(TOPIC, 0, at) for at in (5, 60, 61)]
    store.close()
    store = kit.open()
    put(store, 200)
    for entry in bad:
        assert entry is not None
        view, base, _ = store._log.written_part(entry[0])
        view[entry[0] - base + 35] ^= 1  # where it says it lies
    runs = joined_count = 0

    def counted(*args: Any, may_join: bool) -> BulkRead | None:
        nonlocal runs
        found = plain_run(*args, may_join=may_join)
        runs += found is not None
        return found

    for _ in range(600):
        store._log.verified_from = rng.choice((0, 1 << 40))  # of which life the messages are
        where = (TOPIC, rng.randrange(2), rng.randrange(260), rng.randrange(1, 60))
        most_bytes = rng.choice((1, 300, 3_000, 1 << 20))
        monkeypatch.setattr("rocketpy.store.read.selection.plain_run", counted)
        found = store.get_message(*where, most_bytes)
        joined = store.get_message(*where, most_bytes, may_join=True)
        monkeypatch.setattr("rocketpy.store.read.selection.plain_run", lambda *_, **__: None)
        assert found == store.get_message(*where, most_bytes)
        joined_count += len(joined.buffers) < len(found.buffers)
        assert b"".join(joined.buffers) == b"".join(found.buffers)
        joined.buffers = found.buffers
        assert joined == found
    assert runs > 50
    assert joined_count > 20
    assert len(store.damaged_phy_offsets) == len(bad)


def test_sequential_reads_check_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Kit(mapped_file_size_commit_log=1 << 20).open()
    sent = put_many(store, 96)
    store._log.verified_from = 1 << 40
    checked: list[int] = []

    def count(record: memoryview, phy_offset: int) -> bool:
        checked.append(phy_offset)
        return is_intact(record, phy_offset)

    monkeypatch.setattr("rocketpy.store.read.selection.is_intact", count)
    for _ in range(3):
        assert bodies(store) == sent
    assert len(checked) == len(sent)
