"""Store directories of Apache 5.4.0, closed cleanly or not, open with every message."""

import hashlib
import json
import lzma
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rocketpy.proto.record.message import decode_message
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import GetMessageStatus, PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock

VECTORS = Path(__file__).parents[2] / "vectors"
NAMES = ("store-small", "store-crashed", "store-torn")


def extract(archive_path: Path, target: Path) -> None:
    with tarfile.open(archive_path) as archive:
        # Python 3.11 has filters since 3.11.4; Debian 12 has 3.11.2.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)


def unpack(name: str, target: Path) -> dict[str, Any]:
    extract(VECTORS / name / "store.tar.xz", target)
    with lzma.open(VECTORS / name / "manifest.json.xz", "rt") as file:
        return json.load(file)


def make_store(root: Path) -> MessageStore:
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=6000,
        mapper_file_size_batch_consume_queue=13800,
        max_hash_slot_num=100,
        max_index_num=400,
        max_message_size=262144,
    )
    return MessageStore(config, clock=SimClock())


def open_store(root: Path) -> MessageStore:
    store = make_store(root)
    store.open()
    return store


def assert_queues(store: MessageStore, manifest: dict[str, Any]) -> None:
    count = 0
    for queue in manifest["queues"]:
        topic, queue_id = queue["topic"], queue["queue_id"]
        assert store.min_offset(topic, queue_id) == queue["min_offset"], topic
        assert store.max_offset(topic, queue_id) == queue["max_offset"], topic
        if queue["type"] != "SimpleCQ":
            continue
        offset = queue["min_offset"]
        for message in queue["messages"]:
            result = store.get_message(topic, queue_id, offset, 1, 1 << 20)
            assert result.status is GetMessageStatus.FOUND
            assert result.count == 1
            (record,) = result.buffers
            found = decode_message(record, check_crc=True)
            assert found.phy_offset == message["phy_offset"]
            assert found.store_size_bytes == message["size"]
            assert found.queue_offset == message["stored_queue_offset"]
            assert found.store_timestamp_ms == message["store_timestamp"]
            assert hashlib.sha256(found.body).hexdigest() == message["body_sha256"]
            assert entry(store, topic, queue_id, offset) == (
                message["phy_offset"],
                message["size"],
                message["tags_code"],
            )
            offset = result.next_begin_offset
            count += 1
        after = store.get_message(topic, queue_id, offset, 1, 1 << 20)
        assert after.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert count > 900


def entry(
    store: MessageStore, topic: str, queue_id: int, offset: int
) -> tuple[int, int, int] | None:
    queue = store._table.get(topic, queue_id)
    assert queue is not None
    return queue.entry(offset)


@pytest.mark.parametrize("name", NAMES)
def test_apache_store_has_every_queue_and_message(name: str, tmp_path: Path) -> None:
    manifest = unpack(name, tmp_path)
    store = open_store(tmp_path)

    assert store.max_phy_offset == manifest["commitlog"]["max_offset_after_recovery"]
    assert store.min_phy_offset == manifest["commitlog"]["min_offset"]
    assert_queues(store, manifest)
    assert store.recovery.damaged == []
    store.close()

    again = open_store(tmp_path)
    assert again.max_phy_offset == manifest["commitlog"]["max_offset_after_recovery"]
    assert_queues(again, manifest)
    again.close()
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("name", NAMES)
def test_apache_store_without_checkpoint_offsets_rebuilds_queues(name: str, tmp_path: Path) -> None:
    manifest = unpack(name, tmp_path)
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").write_bytes(b"1")
    store = open_store(tmp_path)
    assert store.recovery.start == 0
    assert store.recovery.record_count == manifest["commitlog"]["messages"]
    assert_queues(store, manifest)
    store.close()


@pytest.mark.parametrize("name", ["store-small", "store-crashed", "store-torn"])
def test_apache_store_without_queues_rebuilds_them(name: str, tmp_path: Path) -> None:
    manifest = unpack(name, tmp_path)
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    store = open_store(tmp_path)
    assert_queues(store, manifest)
    store.close()


def test_apache_store_clean_start_reads_little(tmp_path: Path) -> None:
    unpack("store-small", tmp_path)
    store = open_store(tmp_path)
    assert store.recovery.record_count <= 2
    assert store.recovery.entry_count <= 2
    store.close()


