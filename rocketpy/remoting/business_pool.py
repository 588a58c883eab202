"""Business pools: bounded queues of request batches with threads behind them.

One task is all requests of one socket read that belong to one pool. A queue is bounded by
requests, not tasks. Batches that wait longer than the pool allows are refused rather than served
late (fast failure): checked every 10 ms while any waits, and again when a thread takes one.

Source: ThreadPoolExecutors of BrokerController, BrokerFastFailure (5.4.0).
"""

import asyncio
import collections
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rocketpy.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

# As BrokerFastFailure; the limits of waits are 200 ms and more.
SWEEP_INTERVAL_MS = 10


class Batch(Protocol):
    """Requests that cross to a pool's thread together."""

    @property
    def count(self) -> int:
        """Number of requests in it."""
        ...

    def run(self) -> None:
        """Process all and hand the responses back; on a pool thread; raises nothing."""
        ...

    def refuse(self, waited_ms: int, queued_count: int) -> None:
        """Answer all with "waited too long"; on any thread; raises nothing."""
        ...


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Statistics of a pool at one moment.

    Attributes:
        name: of the pool.
        threads: how many serve it; 0 runs inline.
        capacity: requests that may wait.
        queued_count: requests that do wait.
        head_wait_ms: how long the first of them has waited; 0 when none does.
        completed_count: requests processed since the start.
        refused_count: requests turned away because the queue was full.
        expired_count: requests turned away because they waited too long.
    """

    name: str
    threads: int
    capacity: int
    queued_count: int
    head_wait_ms: int
    completed_count: int
    refused_count: int
    expired_count: int


class _Work:
    """Work beside requests: it does not count, and is never refused."""

    count = 0

    def __init__(self, pool: "BusinessPool", work: Callable[[], None]) -> None:
        self._pool = pool
        self._work = work

    def run(self) -> None:
        self._work()

    def refuse(self, _waited_ms: int, _queued_count: int) -> None:
        self._pool.submit(self)


class BusinessPool:
    """Threads that process requests of one kind.

    The selector calls `reserve` and `submit`, and refuses requests that found no room itself.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        capacity: int,
        queue_wait_ms: int,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Describe a pool; `start` makes its threads.

        Args:
            name: for thread names, logs and statistics.
            threads: how many; 0 means that requests run inline on the selector.
            capacity: requests that may wait, Apache's `...ThreadPoolQueueCapacity`.
            queue_wait_ms: longest wait, Apache's `waitTimeMillsIn...Queue`; 0 is no limit.
            clock: time for the waits; the machine's when None.
        """
        assert threads >= 0, threads
        assert capacity > 0, capacity
        self.name = name
        self.threads = threads
        self.capacity = capacity
        self.queue_wait_ms = queue_wait_ms
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._queue: collections.deque[tuple[Batch, int]] = collections.deque()
        # One token a queued batch: SimpleQueue wakes a thread far cheaper than a Condition.
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._queued_count = 0
        self._running_count = 0
        self._completed_count = 0
        self._refused_count = 0
        self._expired_count = 0
        self._users_count = 0
        self._is_watched = False
        self._workers: list[threading.Thread] = []

    @property
    def runs_inline(self) -> bool:
        """Whether the pool has no threads."""
        return self.threads == 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        with self._lock:
            return self._queued_count == 0 and self._running_count == 0 and not self._queue

    @property
    def has_queued(self) -> bool:
        """Whether anything waits."""
        return bool(self._queue)

    @property
    def queued_count(self) -> int:
        """Requests that wait, and reserved room."""
        return self._queued_count

    def start(self) -> None:
        """Start the threads; several servers may share a pool, the first starts it."""
        with self._lock:
            self._users_count += 1
            if self._users_count > 1:
                return
            # The loop that had the watch may be closed: the next `watch_pool` must start another.
            self._is_watched = False
            for index in range(self.threads):
                thread = threading.Thread(
                    target=self._work, name=f"{self.name}-{index}", daemon=True
                )
                self._workers.append(thread)
                thread.start()

    def stop(self, join_timeout_ms: int = 1000) -> None:
        """End the threads when the last user stops; what is queued is still processed.

        Args:
            join_timeout_ms: how long to wait for each thread; a stuck one is left behind.
        """
        with self._lock:
            self._users_count -= 1
            if self._users_count > 0:
                return
            workers, self._workers = self._workers, []
        # Behind the tokens of queued batches: those are processed first.
        for _ in workers:
            self._tokens.put(False)
        for thread in workers:
            # A daemon thread that is stuck in a processor ends with the process.
            thread.join(join_timeout_ms / 1000)
            if thread.is_alive():
                _log.warning(
                    "pool thread still busy at stop: pool=%s thread=%s", self.name, thread.name
                )

    def reserve(self, count: int) -> int:
        """Reserve room for up to `count` requests; return for how many there was."""
        with self._lock:
            # Check and count in one step: selectors on several threads reserve at once.
            granted = min(count, self.capacity - self._queued_count)
            self._queued_count += granted
            self._refused_count += count - granted
            return granted

    def submit(self, batch: Batch) -> None:
        """Queue a batch whose room was reserved."""
        # Before the lock: the clock may be a system call.
        entry = (batch, self._clock.monotonic_ms())
        with self._lock:
            self._queue.append(entry)
        self._tokens.put(True)

    def run_behind(self, work: Callable[[], None]) -> None:
        """Have a pool thread run work after everything that is queued now; any thread.

        Args:
            work: called once, however long it has waited; raises nothing.
        """
        assert self.threads, "a pool without threads has no queue"
        self.submit(_Work(self, work))

    def sweep(self, now_ms: int) -> None:
        """Refuse batches at the head of the queue that waited too long; any thread.

        Args:
            now_ms: monotonic time.
        """
        if self.queue_wait_ms <= 0:
            return
        while True:
            with self._lock:
                if not self._queue:
                    return
                batch, enqueued_ms = self._queue[0]
                waited_ms = now_ms - enqueued_ms
                if waited_ms < self.queue_wait_ms:
                    return
                self._queue.popleft()
                self._queued_count -= batch.count
                self._expired_count += batch.count
                queued_count = self._queued_count
            # Without the lock, and one batch at a time: threads take others meanwhile.
            batch.refuse(waited_ms, queued_count)

    def sweep_now(self) -> None:
        """Call `sweep` with the time of the pool's clock."""
        self.sweep(self._clock.monotonic_ms())

    def claim_watch(self) -> bool:
        """Return True to one caller, which then has to sweep until nothing waits."""
        # Read without the lock first: every batch that is handed over asks.
        if self._is_watched:
            return False
        with self._lock:
            is_mine = not self._is_watched
            self._is_watched = True
            return is_mine

    def release_watch(self) -> bool:
        """End the watch unless something waits again; return whether it ended."""
        with self._lock:
            self._is_watched = bool(self._queue)
            return not self._is_watched

    def run_one(self) -> bool:
        """Process the batch at the head, if any; threads call it in a loop."""
        with self._lock:
            if not self._queue:
                return False
            batch, enqueued_ms = self._queue.popleft()
            count = batch.count
            self._queued_count -= count
            waited_ms = self._clock.monotonic_ms() - enqueued_ms
            # Again when a thread takes it: the sweep may be 10 ms late.
            is_late = 0 < self.queue_wait_ms <= waited_ms
            queued_count = self._queued_count
            if is_late:
                self._expired_count += count
            else:
                self._running_count += count
        # Outside the lock: responses are encoded in there.
        if is_late:
            batch.refuse(waited_ms, queued_count)
            return True
        # `finally`: a failing batch must not leave the pool busy for ever.
        try:
            batch.run()
        finally:
            with self._lock:
                self._running_count -= count
                self._completed_count += count
        return True

    def statistics(self) -> PoolStatistics:
        """Return counts and waits of this moment."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            return PoolStatistics(
                name=self.name,
                threads=self.threads,
                capacity=self.capacity,
                queued_count=self._queued_count,
                head_wait_ms=now_ms - self._queue[0][1] if self._queue else 0,
                completed_count=self._completed_count,
                refused_count=self._refused_count,
                expired_count=self._expired_count,
            )

    def _work(self) -> None:
        tokens = self._tokens
        while tokens.get():
            try:
                self.run_one()
            except Exception:  # noqa: BLE001 - service runner: a broken batch must not end the thread
                _log.exception("pool batch failed: pool=%s", self.name)


def watch_pool(loop: asyncio.AbstractEventLoop, pool: BusinessPool) -> None:
    """Check the head of a pool's queue every 10 ms, while anything waits there.

    Source: BrokerFastFailure (5.4.0).
    """
    if pool.queue_wait_ms > 0 and pool.claim_watch():
        loop.call_later(SWEEP_INTERVAL_MS / 1000, _check, loop, pool)


def _check(loop: asyncio.AbstractEventLoop, pool: BusinessPool) -> None:
    pool.sweep_now()
    if not pool.release_watch():
        loop.call_later(SWEEP_INTERVAL_MS / 1000, _check, loop, pool)
