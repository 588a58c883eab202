"""Files removed from a closed store are rebuilt or reported."""

import dataclasses
import random
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.message import decode_message
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies, put_many


class Worst(random.Random):
    """A power cut that keeps all names, and no content that was not flushed."""

    def randint(self, a: int, b: int) -> int:
        return max(a, b)

    def random(self) -> float:
        return 0.99


LOG = Path("/store/commitlog")
QUEUES = Path("/store/consumequeue")
INDEX = Path("/store/index")


def stored(count: int = 250, **config: object) -> tuple[Kit, list[bytes]]:
    """A closed store of several log, queue (100 entries each) and index files."""
    kit = Kit(**config)
    store = kit.open()
    sent = put_many(store, count)
    assert store.put_message(PutMessage("Other", 0, b"x")).status is OK
    store.close()
    return kit, sent


def file_of(kit: Kit, directory: Path, number: int) -> Path:
    return directory / kit.files.list_files(directory)[number]


def tree(kit: Kit, directory: Path) -> dict[Path, bytes]:
    """The files below a directory."""
    names = kit.files.list_files(directory)
    found = {directory / name: kit.files.read_bytes(directory / name) for name in names}
    for name in kit.files.list_directories(directory):
        found |= tree(kit, directory / name)
    return found


def write_empty(kit: Kit, path: Path) -> None:
    kit.files.remove(path)
    kit.files.write_bytes(path, b"")


# -- the log ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["removed", "empty", "zeros"])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_last_log_file_that_is_gone_refuses_the_start_again_and_again(how: str, end: str) -> None:
    kit, sent = stored()
    if end == "kill":
        kit.open()
        kit.files.kill()
    path = file_of(kit, LOG, -1)
    content = kit.files.read_bytes(path)
    kit.files.remove(path)
    if how != "removed":
        kit.files.write_bytes(path, bytes(len(content) if how == "zeros" else 0))
    before = kit.files.list_files(LOG)
    for _ in range(2):
        with pytest.raises(
            StoreFormatError,
            match=rf"{path} is missing or has only zeros: the log was on disk up to",
        ):
            kit.open()
        assert kit.files.list_files(LOG) == before
    kit.files.remove(path)
    kit.files.write_bytes(path, content)
    assert bodies(kit.open()) == sent


def test_without_its_checkpoint_a_shorter_log_opens() -> None:
    kit, sent = stored()
    kit.files.remove(file_of(kit, LOG, -1))
    kit.files.remove(Path("/store/checkpoint"))
    found = bodies(kit.open())
    assert found == sent[: len(found)]
    assert 100 < len(found) < 250


def content(kit: Kit, directory: Path = Path("/store")) -> dict[Path, bytes]:
    found = {
        directory / name: kit.files.read_bytes(directory / name)
        for name in kit.files.list_files(directory)
    }
    for name in kit.files.list_directories(directory):
        found |= content(kit, directory / name)
    return found


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("how", ["file removed", "file empty", "zeros", "directory removed"])
@pytest.mark.parametrize("kept", ["everything", "queues", "offsets", "copy of offsets", "index"])
def test_lost_log_beside_traces_of_messages_is_refused_and_nothing_changes(
    how: str, end: str, kept: str
) -> None:
    kit, _ = stored(10)
    if end == "kill":
        kit.open()
        kit.files.kill()
    if how == "directory removed":
        kit.files.remove_tree(LOG)
    elif how == "file empty":
        write_empty(kit, file_of(kit, LOG, 0))
    elif how == "zeros":
        path = file_of(kit, LOG, 0)
        size_bytes = kit.files.size_bytes(path)
        kit.files.remove(path)
        kit.files.write_bytes(path, bytes(size_bytes))
    else:
        kit.files.remove(file_of(kit, LOG, 0))
    if kept != "everything":
        kit.files.remove(Path("/store/checkpoint"))
    if kept not in {"everything", "queues"}:
        kit.files.remove_tree(QUEUES)
    if "offsets" in kept:
        kit.files.remove_tree(INDEX)
        kit.files.make_directories(Path("/store/config"))
        offsets = b'{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:0,1:7}}}'
        suffix = ".bak" if "copy" in kept else ""
        kit.files.write_bytes(Path(f"/store/config/consumerOffset.json{suffix}"), offsets)
    before = content(kit)
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=rf"{LOG} has no log file with .* --start-empty"):
            kit.open()
        assert content(kit) == before