def test_apache_store_torn_resumes_where_apache_would(tmp_path: Path) -> None:
    unpack("store-torn", tmp_path)
    store = open_store(tmp_path)
    result = store.put_message(PutMessage("VecBulk", 0, b"next"))
    assert result.status is PutMessageStatus.PUT_OK
    assert (result.phy_offset, result.queue_offset) == (2450009, 1612)
    store.close()
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [
        "00000000000000000000",
        "00000000000001048576",
        "00000000000002097152",
    ]


def test_apache_store_index_returns_the_results_of_apache(tmp_path: Path) -> None:
    manifest = unpack("store-small", tmp_path)
    store = open_store(tmp_path)
    for query in manifest["index"]["queries"]:
        key, kind = (query["tag"], "T") if "tag" in query else (query["key"], None)
        found = store.query_index(query["topic"], key, 64, 0, 1 << 62, kind)
        assert found.phy_offsets == query["phy_offsets_newest_first"], query
    store.close()


def test_apache_store_clean_and_unused_changes_no_queue_byte(tmp_path: Path) -> None:
    unpack("store-small", tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("0*") if p.is_file()}
    store = open_store(tmp_path)
    store.close()
    after = {p: p.read_bytes() for p in tmp_path.rglob("0*") if p.is_file()}
    assert before == after


@pytest.mark.parametrize("name", ["store-crashed", "store-torn"])
@pytest.mark.parametrize("stamp_shift_ms", [None, 0, -10_000, 100_000])
@pytest.mark.parametrize("abort", [True, False])
def test_apache_store_torn_consume_queue_is_repaired(
    name: str, stamp_shift_ms: int | None, abort: bool, tmp_path: Path
) -> None:
    """Entry 204 keeps offset and size and loses half its tag hash; zeros follow."""
    manifest = unpack(name, tmp_path)
    bulk = tmp_path / "consumequeue" / "VecBulk" / "0"
    for path in bulk.iterdir():
        if int(path.name) >= 24000:
            content = bytearray(path.read_bytes())
            cut = 4096 if path.name.endswith("24000") else 0
            content[cut:] = bytes(len(content) - cut)
            path.write_bytes(content)
    checkpoint = tmp_path / "checkpoint"
    stamps = [0, 0, 0]
    if stamp_shift_ms is not None:
        found = struct.unpack_from(">qqq", checkpoint.read_bytes())
        stamps = [stamp + stamp_shift_ms for stamp in found]
    checkpoint.write_bytes(struct.pack(">qqq", *stamps).ljust(4096, b"\0"))
    if not abort:
        (tmp_path / "abort").unlink()
    store = open_store(tmp_path)
    assert_queues(store, manifest)
    store.close()


def flip_body_bit(root: Path, phy_offset: int) -> None:
    path = root / "commitlog" / f"{phy_offset >> 20 << 20:020d}"
    content = bytearray(path.read_bytes())
    content[(phy_offset & 0xFFFFF) + 90] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["store-small", "store-crashed"])
@pytest.mark.parametrize("index", [5, 350, -3])
def test_apache_store_flipped_bit_loses_only_its_message(
    name: str, index: int, tmp_path: Path
) -> None:
    manifest = unpack(name, tmp_path)
    bulk = next(queue for queue in manifest["queues"] if queue["topic"] == "VecBulk")
    victim = bulk["messages"][index]
    flip_body_bit(tmp_path, victim["phy_offset"])
    store = open_store(tmp_path)

    assert store.max_phy_offset == manifest["commitlog"]["max_offset_after_recovery"]
    assert store.max_offset("VecBulk", 0) == bulk["max_offset"]
    seen = []
    offset = 0
    while True:
        result = store.get_message("VecBulk", 0, offset, 32, 1 << 20)
        if result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE:
            break
        seen += [decode_message(each, check_crc=True).phy_offset for each in result.buffers]
        offset = result.next_begin_offset
    expected = [m["phy_offset"] for m in bulk["messages"] if m is not victim]
    assert seen == expected
    assert store.damaged_phy_offsets == [victim["phy_offset"]]
    assert store.look_message(victim["phy_offset"]) is None
    store.close()
