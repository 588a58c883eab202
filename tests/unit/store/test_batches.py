"""A batch leaves exactly what the same messages put one by one leave."""

import random
from pathlib import Path

import pytest

from rocketpy.proto.record.record import record_store_timestamp_ms
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import BatchColumns, BatchEntry, PutBatch, PutMessage
from tests.sampling import sample
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies

V4 = b"\x7f\x00\x00\x01\x00\x00\x00\x05"
V6 = bytes(15) + b"\x01" + b"\x00\x00\x00\x05"


def entries(count: int, *, tagged: bool = False, keyed: bool = False) -> list[BatchEntry]:
    made = []
    for number in range(count):
        tag = f"t{number % 3}" if tagged else None
        made.append(
            BatchEntry(
                f"body-{number}".encode() * (1 + number % 5),
                f"UNIQ_KEY\x01ID{number:08d}\x02".encode(),
                number,
                tags_code(tag),
                f"ID{number:08d}",
                f"k{number} same" if keyed else None,
                tag,
            )
        )
    return made


def put_alone(store: MessageStore, each: BatchEntry, born_host: bytes) -> None:
    message = PutMessage(
        TOPIC, 0, each.body, each.properties, born_host, each.flag, 0, 7,
        each.tags_code, each.uniq_key, each.keys, each.tags,
    )  # fmt: skip
    assert store.put_message(message).status is OK


def everything(store: MessageStore, keys: list[str]) -> tuple[object, ...]:
    """Queue entries, records and index answers of a store."""
    queue = [store.queue_entry(TOPIC, 0, offset) for offset in range(store.max_offset(TOPIC, 0))]
    records = [bytes(store.look_message(entry[0]) or b"") for entry in queue if entry]
    found = [store.query_index(TOPIC, key, 64, 0, 1 << 60).phy_offsets for key in keys]
    return queue, records, found


@pytest.mark.parametrize("born_host", [V4, V6], ids=["v4", "v6"])
@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_together_or_alone_is_the_same(
    mode: str, born_host: bytes, *, tagged: bool, keyed: bool
) -> None:
    made = entries(40, tagged=tagged, keyed=keyed)
    keys = [f"ID{number:08d}" for number in range(40)] + ["k7", "same"]
    together, alone = Kit(flush_disk_type=mode), Kit(flush_disk_type=mode)
    first, second = together.open(), alone.open()
    result = first.put_batch(PutBatch(TOPIC, 0, BatchColumns.of(made), born_host, 0, 7))
    for each in made:
        put_alone(second, each, born_host)
    for kit, store in ((together, first), (alone, second)):
        if mode == "SYNC_FLUSH":
            assert bodies(store) == []
            kit.step(store, "GroupCommitService")

    assert result.status is OK
    assert bodies(first) == [each.body for each in made]
    assert everything(first, keys) == everything(second, keys)
    assert first.max_phy_offset == second.max_phy_offset
    assert len(result.phy_offsets) == 40
    assert (result.phy_offset, result.queue_offset) == (0, 0)


def random_batch(rng: random.Random) -> list[BatchEntry]:
    """Messages of one shape or of several, with ids that differ in few or many characters."""
    is_mixed = rng.random() < 0.3
    id_format = rng.choice(["ID{:08d}", "{:032X}", "{:d}", "k\u00e9y{:06d}"])
    made = []
    for number in range(rng.randrange(1, 40)):
        uniq_key = id_format.format(rng.randrange(rng.choice([20, 1 << 40])))
        has = rng.random() if is_mixed else 1.0
        tag = "t" if has < 0.2 else None
        made.append(
            BatchEntry(
                rng.randbytes(rng.randrange(60) if is_mixed else 20),
                f"UNIQ_KEY\x01{uniq_key}\x02".encode(),
                number if is_mixed else 0,
                tags_code(tag),
                None if 0.2 < has < 0.3 else uniq_key,
                "k1 k2" if 0.3 < has < 0.5 else None,
                tag,
            )
        )
    return made


def written_files(kit: Kit) -> dict[Path, bytes]:
    """Every byte of log, queues and index."""
    found = {}
    for directory in ("commitlog", f"consumequeue/{TOPIC}/0", "index"):
        path = Path("/store") / directory
        for name in kit.files.list_files(path):
            found[path / name] = bytes(kit.files.open(path / name).view)
    return found


@pytest.mark.parametrize("seed", sample(range(25), 2))
def test_batch_leaves_the_bytes_that_its_messages_leave_alone(seed: int) -> None:
    rng = random.Random(seed)
    born_host = rng.choice([V4, V6])
    sizes = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": rng.choice([5, 5_000])}
    together, alone = Kit(**sizes), Kit(**sizes)
    first, second = together.open(), alone.open()
    for _ in range(4):
        made = random_batch(rng)
        put = first.put_batch(PutBatch(TOPIC, 0, BatchColumns.of(made), born_host, 0, 7))
        assert put.status is OK
        for each in made:
            put_alone(second, each, born_host)
    first.close()
    second.close()

    written = written_files(together)
    assert len(written) >= 3
    assert written == written_files(alone)


def test_batches_cross_files_of_log_queue_and_index() -> None:
    kit = Kit()
    store = kit.open()
    made = entries(30)
    for _ in range(20):
        assert store.put_batch(PutBatch(TOPIC, 0, BatchColumns.of(made), V4, 0, 7)).status is OK

    assert bodies(store) == [each.body for each in made] * 20
    assert kit.files.unallocated_writes() == []
    found = store.query_index(TOPIC, "ID00000003", 64, 0, 1 << 60)
    assert len(found.phy_offsets) == 20
    store.close()
    assert bodies(kit.open()) == [each.body for each in made] * 20


def test_arrivals_name_each_tag_once_and_the_end_of_the_batch() -> None:
    kit = Kit()
    store = kit.open()
    store.put_batch(PutBatch(TOPIC, 0, BatchColumns.of(entries(9, tagged=True)), V4, 0, 7))

    assert sorted(kit.arrivals) == sorted(
        (TOPIC, 0, 9, tags_code(tag)) for tag in ("t0", "t1", "t2")
    )
    entry = store.queue_entry(TOPIC, 0, 8)
    assert entry is not None
    record = store.look_message(entry[0])
    assert record is not None
    assert record_store_timestamp_ms(record, 0) == kit.clock.time_ms()
