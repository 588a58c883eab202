"""Recovery never loses acknowledged messages, whenever the power fails."""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.sampling import sample
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies, message

GONE = "Gone"
LOG = Path("/store/commitlog")
QUEUES = Path("/store/consumequeue")


class PowerCutError(Exception):
    """The power goes now."""


def put(kit: Kit, store: MessageStore, count: int, start: int = 0) -> list[bytes]:
    """Put messages and have each acknowledged (SYNC_FLUSH) or flushed."""
    sent = [b"%06d" % number for number in range(start, start + count)]
    for body in sent:
        assert store.put_message(message(body)).status is OK
    flush(kit, store)
    return sent


def flush(kit: Kit, store: MessageStore) -> None:
    name = "GroupCommitService" if kit.config.is_sync_flush else "FlushRealTimeService"
    kit.step(store, name)


def acknowledged_then_deleted(kit: Kit, last: tuple[str, ...] = ("Other", GONE)) -> list[bytes]:
    """50 acknowledged messages amid those of a topic that is deleted; then a clean end."""
    store = kit.open()
    store.put_message(PutMessage(GONE, 0, b"first"))
    sent = []
    for number in range(50):
        sent += put(kit, store, 1, number)
        kit.clock.advance(1_000)
    for topic in last:
        kit.clock.advance(10_000)
        store.put_message(PutMessage(topic, 0, b"last"))
    flush(kit, store)
    kit.clock.advance(10_000)
    store.delete_topics([GONE])
    store.close()
    return sent


@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_power_cut_soon_after_a_clean_start_takes_nothing(seed: int) -> None:
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    sent = acknowledged_then_deleted(kit)
    store = kit.open()
    kit.clock.advance(30_000)
    for service in store.services:
        service.step(kit.clock.monotonic_ms())
    kit.files.power_cut(random.Random(seed))
    again = kit.open()
    assert bodies(again) == sent
    assert put(kit, again, 1, 50) == bodies(again)[50:]


def only_deleted_last(kit: Kit) -> list[bytes]:
    return acknowledged_then_deleted(kit, (GONE,))


