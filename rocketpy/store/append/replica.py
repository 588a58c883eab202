"""The log of another store, appended byte by byte: what a slave does.

A master sends its log as it lies there, blanks and all, in pieces that may end within a record.
The pieces are appended where they lay; what is whole is dispatched as recovery would do it.
Afterwards the same pulls and look-ups give the same answers.

Source: HAClient.dispatchReadRequest, CommitLog.appendData (5.4.0).
"""

import threading

from rocketpy.errors import ResourceShortError, StoreReadOnlyError
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.append.dispatch import (
    Arrival,
    DispatcherList,
    arrivals_of,
    has_queue_entry,
    read_back,
)
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.queue_rebuild import QueueRebuilder
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import WriteGate


class ReplicaWriter:
    """Appends pieces of a master's log."""

    def __init__(
        self,
        append_lock: threading.Lock,
        *,
        gate: WriteGate,
        log: CommitLog,
        offsets: StoreOffsets,
        dispatchers: DispatcherList,
        rebuilder: QueueRebuilder,
        delays_ms: tuple[int, ...],
    ) -> None:
        self._append_lock = append_lock
        self._gate = gate
        self._log = log
        self._offsets = offsets
        self._dispatchers = dispatchers
        self._rebuilder = rebuilder
        self._delays_ms = delays_ms

    def append_raw(self, phy_offset: int, data: bytes) -> int:
        """Append a piece of the log and dispatch the records that are whole now.

        Args:
            phy_offset: where the piece lies in the master's log; exactly where ours ends.
            data: the bytes.

        Returns:
            Where the next piece must begin.

        Raises:
            StoreReadOnlyError: the store takes nothing now.
            LogGapError: the piece does not begin where the log ends.
            StoreFormatError: the bytes are no records.
            DiskFullError: no space; nothing of what did not fit counts as appended.
            ResourceShortError: queues hold too much that is not on disk. The piece is in the log,
                not all of it is dispatched yet: call again with no bytes where it ends, or with
                the next piece.
        """
        arrivals: list[Arrival] = []
        shortage: ResourceShortError | None = None
        with self._append_lock:
            if self._gate.refusal is not None:
                raise StoreReadOnlyError(self._gate.refusal)
            end = self._log.append_raw(phy_offset, data)
            try:
                self._dispatch(end, arrivals)
            except ResourceShortError as error:
                shortage = error
        self._dispatchers.announce(arrivals)
        if self._offsets.appended > self._offsets.visible:
            self._offsets.ask()
        if shortage is not None:
            raise shortage
        return end

    def _dispatch(self, end: int, arrivals: list[Arrival]) -> None:
        """Move ``appended`` over the records that are whole, and dispatch them."""
        offsets = self._offsets
        for phy_offset, found in self._log.whole_records(offsets.appended, end):
            if found.state is not RecordState.RECORD:
                if found.state is RecordState.DAMAGED:
                    self._log.report_damage(phy_offset, "the master sent it damaged")
                offsets.appended = phy_offset + found.size_bytes
                continue
            request = read_back(found, phy_offset, self._delays_ms)
            if request is not None and has_queue_entry(request.sys_flag):
                self._rebuilder.reserve(request.topic, request.queue_id, request.queue_offset)
            offsets.appended = phy_offset + found.size_bytes
            offsets.appended_ms = found.store_timestamp_ms
            if request is not None and self._dispatchers.submit(*request):
                arrivals += arrivals_of(request)