@pytest.mark.parametrize("how", ["removed", "zeros"])
def test_lost_log_starts_empty_when_requested(how: str) -> None:
    kit, _ = stored(10)
    size_bytes = kit.files.size_bytes(file_of(kit, LOG, 0))
    kit.files.remove_tree(LOG)
    if how == "zeros":
        kit.files.make_directories(LOG)
        kit.files.write_bytes(LOG / f"{0:020}", bytes(size_bytes))
    store = MessageStore(kit.config, clock=kit.clock, files=kit.files)
    store.open(start_empty=True)
    assert store.recovery.started_empty
    assert store.max_offset(TOPIC, 0) <= 0
    store.close()
    store = kit.open()
    assert not store.recovery.started_empty
    sent = put_many(store, 3)
    store.close()
    again = kit.open()
    assert bodies(again) == sent
    assert not again.recovery.started_empty


def test_start_empty_keeps_a_log_that_is_there() -> None:
    kit, sent = stored(10)
    store = MessageStore(kit.config, clock=kit.clock, files=kit.files)
    store.open(start_empty=True)
    assert bodies(store) == sent
    assert not store.recovery.started_empty


def test_log_without_anything_else_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    kit, sent = stored(10)
    kit.files.remove(Path("/store/checkpoint"))
    kit.files.remove_tree(QUEUES)
    kit.files.remove_tree(Path("/store/config"))
    assert bodies(kit.open()) == sent
    assert "store has only its commit log, and groups have no offsets" in caplog.text
    caplog.clear()
    kit.files.kill()
    kit.open()
    assert "only its commit log" not in caplog.text


@pytest.mark.parametrize("place", ["/log", "/storelog", "/log/below"])
def test_empty_store_directory_beside_a_log_elsewhere_is_refused_and_nothing_changes(
    place: str,
) -> None:
    kit, sent = stored(10, store_path_commit_log=place)
    kit.files.remove_tree(Path("/store"))
    before = kit.files.list_files(Path(place))
    for _ in range(2):
        with pytest.raises(
            StoreFormatError, match=f"/store has neither .*{place} has messages.*storePathRootDir"
        ):
            kit.open()
        assert kit.files.list_files(Path(place)) == before
        assert kit.files.list_directories(Path("/store")) == []
    kit.files.make_directories(Path("/store/config"))  # as the error says
    store = kit.open()
    assert bodies(store) == sent
    store.close()
    assert bodies(kit.open()) == sent


@pytest.mark.parametrize("part", ["checkpoint", "consumequeue", "config"])
def test_store_directory_with_a_part_of_its_files_is_rebuilt_from_a_log_elsewhere(
    part: str,
) -> None:
    kit, sent = stored(10, store_path_commit_log="/log")
    kit.files.make_directories(Path("/store/config"))
    path = Path("/store") / part
    kept = kit.files.read_bytes(path) if part == "checkpoint" else b""
    kit.files.remove_tree(Path("/store"))
    kit.files.make_directories(path.parent if part == "checkpoint" else path)
    if part == "checkpoint":
        kit.files.write_bytes(path, kept)
    assert bodies(kit.open()) == sent


def test_new_store_with_a_log_elsewhere_starts_until_it_has_messages() -> None:
    kit = Kit(store_path_commit_log="/log")
    kit.open()
    kit.files.kill()
    kit.files.remove_tree(Path("/store"))
    store = kit.open()
    assert put_many(store, 1)


def test_new_store_and_offsets_of_zero_need_no_log() -> None:
    kit = Kit()
    kit.files.make_directories(Path("/store/config"))
    offsets = b'{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:0}}}'
    kit.files.write_bytes(Path("/store/config/consumerOffset.json"), offsets)
    kit.open().close()
    kit.open().close()


