"""Writer of a slave's log: appends the log of a master unchanged.

A master sends its log unchanged, including blanks, in parts that may end within a record. The parts
are appended at their physical offsets; complete records are dispatched like in recovery. Afterwards
pulls and look-ups return the same results as on the master.

Where the compiled reader is available, consecutive fast-path eligible records are checked and
dispatched in bulk (`RecordBulk`); the records between them are dispatched one by one. A record that
fails its checksum was damaged on the master's disk: it is reported and skipped, as it is there.

Source: HAClient.dispatchReadRequest, CommitLog.appendData (5.4.0).
"""

import threading
from collections.abc import Callable

from rocketpy.errors import DiskFullError, ResourceShortError, StoreReadOnlyError
from rocketpy.proto.record.record import BLANK_BYTES
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.append.dispatch import (
    Arrival,
    DispatcherList,
    RecordRange,
    arrivals_of,
    batch_arrivals,
    has_queue_entry,
    read_back,
)
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue_table import is_safe_topic
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES
from rocketpy.store.consume_queue.queue_rebuild import QueueRebuilder
from rocketpy.store.index.index_service import IndexService
from rocketpy.store.recovery.bulk_recovery import (
    NO_INDEX,
    CompiledReader,
    PlainRecords,
    QueueRun,
    put_keys,
)
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import WriteGate

_CODE_AT = 12


