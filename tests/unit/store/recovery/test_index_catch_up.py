"""Catch-up completes the index from the log and skips records without index entries."""

import errno
from pathlib import Path

import pytest

from rocketpy.store.files.store_files import Region
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage
from tests.unit.store.store_kit import OK, TOPIC, Kit, put_many

FOREVER = (1 << 63) - 1


def put(store: MessageStore, topic: str, key: str, size: int = 100) -> int:
    result = store.put_message(
        PutMessage(topic, 0, bytes(size), f"UNIQ_KEY\x01{key}\x02".encode(), uniq_key=key)
    )
    assert result.status is OK
    return result.phy_offset


def without_index(kit: Kit) -> MessageStore:
    """The next start after a kill took the index, completed as far as it can be."""
    kit.open()
    kit.files.kill()
    kit.files.remove_tree(Path("/store/index"))
    store = kit.open()
    for _ in range(100):
        kit.step(store, "IndexCatchUpService")
    return store


def found(store: MessageStore, topic: str, key: str) -> list[int]:
    result = store.query_index(topic, key, 64, 0, FOREVER)
    assert result.is_complete
    return result.phy_offsets


@pytest.mark.parametrize("damage", [b"\xff" * 8, b"\0\0\0\x7f", b"\0" * 8])
def test_damaged_frame_costs_only_its_message(damage: bytes) -> None:
    kit = Kit(max_index_num=1_000)
    store = kit.open()
    places = [put(store, "T", f"key-{number}") for number in range(200)]
    store.close()
    victim = places[60]
    file, position = divmod(victim, 16384)
    node = kit.files._names[Path("/store/commitlog") / f"{file * 16384:020d}"]
    assert node is not None
    node.memory[position : position + len(damage)] = damage
    again = without_index(kit)
    for number, place in enumerate(places):
        if place != victim:
            assert found(again, "T", f"key-{number}") == [place]


def test_more_than_a_slice_without_anything_for_the_index_is_passed() -> None:
    kit = Kit(mapped_file_size_commit_log=4 << 20, max_index_num=1_000)
    store = kit.open()
    put(store, "T", "first")
    for number in range(30):
        put(store, "Gone", f"key-{number}", size=100_000)
    store.delete_topics(["Gone"])
    last = put(store, "T", "last")
    store.close()
    again = without_index(kit)
    assert found(again, "T", "last") == [last]
    assert found(again, "Gone", "key-3") == []


@pytest.mark.parametrize("operation", ["create", "allocate"])
def test_disk_that_fails_the_index_costs_no_look_up(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails one operation on an index file, which is no flush: nothing latches."""
    kit = Kit(max_msgs_num_batch=1_000)
    store = kit.open()
    put_many(store, 3 if operation == "allocate" else 0)
    before = kit.files.before

    def fail(what: str, path: Path) -> None:
        if "index" in path.parts:
            raise OSError(errno.EIO, "simulated disk failure")
        before(what, path)

    create = kit.files.create

    def fail_create(path: Path, size_bytes: int) -> Region:
        fail("create", path)
        return create(path, size_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(kit.files, "before", fail)
        patch.setattr(kit.files, "create", fail_create)
        put_many(store, 60, 3)
    assert store.is_writable
    assert not store.query_index(TOPIC, "k", 100, 0, 1 << 60).is_complete
    for _ in range(20):
        kit.step(store, "IndexCatchUpService")
    found = store.query_index(TOPIC, "k", 100, 0, 1 << 60)
    assert found.is_complete
    assert len(found.phy_offsets) == (63 if operation == "allocate" else 60)


def test_store_closed_with_incomplete_index_logs_and_continues_at_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit(max_index_num=1_000)
    store = kit.open()
    places = [put(store, "T", f"key-{number}") for number in range(200)]
    store.close()
    kit.open()
    kit.files.kill()
    kit.files.remove_tree(Path("/store/index"))

    caplog.set_level("INFO")
    kit.open().close()
    assert "index incomplete at close, the next start completes it" in caplog.text
    assert kit.files.exists(Path("/store/abort")), "else the next start would take it for whole"

    again = kit.open()
    for _ in range(100):
        kit.step(again, "IndexCatchUpService")
    assert [found(again, "T", f"key-{number}") for number in range(200)] == [[at] for at in places]
    again.close()
    assert not kit.files.exists(Path("/store/abort"))