def test_checkpoint_of_apache_is_not_asked() -> None:
    """Its stamps say nothing about bytes."""
    kit, _ = stored()
    path = Path("/store/checkpoint")
    kit.files.write_bytes(path, kit.files.read_bytes(path)[:40] + bytes(4096 - 40))
    kit.files.remove(file_of(kit, LOG, -1))
    assert len(bodies(kit.open())) > 100


# -- queues ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "kill", "newer queue, kill"])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("how", ["removed", "empty"])
def test_queue_file_that_is_gone_is_made_again(how: str, number: int, end: str) -> None:
    kit, sent = stored(280)
    if end != "close":
        store = kit.open()
        if "newer" in end:
            store.put_message(PutMessage("Newer", 0, b"x"))
            store._table.flush()
        kit.files.kill()
    path = file_of(kit, QUEUES / TOPIC / "0", number)
    kit.files.remove(path) if how == "removed" else write_empty(kit, path)
    store = kit.open()
    assert bodies(store) == sent
    assert put_many(store, 2, 280) == bodies(store, start=280)
    store.close()
    again = kit.open()
    assert len(bodies(again)) == 282
    assert again.recovery.record_count < 10


def test_start_with_all_files_reads_no_more_than_it_must() -> None:
    kit, _ = stored(280)
    for _ in range(3):
        store = kit.open()
        assert store.recovery.record_count < 3
        put_many(store, 1)
        store._parts.flush_queues.flush(thorough=True)
        kit.files.kill()


def aged(numbers: range) -> Kit:
    """Closed store with a queue of several files whose messages were deleted from the log."""
    kit = Kit()
    store = kit.open()
    put_many(store, 250)
    for number in numbers:
        assert store.put_message(PutMessage("Other", 0, b"%d" % number * 50)).status is OK
    store._parts.flush_queues.flush(thorough=True)
    while store.store_time_ms(TOPIC, 0, 249) >= 0:
        assert store._log.delete_oldest()
    store.close()
    return kit


def test_queue_keeps_its_place_when_neither_file_nor_message_is_left() -> None:
    kit = aged(range(400))
    kit.files.remove(file_of(kit, QUEUES / TOPIC / "0", 1))
    for _ in range(2):
        store = kit.open()
        assert store.max_offset(TOPIC, 0) == 250
        store.close()
    store = kit.open()
    put_many(store, 1)
    assert store.min_offset(TOPIC, 0) == 250
    assert len(bodies(store)) == 1


@pytest.mark.parametrize("how", ["checkpoint", "queues"])
def test_queue_with_unknown_position_fails_start_until_operator_decides(
    how: str,
) -> None:
    kit = aged(range(400))
    kit.files.remove(file_of(kit, QUEUES / TOPIC / "0", 2))
    for _ in range(2):
        with pytest.raises(
            StoreFormatError, match="files of consume queues are missing, 50 entries"
        ):
            kit.open()
    kit.files.remove(Path("/store/checkpoint") if how == "checkpoint" else Path("/none"))
    if how == "queues":
        kit.files.remove_tree(QUEUES)
    store = kit.open()
    assert store.max_offset(TOPIC, 0) == (200 if how == "checkpoint" else 0)
    assert store.max_offset("Other", 0) == 400
    store.close()
    assert kit.open().max_offset("Other", 0) == 400


def test_queue_file_that_retention_removed_is_not_missed() -> None:
    kit, sent = stored(1_000)
    store = kit.open()
    for _ in range(3):
        assert store._log.delete_oldest()
        store._table.delete_expired(store.min_phy_offset)
        kit.files.kill()
        store = kit.open()
        assert bodies(store) == sent[store.min_offset(TOPIC, 0) :]
        assert store.recovery.record_count < 3


def test_topic_deleted_since_is_not_missed() -> None:
    kit, sent = stored(120)
    store = kit.open()
    store.delete_topics(["Other"])
    kit.files.kill()
    store = kit.open()
    assert bodies(store) == sent
    assert store.recovery.record_count < 3


# -- the index -------------------------------------------------------------------------------