class RecordBulk:
    """Dispatches consecutive fast-path eligible records of the log (append lock held)."""

    def __init__(
        self,
        log: CommitLog,
        rebuilder: QueueRebuilder,
        index: IndexService | None,
        is_batch_topic: Callable[[str], bool],
        delays_ms: tuple[int, ...],
    ) -> None:
        """Prepare the reader; the compiled part is loaded on first use.

        Args:
            log: the commit log.
            rebuilder: writes queue entries.
            index: the message index.
            is_batch_topic: returns whether a topic has batch queues.
            delays_ms: delay levels.
        """
        self._log = log
        self._rebuilder = rebuilder
        self._index = index
        self._is_batch_topic = is_batch_topic
        self._index_from = NO_INDEX if index is None else 0
        self._reader = CompiledReader(delays_ms)
        self._records: PlainRecords | None = None
        self._queues: list[QueueRun] = []
        self._last_read: tuple[int, int] = (0, 0)

    def read(self, start: int, end: int) -> RecordRange | None:
        """Return the eligible records at an offset; None if the next one needs the general path.

        Args:
            start: physical offset of a record.
            end: records that end later are incomplete.

        Raises:
            ResourceShortError: queues hold too many unflushed bytes.
        """
        records = self._read(start, end, check_crc=True)
        if records is None or not all(map(self._follows, self._queues)):
            return None
        # Reserved before anything is dispatched: `put` must not fail half-way.
        self._rebuilder.reserve_runs(
            [(each.topic, each.queue_id, len(each.entries) // ENTRY_BYTES) for each in self._queues]
        )
        return RecordRange(start, self._last_read[1], records.last_ms, self.put, [])

    def put(self, found: RecordRange) -> None:
        """Write the queue entries and keys of records, and note their arrivals.

        Args:
            found: from `read`; other records may have been read since then.
        """
        # The checksums were verified by `read`; the bytes of the log do not change.
        records = self._read(found.phy_offset, found.phy_end, check_crc=False)
        if records is None:
            return
        for run in self._queues:
            # A topic may have been deleted while its messages waited for the flush.
            if not self._rebuilder.is_deleted(run.topic, run.first_phy):
                count = len(run.entries) // ENTRY_BYTES
                self._rebuilder.put_run(
                    run.topic, run.queue_id, run.entries, run.last_phy, run.phy_end
                )
                found.arrivals.extend(
                    batch_arrivals(
                        run.topic, run.queue_id, run.queue_offset + count, _codes(run.entries)
                    )
                )
        if self._index is not None:
            put_keys(self._index, records)

    def _read(self, start: int, end: int, *, check_crc: bool) -> PlainRecords | None:
        mapped = self._log.queue.find(start)
        if mapped is None:
            return None
        # The common case: the records are dispatched at once, and were read last.
        if self._records is not None and self._last_read == (start, end):
            return self._records
        base = mapped.base_offset
        # The last bytes of a file belong to its blank, never to a record.
        end = min(end, mapped.end_offset - BLANK_BYTES)
        records = self._reader.records() if start < end else None
        # Invalid from here on: the reader overwrites its arrays.
        self._records = None
        if records is None or not records.read(
            mapped.view, start - base, end - base, base, check_crc, self._index_from
        ):
            return None
        self._records, self._last_read = records, (start, base + records.end)
        self._queues = [QueueRun(*each) for each in records.queues()]
        return records

    def forget(self) -> None:
        """Forget the records that were read last: their bytes are removed."""
        self._records = None

    def _follows(self, run: QueueRun) -> bool:
        """Return whether the entries continue their queue."""
        return (
            is_safe_topic(run.topic)
            and not self._is_batch_topic(run.topic)
            and self._rebuilder.follows(
                run.topic,
                run.queue_id,
                run.queue_offset,
                run.first_phy,
                len(run.entries) // ENTRY_BYTES,
            )
        )


class ReplicaWriter:
    """Appends parts of a master's log."""

    def __init__(
        self,
        append_lock: threading.Lock,
        *,
        gate: WriteGate,
        log: CommitLog,
        offsets: StoreOffsets,
        dispatchers: DispatcherList,
        rebuilder: QueueRebuilder,
        bulk: RecordBulk,
        delays_ms: tuple[int, ...],
    ) -> None:
        self._append_lock = append_lock
        self._gate = gate
        self._log = log
        self._offsets = offsets
        self._dispatchers = dispatchers
        self._rebuilder = rebuilder
        self._bulk = bulk
        self._delays_ms = delays_ms

    def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
        """Append a part of the log and dispatch the records that are complete now.

        Args:
            phy_offset: its offset in the master's log, which must be the end of this log.
            data: bytes of the part.

        Returns:
            The offset of the next part.

        Raises:
            StoreReadOnlyError: the store is not writable. LogGapError: the offset is not the end of
                the log. StoreFormatError: the bytes are not records. DiskFullError: no space, or
                nearly none; the part that did not fit is not appended. ResourceShortError: queues
                hold too many unflushed bytes. The part is in the log, but not completely
                dispatched: call again with no bytes at its end, or with the next part.
        """
        arrivals: list[Arrival] = []
        shortage: ResourceShortError | None = None
        with self._append_lock:
            refusal = self._gate.log_refusal
            if refusal is not None:
                kind = DiskFullError if self._gate.is_disk_full else StoreReadOnlyError
                raise kind(refusal)
            end = self._log.append_raw(phy_offset, data)
            try:
                while self._dispatch_bulk(end, arrivals) or self._dispatch_one(end, arrivals):
                    pass
            except ResourceShortError as error:
                # Raised later: earlier records of the part are dispatched, and announced first.
                shortage = error
        # Without the lock: listeners may take other locks.
        self._dispatchers.announce(arrivals)
        if self._offsets.appended > self._offsets.visible:
            self._offsets.ask()
        if shortage is not None:
            raise shortage
        return end

    def drop_incomplete(self) -> bool:
        """Remove the bytes behind the last dispatched record; return whether there were any.

        A crash at any time is harmless: recovery removes them, too.

        Raises:
            OSError: a file cannot be removed or erased.
        """
        with self._append_lock:
            is_complete = self._log.write_end <= self._offsets.appended
            if not self._gate.is_open or (is_complete and not self._log.is_without_record):
                return False
            # First: the reader must not return records of removed bytes.
            self._bulk.forget()
            self._log.drop_incomplete()
            return True

    def _dispatch_bulk(self, end: int, arrivals: list[Arrival]) -> bool:
        """Advance `appended` over eligible records, and dispatch them; return if there were any."""
        offsets = self._offsets
        found = self._bulk.read(offsets.appended, end)
        if found is None:
            return False
        offsets.appended = found.phy_end
        offsets.appended_ms = found.store_timestamp_ms
        if self._dispatchers.submit(found):
            arrivals += found.arrivals
        return True

    def _dispatch_one(self, end: int, arrivals: list[Arrival]) -> bool:
        """Do the same with one record or blank; return whether it was complete."""
        offsets = self._offsets
        for phy_offset, found in self._log.whole_records(offsets.appended, end):
            if found.state is not RecordState.RECORD:
                if found.state is RecordState.DAMAGED:
                    self._log.report_damage(phy_offset, "the master sent it damaged")
                offsets.appended = phy_offset + found.size_bytes
                return True
            request = read_back(found, phy_offset, self._delays_ms)
            if request is not None and has_queue_entry(request.sys_flag):
                self._rebuilder.reserve(request.topic, request.queue_id, request.queue_offset)
            offsets.appended = phy_offset + found.size_bytes
            offsets.appended_ms = found.store_timestamp_ms
            if request is not None and self._dispatchers.submit(request):
                arrivals += arrivals_of(request)
            return True
        return False


def _codes(entries: bytes) -> set[int]:
    """Return the tags codes in packed queue entries."""
    packed = {entries[at : at + 8] for at in range(_CODE_AT, len(entries), ENTRY_BYTES)}
    return {int.from_bytes(each, "big", signed=True) for each in packed}