def cut_at_flush(kit: Kit, number: int, rng: random.Random) -> bool:
    """Open, and lose power at the n-th flush; False when the start needed fewer."""
    left = number

    def on_flush(_path: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerCutError

    kit.files.on_flush = on_flush
    try:
        kit.open()
    except PowerCutError:
        cut = True
    else:
        cut = False
    kit.files.on_flush = None
    kit.files.power_cut(rng)
    return cut


def lost_queues(kit: Kit) -> list[bytes]:
    """Queues that are gone, so that the start reads everything again."""
    store = kit.open()
    sent = []
    for number in range(60):
        sent += put(kit, store, 1, number)
        kit.clock.advance(1_000)
    store.close()
    kit.files.remove(QUEUES / TOPIC / "0" / f"{0:020d}")
    kit.files.sync_directories()
    return sent


def killed(kit: Kit) -> list[bytes]:
    """A process killed with bytes in memory that no flush has brought to disk."""
    store = kit.open()
    sent = []
    for number in range(60):
        sent += put(kit, store, 1, number)
        kit.clock.advance(1_000)
        if number == 40:
            kit.step(store, "FlushConsumeQueueService")
    kit.files.kill()
    return sent


@pytest.mark.parametrize(
    "before", [acknowledged_then_deleted, only_deleted_last, lost_queues, killed]
)
def test_power_cut_at_any_flush_of_a_start_takes_nothing(
    before: Callable[[Kit], list[bytes]],
) -> None:
    for number in range(30):
        cut = False
        for seed in range(3):
            kit = Kit(flush_disk_type="SYNC_FLUSH")
            sent = before(kit)
            cut = cut_at_flush(kit, number, random.Random(seed))
            assert bodies(kit.open()) == sent, (number, seed)
        if not cut:
            return
    pytest.fail("a start flushes for ever")


@pytest.mark.parametrize("seed", sample(range(12), 2))
def test_clock_set_back_costs_no_acknowledged_message(seed: int) -> None:
    rng = random.Random(seed)
    kit = Kit(flush_disk_type="SYNC_FLUSH", flush_consume_queue_thorough_interval=0)
    store = kit.open()
    sent = put(kit, store, 20)
    kit.clock.advance(60_000)
    sent += put(kit, store, 1, 20)
    other = [b"other"]
    assert store.put_message(message(b"other", queue_id=1)).status is OK
    flush(kit, store)
    for service in store.services:
        service.step(kit.clock.monotonic_ms())
    kit.clock.jump(-40_000)
    for number in range(21, 60):
        sent += put(kit, store, 1, number)
        kit.clock.advance(rng.randint(0, 500))
    for number in range(10):
        kit.clock.advance(60_000 if number == 9 else 0)
        other.append(b"other%d" % number)
        assert store.put_message(message(other[-1], queue_id=1)).status is OK
        flush(kit, store)
    kit.files.power_cut(rng)
    again = kit.open()
    assert bodies(again) == sent
    assert bodies(again, 1) == other
    assert put(kit, again, 1, 63) == bodies(again)[60:]


def test_store_time_never_goes_down_within_a_life_and_a_restart_mends_a_wrong_clock() -> None:
    kit = Kit()
    store = kit.open()
    times = []
    for change_ms in (0, 3_600_000, -7_200_000, 100):
        kit.clock.jump(change_ms)
        times.append(store.put_message(message(b"x")).store_timestamp_ms)
    assert times == sorted(times)
    assert times[-1] == times[1]
    store.close()
    again = kit.open()
    assert again.put_message(message(b"x")).store_timestamp_ms == kit.clock.time_ms()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_start_after_the_clock_was_set_back_reads_no_more_than_else(end: str) -> None:
    kit = Kit(flush_consume_queue_thorough_interval=0, flush_commit_log_least_pages=0)
    store = kit.open()
    sent = put(kit, store, 200)
    store.close()
    kit.clock.jump(-86_400_000)
    store = kit.open()
    sent += put(kit, store, 20, 200)
    kit.step(store, "FlushConsumeQueueService")
    kit.clock.advance(1)
    kit.step(store, "FlushConsumeQueueService")
    sent += put(kit, store, 2, 220)
    if end == "close":
        store.close()
    else:
        kit.files.kill()
    again = kit.open()
    assert again.recovery.record_count <= 2
    assert bodies(again) == sent


def test_empty_file_in_the_middle_of_the_log_refuses_the_start_and_nothing_is_deleted() -> None:
    kit = Kit()
    store = kit.open()
    put(kit, store, 600)
    store.close()
    names = kit.files.list_files(LOG)
    assert len(names) > 3
    kit.files.write_bytes(LOG / names[1], b"")
    with pytest.raises(StoreFormatError, match=rf"{names[1]} is empty.*missing"):
        kit.open()
    assert kit.files.list_files(LOG) == names
    kit.files.remove(LOG / names[1])
    with pytest.raises(StoreFormatError, match=rf"{names[1]} is missing"):
        kit.open()
    assert kit.files.list_files(LOG) == [names[0], *names[2:]]


def test_operator_may_remove_the_queues_to_have_them_made_again() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(kit, store, 30)
    assert store.put_message(PutMessage("Other", 0, b"x")).status is PutMessageStatus.PUT_OK
    store.close()
    kit.files.remove_tree(QUEUES / TOPIC)
    assert bodies(kit.open()) == sent


def test_checkpoint_of_another_log_is_not_believed() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(kit, store, 60)
    store.close()
    checkpoint = kit.files.read_bytes(Path("/store/checkpoint"))
    other = Kit()
    store = other.open()
    sent = put(other, store, 10)
    store.close()
    other.files.write_bytes(Path("/store/checkpoint"), checkpoint)
    again = other.open()
    assert bodies(again) == sent
    assert put(other, again, 1, 10) == bodies(again)[10:]


class Worst(random.Random):
    """A power cut that keeps all names, and no content that was not flushed."""

    def randint(self, a: int, b: int) -> int:
        return max(a, b)

    def random(self) -> float:
        return 0.99


def test_entries_erased_by_a_start_that_was_killed_do_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The zeros of that start are in memory only, also when a power cut came before it."""
    kit = Kit(flush_disk_type="ASYNC_FLUSH", flush_consume_queue_thorough_interval=0)
    store = kit.open()
    put_to(store, "Kept", 5)
    assert store._parts.flusher.flush()
    put_to(store, "Lost", 5)
    assert store._parts.flush_queues.flush(thorough=True)  # and the log is not
    kit.files.power_cut(Worst())

    def killed(_path: Path, _data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kit.files, "write_bytes", killed)  # the mark of a start that is through
    with pytest.raises(KeyboardInterrupt):
        kit.open()
    monkeypatch.undo()
    kit.files.kill()

    store = kit.open()
    assert store.max_offset("Lost", 0) == 0
    put_to(store, "Kept", 8)
    assert store._parts.flusher.flush()
    assert store._parts.flush_queues.flush(thorough=True)  # the checkpoint has moved past it
    kit.files.power_cut(Worst())
    store = kit.open()
    assert store.max_offset("Lost", 0) == 0
    assert store.max_offset("Kept", 0) == 13


def put_to(store: MessageStore, topic: str, count: int) -> None:
    for number in range(count):
        put = PutMessage(topic, 0, b"%d" % number, properties=b"UNIQ_KEY\x01k\x02", uniq_key="k")
        assert store.put_message(put).status is OK


@pytest.mark.parametrize("how", ["removed", "switched off"])
def test_index_that_was_taken_away_is_made_again_after_a_clean_end(how: str) -> None:
    kit = Kit(max_msgs_num_batch=1_000)
    with_index = kit.config
    if how == "switched off":
        kit.config = dataclasses.replace(with_index, message_index_enable=False)
    store = kit.open()
    put_to(store, TOPIC, 20)
    store.close()
    kit.files.remove_tree(Path("/store/index"))
    kit.config = with_index
    store = kit.open()
    assert not store.query_index(TOPIC, "k", 100, 0, 1 << 60).is_complete
    for _ in range(20):
        kit.step(store, "IndexCatchUpService")
    found = store.query_index(TOPIC, "k", 100, 0, 1 << 60)
    assert (len(found.phy_offsets), found.is_complete) == (20, True)
    store.close()
    assert kit.open().query_index(TOPIC, "k", 100, 0, 1 << 60) == found