def keyed_store(count: int = 200) -> tuple[Kit, MessageStoreConfig]:
    kit = Kit(max_msgs_num_batch=1_000)
    store = kit.open()
    for number in range(count):
        put = PutMessage(TOPIC, 0, b"%d" % number, properties=b"UNIQ_KEY\x01u%d\x02" % number)
        put.uniq_key = f"u{number}"
        assert store.put_message(put).status is OK
        assert store.put_message(PutMessage(TOPIC, 1, b"without a key")).status is OK
    store.close()
    return kit, kit.config


def not_found(store: MessageStore, count: int = 200) -> list[int]:
    """Return the messages that a complete look-up does not find."""
    missed = []
    for number in range(count):
        found = store.query_index(TOPIC, f"u{number}", 64, 0, 1 << 60)
        texts = [
            decode_message(record).body
            for each in found.phy_offsets
            if (record := store.look_message(each)) is not None
        ]
        if b"%d" % number not in texts and found.is_complete:
            missed.append(number)
    return missed


@pytest.mark.parametrize("number", [0, 1, 3, -1])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_index_file_that_is_gone_is_made_again(number: int, end: str) -> None:
    kit, _ = keyed_store()
    if end == "kill":
        kit.open()
        kit.files.kill()
    assert len(kit.files.list_files(INDEX)) > 4
    kit.files.remove(file_of(kit, INDEX, number))
    store = kit.open()
    assert not_found(store) == []
    for _ in range(200):
        kit.step(store, "IndexCatchUpService")
    assert not_found(store) == []
    assert store.query_index(TOPIC, "u0", 64, 0, 1 << 60).is_complete
    store.close()
    again = kit.open()
    assert again._index is not None
    assert again._index.end_phy_offset > 30_000  # and only the last message has no key
    kit.step(again, "IndexCatchUpService")
    kit.step(again, "IndexCatchUpService")
    assert again.query_index(TOPIC, "u199", 64, 0, 1 << 60).is_complete
    assert not_found(again) == []


def test_replica_s_queue_that_only_waits_has_no_place_that_a_start_would_miss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It begins late, its first message is not on disk yet, and a power cut takes that."""
    source = Kit().open()
    put_many(source, 400)
    start = source._log.files[1].base_offset
    data = b"".join(bytes(each.view) for each in source._log.files)
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    slave = kit.open()
    slave.append_raw(start, data[start : start + 400])
    assert slave._parts.flush_queues.flush(thorough=True)
    kit.files.power_cut(Worst())
    assert bodies(kit.open()) == []
    assert "missing" not in caplog.text


# -- the place of the store ------------------------------------------------------------------


def move_store(kit: Kit, to: str) -> None:
    """Open the next stores of a kit in another directory."""
    kit.config = dataclasses.replace(kit.config, store_path_root_dir=to)


@pytest.mark.parametrize("where", [".", "store/store", "store/commitlog", "store/config"])
def test_start_empty_beside_a_store_with_messages_refuses(where: str) -> None:
    kit, _ = stored(3, store_path_root_dir="/data/store")
    move_store(kit, str(Path("/data") / where))
    before = tree(kit, Path("/data"))
    with pytest.raises(StoreFormatError, match=r"data/store is a store with messages.*start-empty"):
        kit.open()
    assert tree(kit, Path("/data")) == before


def test_start_empty_beside_a_store_with_messages_with_start_empty_opens() -> None:
    kit, _ = stored(3)
    move_store(kit, "/store/store")
    store = MessageStore(kit.config, clock=kit.clock, files=kit.files, new_log_id=lambda: "1" * 32)
    store.open(start_empty=True)
    put_many(store, 2)
    store.close()
    assert kit.open().max_phy_offset > 0  # with messages in it, it is no mistake


def test_start_beside_a_store_without_messages_opens() -> None:
    kit = Kit()
    kit.open().close()
    move_store(kit, "/store/store")
    kit.open().close()


def test_start_empty_beside_its_separate_log_opens() -> None:
    kit = Kit(store_path_root_dir="/data/store", store_path_commit_log="/data/commitlog")
    kit.files.make_directories(Path("/data/config"))
    for _ in range(2):
        store = kit.open()
        put_many(store, 2)
        store.close()
