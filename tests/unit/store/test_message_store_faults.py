"""Kills, power cuts, full disks and failing flushes take nothing that was promised."""

import dataclasses
import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from rocketpy.errors import ResourceShortError
from rocketpy.proto.record.message import decode_message
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.store.retention import DiskRatios
from tests.sampling import sample
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies, message, put_many

LOG = Path("/store/commitlog")


# -- crashes -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", sample(range(12), 2))
def test_killed_process_loses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    kit = Kit()
    sent: list[bytes] = []
    for _ in range(4):
        store = kit.open()
        assert bodies(store) == sent
        for _ in range(rng.randint(0, 150)):
            kit.clock.advance(rng.randint(0, 200))
            sent += put_many(store, 1, len(sent), rng.randint(8, 600))
            if rng.random() < 0.1:
                rng.choice(store.services).step(kit.clock.monotonic_ms())
        kit.files.kill()
    assert bodies(kit.open()) == sent


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_power_cut_takes_no_durable_message(seed: int) -> None:
    rng = random.Random(seed)
    kit = Kit(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=1_000_000)
    acknowledged: list[bytes] = []
    attempted: set[bytes] = set()
    number = 0
    for _ in range(3):
        store = kit.open()
        seen = bodies(store)
        assert [each for each in seen if each in set(acknowledged)] == acknowledged
        assert set(seen) <= attempted
        assert len(set(seen)) == len(seen)
        for _ in range(rng.randint(1, 120)):
            number += 1
            body = b"%08d" % number + bytes(rng.randint(0, 900))
            attempted.add(body)

            def durable(is_durable: bool, body: bytes = body) -> None:
                assert is_durable
                acknowledged.append(body)

            store.when_durable(store.put_message(message(body)).phy_end, durable)
            kit.clock.advance(rng.randint(0, 300))
            for service in store.services:
                if rng.random() < 0.15:
                    service.step(kit.clock.monotonic_ms())
        kit.files.power_cut(rng)
    final = bodies(kit.open())
    assert [each for each in final if each in set(acknowledged)] == acknowledged


def test_torn_tail_is_erased() -> None:
    kit = Kit()
    store = kit.open()
    sent = put_many(store, 20)
    end = store.max_phy_offset
    kit.files.kill()
    node = kit.files._names[LOG / f"{0:020d}"]
    assert node is not None
    node.memory[end - 60 :] = bytes(len(node.memory) - end + 60)
    node.memory[end - 60 : end - 40] = b"\x01" * 20
    again = kit.open()
    assert bodies(again) == sent[:-1]
    assert bytes(node.memory[again.max_phy_offset :]).strip(b"\0") == b""
    sent[-1:] = put_many(again, 1, 77)
    assert bodies(again) == sent


def test_broken_frame_in_flushed_data_costs_only_itself() -> None:
    kit = Kit()
    store = kit.open()
    sent = put_many(store, 60)
    victim = store.put_message(message(b"victim"))
    kit.clock.advance(5_000)
    sent += put_many(store, 60, 60)
    store.close()
    node = kit.files._names[LOG / f"{0:020d}"]
    assert node is not None
    node.memory[victim.phy_offset : victim.phy_offset + 8] = b"\xff" * 8
    kit.files.remove(Path("/store/checkpoint.bak"))
    kit.files.remove_tree(Path("/store/consumequeue"))
    again = kit.open()
    assert again.recovery.holes == [(victim.phy_offset, victim.size_bytes)]
    assert bodies(again) == sent
    assert again.max_offset(TOPIC, 0) == 121


# -- disk ----------------------------------------------------------------------------------


