"""Catch-up of the index: messages that it missed are read back from the commit log.

The index falls behind when the disk has no space for it, and starts behind after a crash: an index
file that was incomplete when the process was killed is deleted, and with it the entries of up to
twenty million messages. The missing part of the log is read in slices (`LogSlices`). A slice
reports its end even if it has no message for the index, because damaged bytes, deleted topics and
rolled-back messages are skipped; the catch-up ends at the end of the dispatched part. Where the
compiled reader is available, `BulkReplay` indexes consecutive fast-path eligible records in bulk,
and only the records between them are read in slices.

Source: IndexService (5.4.0), which drops messages that do not fit.
"""

import enum
import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketpy.proto.record.record import BLANK_BYTES
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.append.dispatch import DispatchRequest, has_index_entries, read_back
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.deleted_topics import DeletedTopics
from rocketpy.store.index.index_service import IndexedMessage, IndexService
from rocketpy.store.recovery.bulk_recovery import CompiledReader, QueueRun, put_keys
from rocketpy.store.recovery.log_scan import LogScan, TrustedRange
from rocketpy.store.store_offsets import StoreOffsets


class Replayed(enum.Enum):
    """Result of a bulk replay."""

    NOTHING = "nothing"  # the next record needs the general path
    PUT = "put"
    REFUSED = "refused"  # no disk space for some or all of them


class BulkReplay:
    """Indexes consecutive fast-path eligible records in bulk; used by one thread."""

    def __init__(
        self, index: IndexService, log: CommitLog, offsets: StoreOffsets, deleted: DeletedTopics
    ) -> None:
        """Prepare a replay; the compiled reader is loaded on first use.

        Args:
            index: the index to complete.
            log: the commit log.
            offsets: offsets of the store, for the end of the dispatched part.
            deleted: topics to skip.
        """
        self._index = index
        self._log = log
        self._offsets = offsets
        self._deleted = deleted
        self._reader = CompiledReader()
        self._one_by_one_to = 0

    def rest(self) -> None:
        """Free memory when the catch-up is complete."""
        self._reader = CompiledReader()
        self._one_by_one_to = 0

    def replay(self, missing_from: int) -> Replayed:
        """Index the eligible records at an offset where the index misses them."""
        start = max(missing_from, self._log.min_phy_offset)
        mapped = self._log.queue.find(start)
        if start < self._one_by_one_to or mapped is None:
            return Replayed.NOTHING
        base = mapped.base_offset
        # Not beyond the dispatched part: later messages may not be visible yet.
        end = min(base + mapped.size_bytes - BLANK_BYTES, self._offsets.dispatched)
        records = self._reader.records() if start < end else None
        if records is None or not records.read(
            mapped.view, start - base, end - base, base, check_crc=False, index_from=0
        ):
            return Replayed.NOTHING
        covers = self._deleted.covers
        queues = [QueueRun(*each) for each in records.queues()]
        if any(covers(each.topic, each.first_phy) for each in queues):
            # Noted, so that the same records are not read in bulk again for each slice.
            self._one_by_one_to = base + records.end
            return Replayed.NOTHING
        if not put_keys(self._index, records, is_replay=True):
            return Replayed.REFUSED
        self._index.replayed_to(base + records.end)
        return Replayed.PUT


logger: logging.Logger = logging.getLogger(__name__)

_ALL_MS: Final = (1 << 63) - 1


class LogSlice(NamedTuple):
    """Part of the log with its messages for the index.

    Attributes:
        messages: messages to index, in the order of the log.
        end: physical offset of the end of the slice; its start if nothing is left.
    """

    messages: list[IndexedMessage]
    end: int


class LogSlices:
    """Reads slices of the dispatched part of a commit log."""

    def __init__(
        self,
        log: CommitLog,
        offsets: StoreOffsets,
        deleted: DeletedTopics,
        delays_ms: tuple[int, ...],
    ) -> None:
        """Build a reader.

        Args:
            log: the commit log.
            offsets: offsets of the store, for the end of the dispatched part.
            deleted: topics to skip.
            delays_ms: delay levels.
        """
        self._log = log
        self._offsets = offsets
        self._deleted = deleted
        self._delays_ms = delays_ms

    def read(self, start: int, max_bytes: int) -> LogSlice:
        """Return the messages in about `max_bytes` of the log from an offset on."""
        stop = self._offsets.dispatched
        # Retention may have deleted the begin of the missing part.
        start = end = max(start, self._log.min_phy_offset)
        messages: list[IndexedMessage] = []
        scan = LogScan(
            self._log, start, TrustedRange(_ALL_MS, stop), check_crc=False, power_cut=False
        )
        for phy_offset, found in scan if start < stop else ():
            if phy_offset >= stop:
                break
            end = phy_offset + found.size_bytes
            request = read_back(found, phy_offset, self._delays_ms)
            if found.state is RecordState.RECORD and self._is_indexed(request):
                messages.append(request)  # type: ignore[arg-type]
            if end >= stop or end - start >= max_bytes:  # a record at stop may be incomplete
                return LogSlice(messages, end)
        return LogSlice(messages, max(start, stop))

    def _is_indexed(self, request: DispatchRequest | None) -> bool:
        return (
            request is not None
            and has_index_entries(request.sys_flag)
            and not self._deleted.covers(request.topic, request.phy_offset)
        )


class IndexCatchUpService:
    """Background service that completes the index, one slice of the log a step."""

    name: Final = "IndexCatchUpService"

    def __init__(
        self,
        index: IndexService,
        read: Callable[[int, int], LogSlice],
        append_lock: threading.Lock,
        *,
        runs: BulkReplay | None = None,
        slice_bytes: int = 1 << 14,
        idle_ms: int = 1_000,
    ) -> None:
        """Build the service.

        Args:
            index: the index to complete.
            read: returns the messages in about that many bytes of the log from an offset on.
            append_lock: held by the thread that puts messages into the index.
            runs: indexes records in bulk; None to read all records singly.
            slice_bytes: bytes of the log that one step reads.
            idle_ms: pause when nothing is missing or the disk is full.
        """
        self._index = index
        self._read = read
        self._append_lock = append_lock
        self._runs = runs
        self._slice_bytes = slice_bytes
        self._idle_ms = idle_ms

    def step(self, now_ms: int) -> int:
        """Replay in bulk or read one slice; see `rocketpy.runtime.service.Service.step`."""
        missing_from = self._index.missing_from
        if missing_from is None:
            return now_ms + self._idle_ms
        runs = self._runs
        replayed = Replayed.NOTHING if runs is None else runs.replay(missing_from)
        if replayed is not Replayed.NOTHING:
            return now_ms if replayed is Replayed.PUT else now_ms + self._idle_ms
        found = self._read(missing_from, self._slice_bytes)
        # Without space the next step continues with the message that did not fit.
        if not all(self._index.replay(message) for message in found.messages):
            return now_ms + self._idle_ms
        if found.end > missing_from:
            self._index.replayed_to(found.end)
            return now_ms
        return now_ms + self._idle_ms if self._finish() else now_ms

    def _finish(self) -> bool:
        """End the catch-up unless a message arrived meanwhile."""
        # Under the lock: a message that is appended now is seen here or indexed directly.
        with self._append_lock:
            missing_from = self._index.missing_from
            assert missing_from is not None
            if self._read(missing_from, 1).end > missing_from:
                return False
            self._index.end_replay()
            if self._runs is not None:
                self._runs.rest()
            return True
