"""A deleted topic stays deleted, and deleting costs no other topic anything."""

import random
import threading
from pathlib import Path
from types import TracebackType

import pytest

from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.sampling import sample
from tests.unit.store.store_kit import OK, Kit

KEEP, GONE = "Keep", "Gone"
DELETED = Path("/store/deleted")


def put(store: MessageStore, topic: str, count: int, start: int = 0) -> list[bytes]:
    sent = [b"%s%06d" % (topic.encode(), number) for number in range(start, start + count)]
    for body in sent:
        key = body.decode()
        properties = b"UNIQ_KEY\x01%s\x02" % body
        made = PutMessage(topic, 0, body, properties=properties, uniq_key=key)
        assert store.put_message(made).status is OK
    return sent


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    found: list[bytes] = []
    low, high = max(0, store.min_offset(topic, 0)), store.max_offset(topic, 0)
    for offset in range(low, high):
        result = store.get_message(topic, 0, offset, 1, 1 << 20)
        body_at = 88
        for each in result.buffers:
            size = int.from_bytes(each[84:88], "big")
            found.append(bytes(each[body_at : body_at + size]))
    return found


def found_by_key(store: MessageStore, topic: str, body: bytes) -> bool:
    return bool(store.query_index(topic, body.decode(), 32, 0, 1 << 60).phy_offsets)


def catch_up(kit: Kit, store: MessageStore) -> None:
    for _ in range(20):
        kit.step(store, "IndexCatchUpService")


def files_below(kit: Kit, directory: Path) -> list[Path]:
    return [path for path in kit.files._names if directory in path.parents]


@pytest.mark.parametrize("end", ["close", "kill", "cut"])
def test_deleted_messages_never_come_back_and_a_start_does_not_search_for_them(end: str) -> None:
    kit = Kit(flush_consume_queue_thorough_interval=0)
    store = kit.open()
    put(store, GONE, 30)
    kept = put(store, KEEP, 100)
    gone = put(store, GONE, 30, 30)
    for _ in range(2):
        kit.step(store, "FlushRealTimeService")
        kit.step(store, "FlushConsumeQueueService")
        kit.clock.advance(20_000)
    gone += put(store, GONE, 3, 60)
    kept += put(store, KEEP, 3, 100)
    assert store.delete_topics([GONE]) == 1
    if end == "close":
        store.close()
    elif end == "kill":
        kit.files.kill()
    else:
        kit.step(store, "FlushRealTimeService")
        kit.files.power_cut(random.Random(4))
    again = kit.open()
    assert again.recovery.record_count <= 6
    assert (again.max_offset(GONE, 0), bodies(again, GONE)) == (0, [])
    assert bodies(again, KEEP) == kept
    catch_up(kit, again)
    assert not any(found_by_key(again, GONE, body) for body in gone)
    assert all(found_by_key(again, KEEP, body) for body in kept)


def test_topic_made_again_begins_at_0_and_stays_after_a_crash() -> None:
    kit = Kit()
    store = kit.open()
    old = put(store, GONE, 20)
    store.delete_topics([GONE])
    new = put(store, GONE, 5, 500)
    assert (store.min_offset(GONE, 0), store.max_offset(GONE, 0)) == (0, 5)
    kit.files.kill()
    again = kit.open()
    assert bodies(again, GONE) == new
    assert (again.min_offset(GONE, 0), again.max_offset(GONE, 0)) == (0, 5)
    catch_up(kit, again)
    assert not any(found_by_key(again, GONE, body) for body in old)
    assert all(found_by_key(again, GONE, body) for body in new)


@pytest.mark.parametrize("seed", sample(range(10), 2))
def test_power_cut_of_log_does_not_hide_later_messages(seed: int) -> None:
    """The log may end before the place where the topic was deleted; new messages go there."""
    kit = Kit()
    store = kit.open()
    put(store, KEEP, 5)
    put(store, GONE, 60)
    store.delete_topics([GONE])
    kit.files.power_cut(random.Random(seed))
    again = kit.open()
    assert bodies(again, GONE) == []
    new = put(again, GONE, 5, 500)
    kit.files.kill()
    last = kit.open()
    assert bodies(last, GONE) == new
    assert all(found_by_key(last, GONE, body) for body in new)