def test_full_disk_is_a_status_and_sending_resumes() -> None:
    kit = Kit()
    kit.files.capacity_bytes = 200 * 1024
    store = kit.open()
    sent = []
    statuses = set()
    for number in range(1500):
        body = b"%06d" % number + bytes(200)
        result = store.put_message(message(body, queue_id=number % 3))
        statuses.add(result.status)
        if result.status is OK:
            sent.append(body)
    assert statuses == {OK, PutMessageStatus.CREATE_MAPPED_FILE_FAILED}
    assert kit.files.unallocated_writes() == []
    seen = [body for queue_id in range(3) for body in bodies(store, queue_id)]
    assert sorted(seen) == sent

    kit.files.capacity_bytes = None
    for number in range(1500, 1600):
        body = b"%06d" % number + bytes(200)
        assert store.put_message(message(body, queue_id=number % 3)).status is OK
        sent.append(body)
    kit.files.kill()
    again = kit.open()
    seen = [body for queue_id in range(3) for body in bodies(again, queue_id)]
    assert sorted(seen) == sent


def test_sync_flush_shows_messages_only_when_they_are_on_disk() -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    store = kit.open()
    responses: list[bool] = []
    result = store.put_message(message(b"later"))
    assert result.status is OK
    store.when_durable(result.phy_end, responses.append)
    assert (responses, kit.arrivals, bodies(store)) == ([], [], [])
    assert store.look_message(0) is None
    assert store.dispatch_behind_bytes == result.size_bytes

    kit.step(store, "GroupCommitService")
    assert (responses, bodies(store)) == ([True], [b"later"])
    assert kit.arrivals == [(TOPIC, 0, 1, 0)]
    assert store.look_message(0) is not None
    assert store.dispatch_behind_bytes == 0
    store.when_durable(result.phy_end, responses.append)
    assert responses == [True, True]


def test_one_flush_answers_all_waiters() -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    store = kit.open()
    store.put_message(message(b"first"))
    kit.step(store, "GroupCommitService")
    before = kit.files.flush_count
    responses: list[bool] = []
    for number in range(20):
        result = store.put_message(message(b"%d" % number))
        store.when_durable(result.phy_end, responses.append)
    kit.step(store, "GroupCommitService")
    assert responses == [True] * 20
    assert kit.files.flush_count == before + 1


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_first_failed_flush_makes_the_store_read_only(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(flush_disk_type=mode, flush_commit_log_least_pages=0)
    store = kit.open()
    responses: list[bool] = []
    store.put_message(message(b"good"))
    service = "GroupCommitService" if mode == "SYNC_FLUSH" else "FlushRealTimeService"
    kit.step(store, service)
    kit.files.fail_flushes("commitlog")
    result = store.put_message(message(b"lost"))
    if mode == "SYNC_FLUSH":
        store.when_durable(result.phy_end, responses.append)
    for _ in range(5):
        kit.step(store, service)
    kit.files.on_flush = None
    kit.step(store, service)
    if mode == "SYNC_FLUSH":
        assert responses == [False]
        assert bodies(store) == [b"good"]
        store.when_durable(result.phy_end, responses.append)
        assert responses == [False, False]
    assert not store.is_writable
    assert "simulated disk failure" in str(store.read_only_reason)
    assert store.put_message(message(b"no")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert len([each for each in caplog.records if each.levelname == "CRITICAL"]) == 1
    store.close()
    assert kit.files.exists(Path("/store/abort"))
    kit.files.power_cut(random.Random(1))
    again = kit.open()
    assert bodies(again)[:1] == [b"good"]
    assert again.is_writable


def test_flush_that_takes_too_long_is_answered() -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=5_000)
    store = kit.open()
    responses: list[bool] = []
    store.when_durable(store.put_message(message(b"slow")).phy_end, responses.append)
    kit.clock.advance(4_999)
    kit.step(store, "FlushDeadlineService")
    assert responses == []
    kit.clock.advance(1)
    kit.step(store, "FlushDeadlineService")
    assert responses == [False]
    kit.step(store, "GroupCommitService")
    assert responses == [False]


def test_warning_level_stops_puts_and_space_starts_them() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 5)
    kit.files.capacity_bytes = kit.files.used_bytes
    kit.step(store, "CleanCommitLogService")
    kit.clock.advance(70_000)
    kit.step(store, "CleanCommitLogService")
    assert store.put_message(message(b"x")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    reason = store.read_only_reason
    assert reason is not None
    assert reason.startswith("the disk is nearly full: ")
    assert "/store" not in reason, "clients see it"
    kit.files.capacity_bytes = None
    kit.clock.advance(70_000)
    kit.step(store, "CleanCommitLogService")
    assert store.put_message(message(b"x")).status is OK


def test_messages_are_found_by_key_also_after_a_crash() -> None:
    kit = Kit()
    store = kit.open()
    places = []
    for number in range(120):
        put = message(b"%d" % number)
        put.properties = b"UNIQ_KEY\x01u%d\x02KEYS\x01a b%d\x02TAGS\x01t\x02" % (number, number)
        put.uniq_key, put.keys, put.tags = f"u{number}", f"a b{number}", "t"
        places.append(store.put_message(put).phy_offset)
        kit.clock.advance(100)
    assert store.query_index(TOPIC, "b77", 32, 0, 1 << 60).phy_offsets == [places[77]]
    kit.step(store, "FlushRealTimeService")
    kit.step(store, "FlushConsumeQueueService")
    kit.files.kill()
    again = kit.open()
    for _ in range(20):
        kit.step(again, "IndexCatchUpService")
    for number in (0, 50, 119):
        found = again.query_index(TOPIC, f"u{number}", 32, 0, 1 << 60).phy_offsets
        assert set(found) == {places[number]}


def test_runtime_info_has_the_keys_admin_tools_read() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 10)
    kit.clock.advance(1_000)
    kit.step(store, "StoreStatsService")
    bodies(store)
    info = store.runtime_info()
    assert info["putTps"].split(" ")[0] == "10.0"
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:10 ")
    assert info["putMessageTimesTotal"] == "10"
    assert info["commitLogMaxOffset"] == str(store.max_phy_offset)
    assert 0.0 <= float(info["commitLogDiskRatio"]) <= 1.0


