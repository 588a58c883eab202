"""Replica writer: appends the log of a master byte by byte.

A master sends its log unchanged, including blanks, in parts that may end within a record. The parts
are appended at their physical offsets; complete records are dispatched like in recovery. Afterwards
pulls and look-ups return the same results as on the master.

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
        """Append a part of the log and dispatch the records that are complete now.

        Args:
            phy_offset: its offset in the master's log, which must be the end of this log.
            data: bytes of the part.

        Returns:
            The offset of the next part.

        Raises:
            StoreReadOnlyError: the store is not writable. LogGapError: the offset is not the end of
                the log. StoreFormatError: the bytes are not records. DiskFullError: no space; the
                part that did not fit is not appended. ResourceShortError: queues hold too many
                unflushed bytes. The part is in the log, but not completely dispatched: call again
                with no bytes at its end, or with the next part.
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
        """Advance `appended` over complete records, and dispatch them."""
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
            if request is not None and self._dispatchers.submit(request):
                arrivals += arrivals_of(request)