def test_files_go_step_by_step_and_the_record_when_the_log_has_passed_it() -> None:
    kit = Kit()
    store = kit.open()
    put(store, GONE, 20)
    kit.step(store, "FlushConsumeQueueService")
    store.delete_topics([GONE])
    assert files_below(kit, Path("/store/consumequeue")) == []
    kit.step(store, "SweepDeletedService")
    kit.step(store, "SweepDeletedService")
    (mark,) = kit.files.list_directories(DELETED)
    assert files_below(kit, DELETED) == [DELETED / mark, DELETED / mark / GONE]
    put(store, KEEP, 400)
    kit.step(store, "FlushRealTimeService")
    store.delete_expired_files()
    for _ in range(10):
        kit.step(store, "CleanCommitLogService")
        kit.clock.advance(80 * 3_600_000)
    assert store.min_phy_offset > 0
    kit.step(store, "CleanConsumeQueueService")
    assert kit.files.list_directories(DELETED) == []


def test_topic_can_be_deleted_twice_at_one_place() -> None:
    kit = Kit()
    store = kit.open()
    for _ in range(3):
        result = store.put_message(PutMessage(GONE, 0, b"x", sys_flag=0))
        assert result.queue_offset == 0
        assert store.delete_topics([GONE, "../outside"]) == 1
        assert store.delete_topics([GONE]) == 0
    assert bodies(kit_again(kit), GONE) == []


def kit_again(kit: Kit) -> MessageStore:
    kit.files.kill()
    return kit.open()


class HookedLock:
    """The append lock, with something that happens right before a sender gets it."""

    def __init__(self, lock: threading.Lock, hook: object) -> None:
        self._lock = lock
        self._hook = hook

    def __enter__(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook()  # type: ignore[operator]
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_put_during_delete_goes_to_new_queue_without_blocking(mode: str) -> None:
    kit = Kit(flush_disk_type=mode)
    store = kit.open()
    put(store, GONE, 5)
    writer = store._writer
    real = writer._append_lock
    writer._append_lock = HookedLock(real, lambda: store.delete_topics([GONE]))  # type: ignore[assignment]
    result = store.put_message(PutMessage(GONE, 0, b"beside"))
    writer._append_lock = real
    assert (result.status, result.queue_offset) == (OK, 0)
    rest = put(store, GONE, 3, 10)
    kept = put(store, KEEP, 3)
    if mode == "SYNC_FLUSH":
        kit.step(store, "GroupCommitService")
    assert store.is_writable
    assert bodies(store, GONE) == [b"beside", *rest]
    assert bodies(store, KEEP) == kept


def test_deleting_what_waits_for_the_disk_costs_no_other_topic_a_message() -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    store = kit.open()
    put(store, GONE, 2)
    kept = put(store, KEEP, 3)
    put(store, GONE, 1, 2)
    kept += put(store, KEEP, 1, 3)
    responses: list[bool] = []
    store.when_durable(store.max_phy_offset, responses.append)
    store.delete_topics([GONE])
    again = put(store, GONE, 2, 50)
    kit.step(store, "GroupCommitService")
    assert responses == [True]
    assert bodies(store, KEEP) == kept
    assert bodies(store, GONE) == again


def test_delete_during_queue_flush_blocks_no_sender() -> None:
    kit = Kit(flush_consume_queue_thorough_interval=0)
    store = kit.open()
    put(store, GONE, 5)
    put(store, KEEP, 1)
    done: list[PutMessageStatus] = []

    def meanwhile() -> None:
        store.delete_topics([GONE])
        done.append(store.put_message(PutMessage(KEEP, 0, b"meanwhile")).status)

    def while_flushing(path: Path) -> None:
        if GONE in path.parts:
            kit.files.on_flush = None
            beside = threading.Thread(target=meanwhile, daemon=True)
            beside.start()
            beside.join(10)

    kit.files.on_flush = while_flushing
    kit.step(store, "FlushConsumeQueueService")
    assert done == [OK]
    assert bodies(store, KEEP)[1:] == [b"meanwhile"]


def test_topic_deleted_while_others_are_swept_is_swept_too() -> None:
    kit = Kit(flush_consume_queue_thorough_interval=0)
    store = kit.open()
    put(store, GONE, 5)
    put(store, KEEP, 5)
    kit.step(store, "FlushConsumeQueueService")
    store.delete_topics([GONE])
    list_directories = kit.files.list_directories

    def deleted_meanwhile(directory: Path) -> list[str]:
        found = list_directories(directory)
        if not found and KEEP in store.topics():
            store.delete_topics([KEEP])
        return found

    kit.files.list_directories = deleted_meanwhile  # type: ignore[method-assign]
    for _ in range(5):
        kit.step(store, "SweepDeletedService")
    assert store._parts.deleted._swept == []
    assert not [path for path in files_below(kit, DELETED) if kit.files._names[path] is not None]
