"""Recovery after a clean or unclean stop of the last process."""

import random
from pathlib import Path

from rocketpy.store.consume_queue.queue_entry import ENTRY
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessageStatus
from tests.unit.store.store_kit import TOPIC, Kit, bodies, message

LOG_FILE = Path(f"/store/commitlog/{0:020d}")
QUEUE_FILE = Path(f"/store/consumequeue/{TOPIC}/0/{0:020d}")


def put(store: MessageStore, count: int, start: int = 0) -> list[bytes]:
    sent = [b"%06d" % number for number in range(start, start + count)]
    for body in sent:
        assert store.put_message(message(body)).status is PutMessageStatus.PUT_OK
    return sent


def patch(kit: Kit, path: Path, position: int, data: bytes) -> None:
    """Change bytes of a file behind the store's back, on the disk too."""
    region = kit.files.open(path)
    region.buffer[position : position + len(data)] = data
    region.flush()
    region.close()


def test_clean_end_reads_almost_nothing() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(store, 50)
    store.close()
    again = kit.open()
    assert again.recovery.record_count == 0
    assert bodies(again) == sent


def test_killed_process_loses_nothing() -> None:
    kit = Kit()
    sent = put(kit.open(), 50)
    kit.files.kill()
    again = kit.open()
    assert again.recovery.record_count == 50
    assert (again.recovery.damaged, again.recovery.holes) == ([], [])
    assert bodies(again) == sent
    assert put(again, 1, 50) == bodies(again)[-1:]


def test_checkpoint_saves_reading() -> None:
    kit = Kit(flush_consume_queue_thorough_interval=0)
    store = kit.open()
    sent = put(store, 30)
    kit.step(store, "FlushRealTimeService")
    kit.clock.advance(20_000)
    sent += put(store, 1, 30)
    kit.step(store, "FlushRealTimeService")
    kit.clock.advance(20_000)
    kit.step(store, "FlushRealTimeService")
    kit.step(store, "FlushConsumeQueueService")
    sent += put(store, 5, 31)
    kit.files.kill()
    again = kit.open()
    assert again.recovery.record_count == 5
    assert bodies(again) == sent


def test_queue_files_that_are_gone_are_made_again() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(store, 40)
    store.close()
    kit.files.remove_tree(Path("/store/consumequeue"))
    again = kit.open()
    assert bodies(again) == sent
    assert again.recovery.entry_count == 40


def test_queue_entry_that_lies_is_not_believed() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(store, 20)
    store._table.flush()
    kit.files.kill()
    patch(kit, QUEUE_FILE, 10 * ENTRY.size, ENTRY.pack(0, 50, 12345))
    assert bodies(kit.open()) == sent


def test_flipped_bit_costs_one_message() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(store, 20)
    entry = store.queue_entry(TOPIC, 0, 7)
    assert entry is not None
    kit.files.kill()
    at = kit.files.read_bytes(LOG_FILE).index(b"000007")
    patch(kit, LOG_FILE, at, b"X")
    again = kit.open()
    assert again.recovery.damaged == [entry[0]]
    assert bodies(again) == sent[:7] + sent[8:]
    assert again.max_offset(TOPIC, 0) == 20


def test_torn_tail_goes_and_its_place_is_used_again() -> None:
    kit = Kit()
    store = kit.open()
    sent = put(store, 20)
    entry = store.queue_entry(TOPIC, 0, 19)
    assert entry is not None
    kit.files.kill()
    patch(kit, LOG_FILE, entry[0] + 20, bytes(entry[1] - 20))
    again = kit.open()
    assert again.max_phy_offset == entry[0]
    assert bodies(again) == sent[:19]
    assert put(again, 1, 99) == bodies(again)[19:]
    found = again.queue_entry(TOPIC, 0, 19)
    assert found is not None
    assert found[0] == entry[0]


def test_stale_bytes_behind_the_end_never_come_back() -> None:
    kit = Kit()
    store = kit.open()
    put(store, 20)
    kit.files.power_cut(random.Random(5))  # nothing was flushed: anything may be left
    again = kit.open()
    kept = bodies(again)
    new = put(again, 3, 100)
    kit.files.kill()
    assert bodies(kit.open()) == kept + new


def test_missing_log_empties_the_queues_when_requested() -> None:
    kit = Kit()
    store = kit.open()
    put(store, 5)
    store.close()
    kit.files.remove_tree(Path("/store/commitlog"))
    again = MessageStore(kit.config, clock=kit.clock, files=kit.files)
    again.open(start_empty=True)
    assert bodies(again) == []
    assert again.max_offset(TOPIC, 0) == 0
    assert put(again, 2) == bodies(again)


def test_recovery_is_stable() -> None:
    kit = Kit()
    sent = put(kit.open(), 30)
    for _ in range(3):
        kit.files.kill()
        again = kit.open()
        assert bodies(again) == sent
        assert again.max_phy_offset == again.recovery.end
