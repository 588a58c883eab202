"""Composition of a store: its parts and listeners."""

from pathlib import Path
from typing import Any

import pytest

from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.index.index_service import IndexService
from rocketpy.store.message_store import MessageStore
from rocketpy.store.parts import StoreParts
from rocketpy.store.results import PutMessageStatus
from rocketpy.store.retention import DiskRatios
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.unit.store.store_kit import TOPIC, Kit, bodies, message, put_many

HOUR_MS = 3_600_000


def parts(files: SimFiles | None = None, **config: Any) -> StoreParts:
    given = MessageStoreConfig(
        **{
            "store_path_root_dir": "/store",
            "mapped_file_size_commit_log": 16_384,
            "mapped_file_size_consume_queue": 2_000,
            "max_hash_slot_num": 20,
            "max_index_num": 50,
            **config,
        }
    )
    return StoreParts(given, SimClock(), files or SimFiles())


def names(made: StoreParts) -> set[str]:
    return {service.name for service in made.services}


def test_flush_service_follows_flush_mode() -> None:
    synchronous, asynchronous = (
        names(parts(flush_disk_type=kind)) for kind in ("SYNC_FLUSH", "ASYNC_FLUSH")
    )
    always = {
        "AllocateService",
        "ColdReadsService",
        "CleanCommitLogService",
        "CleanConsumeQueueService",
    }
    assert always <= synchronous & asynchronous
    assert synchronous - asynchronous == {"GroupCommitService", "FlushDeadlineService"}
    assert asynchronous - synchronous == {"FlushRealTimeService"}


def test_store_without_an_index_has_nothing_that_fills_one() -> None:
    without, with_one = parts(message_index_enable=False), parts()
    assert without.index is None
    assert isinstance(with_one.index, IndexService)
    assert names(with_one) - names(without) == {"IndexCatchUpService"}
    assert len(with_one.dispatcher_list) == len(without.dispatcher_list) + 1


def test_service_names_are_unique() -> None:
    made = parts()
    assert len(names(made)) == len(made.services)


def test_nothing_is_touched_before_the_store_is_opened() -> None:
    files = SimFiles()
    parts(files)
    assert files.operation_count == 0
    assert files.list_directories(Path("/store")) == []


def test_waiter_of_failed_flush_finds_gate_closed() -> None:
    made = parts(flush_disk_type="SYNC_FLUSH")
    made.gate.set_open(True)
    told: list[tuple[bool, str | None]] = []
    made.offsets.wait_for(100, 1_000, lambda done: told.append((done, made.gate.refusal)))
    made.latch.trip("flush of the log", OSError("disk failed"))
    [(done, refusal)] = told
    assert not done
    assert refusal is not None
    assert "flush of the log failed" in refusal


@pytest.mark.parametrize(
    ("usage", "ratio"), [(0, 0.0), (8192, 0.5), (16_384, 1.0)], ids=["empty", "half", "full"]
)
def test_disk_is_looked_at_where_log_and_queues_are(usage: int, ratio: float) -> None:
    files = SimFiles(capacity_bytes=16_384)
    made = parts(files)
    files.make_directories(Path("/store/commitlog"))
    if usage:
        files.write_bytes(Path("/store/big"), b"x" * usage)
    assert made.disk_ratios() == DiskRatios(ratio, ratio, "/store/commitlog", "/store")


def test_disk_that_cannot_be_asked_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimFiles()

    def refuse(_path: Path) -> None:
        raise OSError("stale handle")

    monkeypatch.setattr(files, "disk_usage", refuse)
    assert parts(files).disk_ratios() == DiskRatios(-1.0, -1.0, "/store/commitlog", "/store")


def test_log_is_asked_for_at_its_root_while_there_is_none() -> None:
    files = SimFiles()
    asked: list[Path] = []
    real = files.disk_usage

    def noted(path: Path) -> Any:
        asked.append(path)
        return real(path)

    files.disk_usage = noted  # type: ignore[method-assign]
    made = parts(files)
    made.disk_ratios()
    files.make_directories(Path("/store/commitlog"))
    made.disk_ratios()
    assert asked == [
        Path("/store"), Path("/store"), Path("/store/commitlog"), Path("/store"),
    ]  # fmt: skip


