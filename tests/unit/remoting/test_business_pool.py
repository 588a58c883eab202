import threading

import pytest

from rocketpy.remoting.business_pool import BusinessPool
from tests.unit.remoting.fakes import ManualClock


class Batch:
    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.runs = 0
        self.refusals: list[tuple[int, int]] = []
        self.done = threading.Event()

    def run(self) -> None:
        self.runs += 1
        self.done.set()

    def refuse(self, waited_ms: int, queued_count: int) -> None:
        self.refusals.append((waited_ms, queued_count))


class Broken(Batch):
    def run(self) -> None:
        self.done.set()
        raise ValueError("broken batch")


def queued(pool: BusinessPool, batch: Batch) -> Batch:
    assert pool.reserve(batch.count) == batch.count
    pool.submit(batch)
    return batch


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_pool_without_threads_is_inline() -> None:
    assert BusinessPool("p", 0, 10, 200).runs_inline
    assert not BusinessPool("p", 1, 10, 200).runs_inline


def test_pool_capacity_counts_requests(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 10, 200, clock=clock)
    queued(pool, Batch(6))
    assert pool.reserve(6) == 4
    assert pool.reserve(1) == 0
    statistics = pool.statistics()
    assert (statistics.queued_count, statistics.refused_count, statistics.capacity) == (10, 3, 10)


def test_pool_frees_room_when_batch_is_taken(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 10, 200, clock=clock)
    batch = queued(pool, Batch(10))
    assert pool.run_one()
    assert batch.runs == 1
    assert pool.reserve(10) == 10
    assert pool.statistics().completed_count == 10


def test_run_one_on_empty_pool_does_nothing(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 10, 200, clock=clock)
    assert not pool.run_one()


def test_pool_sweep_refuses_expired_batches_only(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 100, 200, clock=clock)
    old = queued(pool, Batch(3))
    clock.now += 150
    young = queued(pool, Batch(2))
    clock.now += 50
    pool.sweep(clock.now)
    assert old.refusals == [(200, 2)]
    assert young.refusals == []
    statistics = pool.statistics()
    assert (statistics.queued_count, statistics.head_wait_ms, statistics.expired_count) == (
        2,
        50,
        3,
    )
    assert pool.run_one()
    assert young.runs == 1
    assert old.runs == 0


def test_pool_thread_refuses_expired_batch(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 100, 200, clock=clock)
    batch = queued(pool, Batch())
    clock.now += 300
    assert pool.run_one()
    assert batch.runs == 0
    assert batch.refusals == [(300, 0)]


def test_pool_without_wait_limit_refuses_nothing(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 100, 0, clock=clock)
    batch = queued(pool, Batch())
    clock.now += 10_000_000
    pool.sweep(clock.now)
    assert pool.run_one()
    assert batch.runs == 1


def test_pool_watch_is_claimed_once_until_queue_is_empty(clock: ManualClock) -> None:
    pool = BusinessPool("p", 1, 100, 200, clock=clock)
    queued(pool, Batch())
    assert pool.claim_watch()
    assert not pool.claim_watch()
    assert not pool.release_watch()
    assert pool.run_one()
    assert pool.release_watch()
    assert pool.claim_watch()


def test_pool_threads_process_and_stop() -> None:
    pool = BusinessPool("p", 2, 100, 0)
    pool.start()
    batches = [queued(pool, Batch()) for _ in range(20)]
    for batch in batches:
        assert batch.done.wait(5)
    pool.stop()
    assert [batch.runs for batch in batches] == [1] * 20
    assert pool.is_idle
    assert not [t for t in threading.enumerate() if t.name.startswith("p-")]


def test_pool_stop_processes_queued_batches() -> None:
    pool = BusinessPool("q", 1, 100, 0)
    batches = [queued(pool, Batch()) for _ in range(5)]
    pool.start()
    pool.stop(5000)
    assert [batch.runs for batch in batches] == [1] * 5


def test_failing_batch_does_not_end_pool_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool = BusinessPool("b", 1, 100, 0)
    pool.start()
    queued(pool, Broken())
    after = queued(pool, Batch())
    assert after.done.wait(5)
    pool.stop()
    assert "batch failed: pool=b" in caplog.text


def test_shared_pool_stops_with_last_user() -> None:
    pool = BusinessPool("s", 1, 100, 0)
    pool.start()
    pool.start()
    pool.stop()
    batch = queued(pool, Batch())
    assert batch.done.wait(5)
    pool.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("s-")]


def test_run_behind_runs_after_queued_batches_and_is_never_refused(
    clock: ManualClock,
) -> None:
    pool = BusinessPool("p", 1, 10, 200, clock=clock)
    done: list[int] = []
    batch = queued(pool, Batch(10))
    pool.run_behind(lambda: done.append(batch.runs))
    assert not pool.is_idle
    assert pool.run_one()
    assert not pool.is_idle
    clock.now += 300
    pool.sweep(clock.now)
    assert done == []
    clock.now += 300
    assert pool.run_one()
    assert pool.run_one()
    assert done == [1]
    assert pool.is_idle
    assert pool.statistics().completed_count == 10
    assert not pool.run_one()
