from rocketpy.broker.queue_locks import LOCK_LIFE_MS, QueueLocks
from rocketpy.proto.message_queue import MessageQueue

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def test_a_lock_is_held_by_one_client_and_renewed_by_it() -> None:
    locks = QueueLocks()
    assert locks.lock("g", [A, B], "c1", 0) == [A, B]
    assert locks.lock("g", [A], "c2", 1) == []
    assert locks.lock("g", [A], "c1", 50_000) == [A]
    assert locks.lock("g", [A, B], "c2", LOCK_LIFE_MS + 1) == [B], "B was not renewed"
    assert locks.lock("other", [A], "c2", 1) == [A], "groups do not meet"


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", [A], "c1", 0)
    locks.unlock("g", [A], "c2")
    assert locks.lock("g", [A], "c2", 1) == []
    locks.unlock("g", [A, B], "c1")
    assert locks.lock("g", [A], "c2", 2) == [A]
