"""Messages that no replica had when their master ended: consumers wait for them after its start."""

from pathlib import Path

import pytest

from rocketpy.proto.topic_names import TRANS_HALF_TOPIC
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import GetMessageStatus, PutMessage
from tests.unit.store.store_kit import TOPIC, Kit, bodies, message, put_many

CHECKPOINT = Path("/store/checkpoint")


def master(**config: object) -> tuple[Kit, MessageStore]:
    """Return a store that waits for replicas from its first message on."""
    kit = Kit(broker_role="SYNC_MASTER", **config)
    store = open_again(kit)
    return kit, store


def open_again(kit: Kit) -> MessageStore:
    store = MessageStore(kit.config, clock=kit.clock, files=kit.files, new_log_id=lambda: "0" * 32)
    store.on_arrival = lambda *each: kit.arrivals.append(each)
    store.open(hold_back=True)
    return store


def killed_with_one_unconfirmed(kit: Kit, store: MessageStore) -> int:
    """Store a confirmed message and another one, and kill the process; return the end of both."""
    store.replicas.confirm(store.put_message(message(b"confirmed")).phy_end)
    kit.step(store, "FlushConsumeQueueService")
    end = store.put_message(message(b"unconfirmed")).phy_end
    store.flush_log()
    kit.files.kill()
    kit.files.start_process()
    return end


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_store_restarted_master_hides_unconfirmed_messages_until_released(flush: str) -> None:
    kit, store = master(flush_disk_type=flush)
    if flush == "SYNC_FLUSH":
        end = store.put_message(message(b"confirmed")).phy_end
        store.flush_log()
        store.replicas.confirm(end)
        kit.step(store, "FlushConsumeQueueService")
        end = store.put_message(message(b"unconfirmed")).phy_end
        store.flush_log()
        kit.files.kill()
        kit.files.start_process()
    else:
        end = killed_with_one_unconfirmed(kit, store)
    kit.arrivals.clear()
    store = open_again(kit)
    assert bodies(store) == [b"confirmed"]
    assert store.max_offset(TOPIC, 0) == 1
    assert store.max_offset(TOPIC, 0, with_held=True) == 2
    assert store.dispatch_behind_bytes > 0
    assert kit.arrivals == []
    store.replicas.release(end)
    assert bodies(store) == [b"confirmed", b"unconfirmed"]
    assert [each[:3] for each in kit.arrivals] == [(TOPIC, 0, 2)]
    assert store.dispatch_behind_bytes == 0


def test_store_restarted_master_shows_unconfirmed_messages_when_a_replica_has_them() -> None:
    kit, store = master()
    end = killed_with_one_unconfirmed(kit, store)
    store = open_again(kit)
    store.replicas.confirm(end - 1)
    assert bodies(store) == [b"confirmed"]
    store.replicas.confirm(end)
    assert bodies(store) == [b"confirmed", b"unconfirmed"]


def test_store_restarted_master_that_waits_for_none_shows_everything() -> None:
    kit, store = master()
    killed_with_one_unconfirmed(kit, store)
    store = open_again(kit)
    store.replicas.wait_for_none()
    assert bodies(store) == [b"confirmed", b"unconfirmed"]


def test_store_restarted_master_new_messages_wait_behind_held_ones() -> None:
    kit, store = master()
    killed_with_one_unconfirmed(kit, store)
    store = open_again(kit)
    end = store.put_message(message(b"new")).phy_end
    assert bodies(store) == [b"confirmed"]
    store.replicas.release(end)
    assert bodies(store) == [b"confirmed", b"unconfirmed", b"new"]


def test_store_restarted_master_consumer_behind_the_shown_end_stays_there() -> None:
    kit, store = master()
    killed_with_one_unconfirmed(kit, store)
    store = open_again(kit)
    found = store.get_message(TOPIC, 0, 2, 32, 1 << 20)
    assert found.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert found.next_begin_offset == 2


def test_store_restarted_master_reads_its_own_topics_to_their_end() -> None:
    kit, store = master()
    killed_with_one_unconfirmed(kit, store)
    store = open_again(kit)
    store.put_message(PutMessage(TRANS_HALF_TOPIC, 0, b"half"))
    store.flush_log()
    kit.files.kill()
    kit.files.start_process()
    store = open_again(kit)
    assert store.max_offset(TRANS_HALF_TOPIC, 0) == 1
    assert store.get_message(TRANS_HALF_TOPIC, 0, 0, 32, 1 << 20).count == 1
    assert bodies(store) == [b"confirmed"], "also after a second kill"


def test_store_stopped_master_shows_everything_that_was_visible() -> None:
    kit, store = master()
    sent = put_many(store, 5)
    store.replicas.release(store.max_phy_offset)
    store.close()
    store = open_again(kit)
    assert bodies(store) == sent


def test_store_without_checkpoint_hides_messages_until_released() -> None:
    kit, store = master()
    end = killed_with_one_unconfirmed(kit, store)
    kit.files.remove(CHECKPOINT)
    store = open_again(kit)
    assert bodies(store) == []
    store.replicas.release(end)
    assert bodies(store) == [b"confirmed", b"unconfirmed"]


def test_checkpoint_of_a_store_without_replicas_has_no_visible_offset() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 5)
    store.close()
    assert not any(kit.files.read_bytes(CHECKPOINT)[192:])
