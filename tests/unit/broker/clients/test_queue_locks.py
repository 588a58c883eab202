"""Queue locks of ordered consumers."""

from rocketpy.broker.clients.queue_locks import EXPIRY_INTERVAL_MS, LOCK_LIFE_MS, QueueLocks


def test_queue_lock_is_exclusive_and_renewable() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "T", 0, "c1", 0)
    assert locks.lock("g", "T", 1, "c1", 0)
    assert not locks.lock("g", "T", 0, "c2", 1)
    assert locks.lock("g", "T", 0, "c1", 50_000)
    later_ms = LOCK_LIFE_MS + 1
    assert not locks.lock("g", "T", 0, "c2", later_ms)
    assert locks.lock("g", "T", 1, "c2", later_ms), "it was not renewed"
    assert locks.lock("other", "T", 0, "c2", later_ms), "groups do not meet"


def test_queue_lock_is_released_by_owner_only() -> None:
    locks = QueueLocks()
    locks.lock("g", "T", 0, "c1", 0)
    locks.unlock("g", [("T", 0)], "c2")
    assert not locks.lock("g", "T", 0, "c2", 1)
    locks.unlock("g", [("T", 0), ("T", 1)], "c1")
    assert locks.lock("g", "T", 0, "c2", 2)


def test_queue_locks_are_bounded() -> None:
    locks = QueueLocks(max_locks=2)
    assert [locks.lock("g", "T", queue, "c", 0) for queue in range(3)] == [True, True, False]
    assert locks.lock("g", "T", 0, "c", 1), "renewing needs no room"
    assert locks.lock("g", "T", 2, "c", LOCK_LIFE_MS + 1), "the expired one made room"


def test_queue_locks_step_removes_expired_locks() -> None:
    locks = QueueLocks()
    locks.lock("g", "T", 0, "c", 0)
    locks.lock("g", "T", 1, "c", 5_000)
    assert locks.step(LOCK_LIFE_MS) == LOCK_LIFE_MS + EXPIRY_INTERVAL_MS
    assert len(locks) == 2
    locks.step(LOCK_LIFE_MS + 1)
    assert len(locks) == 1
    locks.step(LOCK_LIFE_MS + 5_001)
    assert len(locks) == 0


def test_queue_locks_has_any_until_last_lock_is_gone() -> None:
    locks = QueueLocks()
    assert not locks.has_any("g", 0)
    locks.lock("g", "T", 0, "c", 0)
    locks.lock("g", "T", 0, "c", 10)
    locks.lock("g", "T", 1, "c", 5_000)
    assert locks.has_any("g", 10)
    assert not locks.has_any("other", 10)
    locks.unlock("g", [("T", 0)], "c")
    assert locks.has_any("g", LOCK_LIFE_MS)
    assert not locks.has_any("g", LOCK_LIFE_MS + 5_001)