@pytest.mark.parametrize("error", [ResourceShortError("no descriptor"), OSError(errno.EIO, "disk")])
def test_failed_close_releases_directory_and_answers_waiters(error: Exception) -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    store = kit.open()
    answers: list[bool] = []
    store.when_durable(store.put_message(message(b"a")).phy_end, answers.append)

    def fail(_path: Path) -> None:
        raise error

    kit.files.on_flush = fail
    store.close()
    assert answers == [False]
    kit.files.on_flush = None
    assert bodies(kit.open()) == [b"a"]


@pytest.mark.parametrize("error", [ResourceShortError("no descriptor"), OSError(errno.EIO, "disk")])
def test_wait_after_failed_close_fails_at_once(error: Exception) -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    store = kit.open()
    put = store.put_message(message(b"x"))
    assert put.status is OK

    def fail(_path: Path) -> None:
        raise error

    kit.files.on_flush = fail
    store.close()
    answers: list[bool] = []
    store.when_durable(put.phy_end, answers.append)
    assert answers == [False]


# -- retention and entries that are not on disk ------------------------------------------------


def test_retention_brings_queue_entries_to_disk_before_their_only_source_goes() -> None:
    """An idle queue without flushed entries would restart at 0 after a kill."""
    kit = Kit(flush_consume_queue_thorough_interval=1 << 40)
    store = kit.open()
    store.put_message(PutMessage("Idle", 0, b"x"))
    put_many(store, 300)
    store._parts.flusher.flush()
    kit.clock.advance(100 * 3_600_000)
    store.delete_expired_files()
    for _ in range(40):
        kit.clock.advance(10_000)
        kit.step(store, "CleanCommitLogService")
    assert store.min_phy_offset > 2 * 16384
    kit.files.kill()
    again = kit.open()
    assert again.max_offset("Idle", 0) == 1
    result = again.put_message(PutMessage("Idle", 0, b"y"))
    assert (result.status, result.queue_offset) == (OK, 1)


