"""A run leaves what its messages leave that are put one by one, or nothing at all."""

import pytest

from rocketpy.errors import DiskFullError
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.append.bulk_append import BulkAppend, PlacedRun, PutRun
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies

HOST = b"\x0a\0\0\1\0\0\0\5"
QUEUES = (0, 1, 2)
KEYS = [f"ID{number:08d}" for number in range(12)] + ["k1", "same"]


def messages(count: int, start: int = 0) -> list[PutMessage]:
    """Messages for several queues that differ in all they may."""
    return [
        PutMessage(
            TOPIC, n % 3, b"%04d" % n * (1 + n % 4), b"UNIQ_KEY\x01ID%08d\x02" % n, HOST, n,
            0x12 * (n % 2), 7 + n, tags_code(f"t{n % 2}"), f"ID{n:08d}",
            f"k{n} same" if n % 3 else None, f"t{n % 2}" if n % 5 else None, n % 4,
        )
        for n in range(start, start + count)
    ]  # fmt: skip


def run_of(sent: list[PutMessage]) -> PutRun:
    rows = [
        (
            each.queue_id, each.body, each.properties, each.flag, each.sys_flag,
            each.born_timestamp_ms, each.reconsume_times, each.tags_code, each.uniq_key or "",
            each.keys, each.tags,
        )
        for each in sent
    ]  # fmt: skip
    return PutRun(*zip(*rows, strict=True))


def put_run(store: MessageStore, sent: list[PutMessage], host: bytes = HOST) -> PlacedRun | None:
    return BulkAppend(store.direct).put(TOPIC, host, run_of(sent))


def opened(**config: object) -> tuple[Kit, MessageStore]:
    """A store in which each queue has a message: a run goes to known queues only."""
    kit = Kit(**config)
    store = kit.open()
    for each in messages(3):
        assert store.put_message(each).status is OK
    kit.step(store, "GroupCommitService" if config else "FlushRealTimeService")
    return kit, store


def everything(store: MessageStore) -> object:
    entries = [
        [store.queue_entry(TOPIC, queue_id, n) for n in range(store.max_offset(TOPIC, queue_id))]
        for queue_id in QUEUES
    ]
    records = [bytes(store.look_message(e[0]) or b"") for each in entries for e in each if e]
    found = [store.query_index(TOPIC, key, 64, 0, 1 << 60).phy_offsets for key in KEYS]
    return entries, records, found, store.max_phy_offset


@pytest.mark.parametrize("config", [{}, {"flush_disk_type": "SYNC_FLUSH"}])
def test_together_or_alone_is_the_same(config: dict[str, object]) -> None:
    (together, first), (_, second) = opened(**config), opened(**config)
    sent = messages(9, 3)
    together.arrivals.clear()
    placed = put_run(first, sent)
    alone = [second.put_message(each) for each in sent]
    assert placed is not None
    assert list(placed.phy_offsets) == [each.phy_offset for each in alone]
    assert list(placed.queue_offsets) == [each.queue_offset for each in alone]
    assert placed.phy_end == alone[-1].phy_end
    if config:
        assert together.arrivals == []
        for store in (first, second):
            together.step(store, "GroupCommitService")
    assert everything(first) == everything(second)
    assert len(bodies(first, 2)) == 4
    codes = {tags_code("t0"), tags_code("t1")}
    assert sorted(together.arrivals) == sorted((TOPIC, q, 4, c) for q in QUEUES for c in codes)


def refused(kit: Kit, store: MessageStore, sent: list[PutMessage], host: bytes = HOST) -> None:
    """Check that a rejected bulk append leaves the store unchanged and usable."""
    before, kit.arrivals[:] = everything(store), []
    assert put_run(store, sent, host) is None
    assert everything(store) == before
    assert kit.arrivals == []
    assert put_run(store, messages(3, 6)) is not None


def test_a_queue_that_nothing_was_put_to_is_not_for_runs() -> None:
    kit, store = opened()
    sent = messages(4, 3)
    sent[2].queue_id = 7
    refused(kit, store, sent)


@pytest.mark.parametrize(("name", "value"), [("flag", 1 << 40), ("born_timestamp_ms", 1 << 70)])
def test_a_number_that_does_not_fit_stores_none_of_them(name: str, value: int) -> None:
    kit, store = opened()
    sent = messages(4, 3)
    setattr(sent[3], name, value)
    refused(kit, store, sent)


def test_senders_with_wide_addresses_are_not_for_runs() -> None:
    refused(*opened(), messages(4, 3), bytes(20))


def test_bulk_append_larger_than_file_is_left_to_single_puts() -> None:
    kit, store = opened()
    sent = messages(4, 3)
    sent[1].body = b"x" * 16_000
    refused(kit, store, sent)


def test_no_space_is_no_refusal() -> None:
    kit, store = opened()
    log = store._parts.log
    reserve = log.reserve

    def full(*_: object) -> None:
        raise DiskFullError("listener failed")

    log.limit = 0
    log.reserve = full  # type: ignore[method-assign, assignment]
    assert put_run(store, messages(4, 3)) is None
    log.reserve = reserve  # type: ignore[method-assign]
    assert put_run(store, messages(4, 3)) is not None
    assert kit.arrivals
