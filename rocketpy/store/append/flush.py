"""Flush services for the commit log and the consume queues.

ASYNC_FLUSH checks the log every 500 ms; SYNC_FLUSH flushes as soon as a caller waits, and one flush
answers all callers that waited before it started.

After a failed flush the store does not flush again: the kernel may have dropped the pages, so a
second, successful flush would not mean that they are on disk. The latch makes the store read-only
until a restart recovers the actual content, and all waiting callers fail at once.

Source: CommitLog.GroupCommitService, FlushRealTimeService,
DefaultMessageStore.FlushConsumeQueueService (5.4.0).
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from rocketpy.errors import ResourceShortError
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES
from rocketpy.store.consume_queue.tail_memory import TailedQueue
from rocketpy.store.files.mapped_file import PAGE_BYTES
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import ReadOnlyLatch

logger: logging.Logger = logging.getLogger(__name__)

_IDLE_MS: Final = 1_000
_DEADLINE_INTERVAL_MS: Final = 100
# Unflushed queue entries that trigger a complete flush: 0.3 s of recovery.
_MUCH_DIRTY_BYTES: Final = 32_768 * ENTRY_BYTES
# Bytes of the log since the last complete flush that trigger the next one. Readers of the files of
# a running store take the rest from the log, at most 1 GiB; this leaves room for a slow disk.
_MUCH_LOG_BYTES: Final = 256 << 20
# Checks per interval under high load: the rate determines how much recovery has to read.
_CHECKS_WHEN_MUCH: Final = 4


class LogFlusher:
    """Flushes the commit log, and advances the checkpoint and `StoreOffsets.flushed`."""

    def __init__(
        self, log: CommitLog, offsets: StoreOffsets, checkpoint: Checkpoint, latch: ReadOnlyLatch
    ) -> None:
        self._log = log
        self._offsets = offsets
        self._checkpoint = checkpoint
        self._latch = latch
        self._mutex = threading.Lock()

    @property
    def dirty_bytes(self) -> int:
        """Appended bytes that are not flushed."""
        return self._offsets.dirty_bytes

    def flush(self) -> bool:
        """Flush everything appended before the call; return False if the latch has tripped."""
        # Services, retention and `close` flush; the offsets must advance in order.
        with self._mutex:
            # A flush after a failed one may report success for pages that the kernel dropped.
            if self._latch.reason is not None:
                return False
            stamp_ms = self._offsets.appended_ms  # read first: never newer than the flush
            try:
                # Other threads append during the flush; only bytes from before it count as flushed.
                flushed = self._log.flush()
            except OSError as error:
                self._latch.trip("flush of the commit log", error)
                return False
            self._checkpoint.log_reached(flushed, stamp_ms)
            self._offsets.flush_reached(flushed)
            return True


class FlushRealTimeService:
    """ASYNC_FLUSH: flushes when enough pages are dirty, or after a maximum interval."""

    name: Final = "FlushRealTimeService"

    def __init__(self, flusher: LogFlusher, config: MessageStoreConfig) -> None:
        self._flusher = flusher
        self._interval_ms = config.flush_interval_commit_log
        self._least_bytes = config.flush_commit_log_least_pages * PAGE_BYTES
        self._thorough_ms = config.flush_commit_log_thorough_interval
        self._last_flush_ms: int | None = None

    def step(self, now_ms: int) -> int:
        """Flush if due; see `rocketpy.runtime.service.Service.step`."""
        if self._last_flush_ms is None:
            self._last_flush_ms = now_ms
        dirty_bytes = self._flusher.dirty_bytes
        is_old = now_ms - self._last_flush_ms >= self._thorough_ms
        if dirty_bytes and (is_old or dirty_bytes >= self._least_bytes):
            self._flusher.flush()
            self._last_flush_ms = now_ms
        return now_ms + self._interval_ms


class GroupCommitService:
    """SYNC_FLUSH: one flush for all waiting callers.

    Attributes:
        wake: set by the owner to the runner's wake-up.
    """

    name: Final = "GroupCommitService"

    def __init__(self, flusher: LogFlusher, offsets: StoreOffsets) -> None:
        self._flusher = flusher
        self._offsets = offsets
        self._asked = False
        self.wake: Callable[[], None] = _nothing
        offsets.on_wait = self.request

    def request(self) -> None:
        """Request a flush soon; cheap if one is requested already."""
        if not self._asked:
            self._asked = True
            self.wake()

    def step(self, now_ms: int) -> int:
        """Flush if anything is dirty; see `rocketpy.runtime.service.Service.step`."""
        self._asked = False
        if self._flusher.dirty_bytes:
            self._flusher.flush()
        self._offsets.answer_acknowledged()
        return now_ms if self._asked else now_ms + _IDLE_MS


class FlushDeadlineService:
    """Fails callers that have waited too long for a flush or for replicas."""

    name: Final = "FlushDeadlineService"

    def __init__(self, offsets: StoreOffsets) -> None:
        self._offsets = offsets

    def step(self, now_ms: int) -> int:
        """Fail waiters past their deadline; see `rocketpy.runtime.service.Service.step`."""
        self._offsets.expire(now_ms)
        return now_ms + _DEADLINE_INTERVAL_MS


class FlushConsumeQueueService:
    """Flushes consume queues and full index files, and writes the checkpoint after them.

    The checkpoint advances only with a complete flush, and recovery reads everything after it.
    Complete flushes are therefore periodic, as in Apache, and more frequent under high load, so
    that recovery takes a few seconds at most.
    """

    name: Final = "FlushConsumeQueueService"

    def __init__(
        self,
        table: ConsumeQueueTable,
        checkpoint: Checkpoint,
        latch: ReadOnlyLatch,
        config: MessageStoreConfig,
        *,
        offsets: StoreOffsets,
        flush_index: Callable[[], None],
        append_lock: threading.Lock,
    ) -> None:
        """Build the service.

        Args:
            table: the queues.
            checkpoint: its values for queues are advanced here.
            latch: trips when a flush fails.
            config: intervals.
            offsets: provides the last dispatched message.
            flush_index: flushes full index files.
            append_lock: held while messages are dispatched.
        """
        self._table = table
        self._checkpoint = checkpoint
        self._latch = latch
        self._interval_ms = config.flush_interval_consume_queue
        self._least_bytes = max(1, config.flush_consume_queue_least_pages * PAGE_BYTES)
        self._thorough_ms = config.flush_consume_queue_thorough_interval
        self._offsets = offsets
        self._flush_index = flush_index
        self._append_lock = append_lock
        self._mutex = threading.Lock()  # retention also flushes, before it deletes
        self._last_thorough_ms: int | None = None

    def step(self, now_ms: int) -> int:
        """Flush if due; see `rocketpy.runtime.service.Service.step`."""
        if self._last_thorough_ms is None:
            self._last_thorough_ms = now_ms
        is_old = now_ms - self._last_thorough_ms >= self._thorough_ms
        log_bytes = self._offsets.dispatched - self._checkpoint.queues_phy_offset
        is_much = self._table.dirty_bytes >= _MUCH_DIRTY_BYTES or log_bytes >= _MUCH_LOG_BYTES
        thorough = is_old or is_much
        if self.flush(thorough=thorough) and thorough:
            self._last_thorough_ms = now_ms
        return now_ms + (self._interval_ms // _CHECKS_WHEN_MUCH if is_much else self._interval_ms)

    def flush(self, *, thorough: bool) -> bool:
        """Flush queues and checkpoint.

        Returns:
            False if the disk failed, now or earlier, or if space or descriptors were short.
        """
        with self._mutex:
            return self._latch.reason is None and self._flush(thorough=thorough)

    def _flush(self, *, thorough: bool) -> bool:
        ends: dict[TailedQueue, int] = {}
        with self._append_lock:
            dispatched, stamp_ms = self._offsets.dispatched, self._offsets.dispatched_ms
            if thorough:
                ends = self._table.unsettled_ends()
        entry_count = self._table.entry_count(ends) if thorough else 0
        try:
            self._table.flush(1 if thorough else self._least_bytes)
            self._flush_index()
            if thorough:
                self._checkpoint.queues_reached(dispatched, stamp_ms, entry_count)
            waits = self._offsets.waits_for_replicas
            self._checkpoint.visible_phy_offset = self._offsets.visible if waits else 0
            self._checkpoint.flush()
        except ResourceShortError:
            logger.debug("flush postponed, no space or descriptor for queues or checkpoint")
            return False
        except OSError as error:
            self._latch.trip("flush of the consume queues", error)
            return False
        return True


def _nothing() -> None:
    """Default of a callback that is not set."""