@pytest.mark.parametrize("is_forced", [False, True])
def test_source_goes_before_its_entries_are_on_disk_only_when_the_disk_is_full(
    is_forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the space that it leaves takes them at once, and the queue keeps its place."""
    kit = Kit(flush_consume_queue_thorough_interval=1 << 40)
    store = kit.open()
    store.put_message(PutMessage("Idle", 0, b"x"))
    put_many(store, 300)
    store._parts.flusher.flush()
    kit.clock.advance(100 * 3_600_000)
    kit.files.capacity_bytes = kit.files.used_bytes
    ratio = 0.95 if is_forced else 0.5
    monkeypatch.setattr(store._parts.clean_log, "_disk_ratios", lambda: DiskRatios(ratio, ratio))
    store.delete_expired_files()
    kit.step(store, "CleanCommitLogService")
    kit.clock.advance(60_000)
    kit.step(store, "CleanCommitLogService")
    assert (store.min_phy_offset > 0) == is_forced
    kit.files.kill()
    kit.files.capacity_bytes = None
    assert kit.open().max_offset("Idle", 0) == 1


# -- deleting topics when directories cannot be brought to disk --------------------------------


def test_deletion_that_the_disk_refuses_stops_the_store_and_may_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 3)
    store._parts.flush_queues.flush(thorough=True)

    def fail() -> None:
        raise OSError(errno.EIO, "simulated disk failure")

    monkeypatch.setattr(kit.files, "sync_directories", fail)
    with pytest.raises(OSError, match="simulated"):
        store.delete_topics([TOPIC])
    assert not store.is_writable
    assert store.read_only_reason is not None
    assert "directories" in store.read_only_reason


def test_deletion_without_a_descriptor_is_on_disk_after_another_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 3)
    store._parts.flusher.flush()
    store._parts.flush_queues.flush(thorough=True)

    def refuse() -> None:
        raise ResourceShortError("no descriptor")

    monkeypatch.setattr(kit.files, "sync_directories", refuse)
    with pytest.raises(ResourceShortError):
        store.delete_topics([TOPIC])
    monkeypatch.undo()
    assert store.is_writable
    assert store.delete_topics([TOPIC]) == 0
    kit.files.power_cut(random.Random(1))
    assert kit.open().max_offset(TOPIC, 0) == 0


def test_kill_while_a_queue_file_is_made_leaves_it_empty_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between its creation and its length; entries come to disk after both, so none was in it."""
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path / "killed"))
    config = dataclasses.replace(config, mapped_file_size_commit_log=1 << 16)
    store = MessageStore(config, clock=SystemClock())
    store.open()
    for number in range(3):
        store.put_message(PutMessage(f"Topic-{number}", 2, b"%d" % number))
    file_bytes = config.consume_queue_file_bytes

    def die(_fd: int, size_bytes: int) -> None:
        assert size_bytes == file_bytes
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "ftruncate", die)
    with pytest.raises(KeyboardInterrupt):
        store._table.flush()
    monkeypatch.undo()
    shutil.copytree(tmp_path / "killed", tmp_path / "left")
    store.close()
    (empty,) = (tmp_path / "left/consumequeue").rglob("0*")
    assert empty.stat().st_size == 0
    config = dataclasses.replace(config, store_path_root_dir=str(tmp_path / "left"))
    again = MessageStore(config, clock=SystemClock())
    again.open()
    assert "empty last file removed" in caplog.text
    for number in range(3):
        result = again.get_message(f"Topic-{number}", 2, 0, 32, 1 << 20)
        assert [decode_message(each).body for each in result.buffers] == [b"%d" % number]
    again.close()
