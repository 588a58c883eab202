"""Audits of store directories report exactly the damaged messages."""

import random
import shutil
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.tags import tags_code
from rocketpy.runtime.clock import SystemClock
from rocketpy.spark.jobs.audit import audit_here, decode_audit, encode_audit
from rocketpy.spark.jobs.audit_store import Audit, Finding, Store, by_message
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.queue_entry import ENTRY
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageStatus

COUNT = 25
LOG_BYTES = 1 << 14


def open_store(root: Path) -> MessageStore:
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=LOG_BYTES,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=20,
        max_index_num=50,
    )
    store = MessageStore(config, clock=SystemClock())
    store.open()
    return store


def put(store: MessageStore, topic: str, queue_id: int, number: int) -> None:
    body = f"{topic}/{queue_id}/{number}/".encode().ljust(200, b"x")
    properties = f"TAGS\x01tag{number % 3}\x02KEYS\x01k{number}\x02".encode()
    message = PutMessage(
        topic, queue_id, body, properties=properties, tags_code=tags_code(f"tag{number % 3}")
    )
    assert store.put_message(message).status is PutMessageStatus.PUT_OK


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of two topics and three queues."""
    root = tmp_path_factory.mktemp("store") / "intact"
    store = open_store(root)
    for number in range(COUNT):
        put(store, "A", 0, number)
        put(store, "A", 1, number)
        put(store, "B", 0, number)
    store.close()
    return root


@pytest.fixture
def copy(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "copy"))


def audit(root: Path) -> tuple[Audit, list[Finding]]:
    done = audit_here(Store.find(root), lambda _: None)
    return done, by_message(done.findings)


def flip(root: Path, phy_offset: int, value: int = 0x40) -> None:
    """Change one byte of the log."""
    base = phy_offset // LOG_BYTES * LOG_BYTES
    path = root / "commitlog" / f"{base:020d}"
    with path.open("r+b") as file:
        file.seek(phy_offset - base)
        byte = file.read(1)[0]
        file.seek(phy_offset - base)
        file.write(bytes([byte ^ value]))


def record_at(root: Path, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
    """Return physical offset and size of a message."""
    base = offset * 20 // 400 * 400
    path = root / "consumequeue" / topic / str(queue_id) / f"{base:020d}"
    phy_offset, size_bytes, _ = ENTRY.unpack_from(path.read_bytes(), offset * 20 - base)
    return phy_offset, size_bytes


def test_audit_of_an_intact_store_finds_nothing(intact: Path) -> None:
    done, findings = audit(intact)
    assert findings == []
    assert (done.records, done.entries, done.pending) == (3 * COUNT, 3 * COUNT, 0)
    assert {topic for topic, _ in done.days} == {"A", "B"}
    assert sum(done.days.values()) == done.size_bytes


def test_audit_of_a_changed_body_byte_finds_that_message(copy: Path, intact: Path) -> None:
    rng = random.Random(1)
    for _ in range(6):
        queue, offset = rng.choice([("A", 0), ("A", 1), ("B", 0)]), rng.randrange(COUNT)
        phy_offset, _ = record_at(intact, *queue, offset)
        at = phy_offset + 88 + rng.randrange(200)
        flip(copy, at)
        done, findings = audit(copy)
        assert [each.phy_offset for each in findings] == [phy_offset]
        assert (findings[0].queue_id, findings[0].queue_offset) == (queue[1], offset)
        assert findings[0].topic == queue[0]
        assert "body" in findings[0].problem
        assert done.records == 3 * COUNT
        flip(copy, at)
    assert audit(copy)[1] == []


def test_audit_of_any_changed_record_byte_finds_only_that_message(copy: Path, intact: Path) -> None:
    """Unreported bytes have no checksum and no copy: times, hosts, flags, keys."""
    unseen = set()
    phy_offset, size_bytes = record_at(intact, "A", 1, 7)
    for at in range(size_bytes):
        flip(copy, phy_offset + at)
        _, findings = audit(copy)
        assert {each.phy_offset for each in findings} <= {phy_offset}, f"byte {at}"
        if not findings:
            unseen.add(at)
        flip(copy, phy_offset + at)
    body = set(range(88, 288))
    lengths_and_places = {*range(12), *range(12, 16), *range(20, 36)}
    assert not unseen & (body | lengths_and_places)
    topic_and_properties_length = set(range(288, 292))
    tags = set(range(292, 302))  # TAGS 0x01 tag1 0x02
    assert not unseen & (topic_and_properties_length | tags)


def test_audit_of_an_erased_record_finds_it(copy: Path, intact: Path) -> None:
    phy_offset, size_bytes = record_at(intact, "B", 0, 20)
    path = copy / "commitlog" / f"{phy_offset // LOG_BYTES * LOG_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(phy_offset % LOG_BYTES)
        file.write(bytes(size_bytes))
    _, findings = audit(copy)
    assert [(each.phy_offset, each.topic, each.queue_offset) for each in findings] == [
        (phy_offset, "B", 20)
    ]
    assert f"{size_bytes} bytes are no record" in findings[0].problem


def test_audit_of_any_changed_entry_byte_finds_that_entry(copy: Path) -> None:
    path = sorted((copy / "consumequeue" / "A" / "0").iterdir())[1]
    first = int(path.name) // 20
    intact = path.read_bytes()
    for at in range(20):
        path.write_bytes(intact[: 40 + at] + bytes([intact[40 + at] ^ 0x40]) + intact[41 + at :])
        _, findings = audit(copy)
        assert any((each.topic, each.queue_offset) == ("A", first + 2) for each in findings), at
        assert {each.queue_offset for each in findings} == {first + 2}
    path.write_bytes(intact)
    assert audit(copy)[1] == []


def test_audit_of_a_missing_queue_finds_its_messages(copy: Path) -> None:
    shutil.rmtree(copy / "consumequeue" / "B")
    _, findings = audit(copy)
    assert len(findings) == COUNT
    assert {each.problem for each in findings} == {"its queue has no entry for it"}


def test_audit_of_a_store_in_use_finds_nothing(tmp_path: Path) -> None:
    """Entries in the broker's memory and a half-written message are not damage."""
    store = open_store(tmp_path / "s")
    for number in range(30):
        put(store, "A", 0, number)
    done, findings = audit(tmp_path / "s")
    assert findings == []
    assert done.records == 30
    assert done.pending + done.entries == 30
    end = store.max_phy_offset
    flip(tmp_path / "s", end, 0x7F)
    assert audit(tmp_path / "s")[1] == []
    flip(tmp_path / "s", end, 0x7F)
    store.close()


def test_audit_of_a_deleted_topic_finds_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    for number in range(10):
        put(store, "A", 0, number)
        put(store, "B", 0, number)
    store.delete_topics({"B"})
    store.close()
    done, findings = audit(tmp_path / "s")
    assert findings == []
    assert done.records == 20


def test_encode_audit_round_trip() -> None:
    audit = Audit([Finding(1, "T", 2, 3, "x")], 4, 5, 6, 7, {("T", "2026-06-01"): 8})
    assert decode_audit(encode_audit(audit)) == audit
    audit.add(decode_audit(encode_audit(audit)))
    assert (audit.records, audit.days, len(audit.findings)) == (8, {("T", "2026-06-01"): 16}, 2)


def test_store_find_without_a_store_raises(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="is not a store directory"):
        Store.find(tmp_path)