def test_changed_settings_reach_retention_at_once() -> None:
    made = parts(file_reserved_time=72)
    assert made.clean_log.policy.file_reserved_ms == 72 * HOUR_MS
    made.configure(
        MessageStoreConfig(
            store_path_root_dir="/store",
            file_reserved_time=1,
            delete_when="03;04",
            disk_max_used_space_ratio=50,
            disk_space_clean_forcibly_ratio=60,
            disk_space_warning_level_ratio=70,
        )
    )
    policy = made.clean_log.policy
    assert policy.file_reserved_ms == HOUR_MS
    assert policy.delete_hours == {3, 4}
    ratios = policy.max_used_ratio, policy.clean_forcibly_ratio, policy.warning_ratio
    assert ratios == (0.5, 0.6, 0.7)


def look(kit: Kit, store: MessageStore) -> None:
    """Have retention look at the disk: it waits a while at first, then between its rounds."""
    kit.step(store, "CleanCommitLogService")
    kit.clock.advance(2 * 60_000)
    kit.step(store, "CleanCommitLogService")


def test_full_disk_closes_the_gate_and_a_free_one_opens_it() -> None:
    kit = Kit()
    store = kit.open()
    assert store.put_message(message(b"0")).status is PutMessageStatus.PUT_OK
    kit.files.capacity_bytes = kit.files.used_bytes
    look(kit, store)
    assert store.put_message(message(b"1")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.files.capacity_bytes = None
    look(kit, store)
    assert store.put_message(message(b"2")).status is PutMessageStatus.PUT_OK


def test_without_an_index_an_end_is_one_too() -> None:
    kit = Kit(message_index_enable=False)
    made = opened(kit)
    assert made.flush_all(0) is True
    assert made.checkpoint.trusted_phy_offset == made.log.max_phy_offset > 0


def opened(kit: Kit) -> StoreParts:
    store = kit.open()
    put_many(store, 40)
    made: StoreParts = store._parts
    return made


def test_end_brings_everything_to_disk() -> None:
    kit = Kit()
    made = opened(kit)
    assert made.flush_all(0)
    assert made.checkpoint.trusted_phy_offset == made.log.max_phy_offset > 0
    made.close()
    assert kit.files.open_count == 0


@pytest.mark.parametrize("what", ["commitlog", "consumequeue", "index"])
def test_end_says_what_could_not_be_brought_to_disk(what: str) -> None:
    kit = Kit()
    made = opened(kit)
    kit.files.fail_flushes(f"/{what}/")
    assert not made.flush_all(0)
    assert made.latch.reason is not None
    assert what.removesuffix("log") in made.latch.reason.replace(" ", "")


def test_files_are_closed_even_if_index_close_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit()
    made = opened(kit)
    kit.files.fail_flushes("/index/")
    made.close()
    assert "index close failed" in caplog.text
    assert made.log.files == ()


def expire(kit: Kit, store: MessageStore) -> None:
    """Let the messages grow old, and retention look at them at any hour."""
    kit.clock.advance(73 * HOUR_MS)
    store.delete_expired_files()
    look(kit, store)


def test_log_file_goes_when_its_queue_entries_are_on_disk() -> None:
    kit = Kit()
    store = kit.open()
    sent = put_many(store, 200)
    kit.step(store, "FlushRealTimeService")
    expire(kit, store)
    assert store.min_phy_offset > 0
    kit.files.kill()
    again = kit.open()
    assert again.max_offset(TOPIC, 0) == 200
    kept = bodies(again)
    assert 0 < len(kept) < 200
    assert kept == sent[-len(kept) :]


def test_log_file_stays_while_its_queue_entries_cannot_be_brought_to_disk() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 200)
    kit.files.fail_flushes("/consumequeue/")
    expire(kit, store)
    assert store.min_phy_offset == 0
    assert store.read_only_reason is not None
