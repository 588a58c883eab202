"""Room for records that somebody else writes: how a compiled path appends a run of plain messages.

`DirectAppend.begin` takes the append lock and says where in the log, in the queues and in the index
bytes may be written; whoever asked writes records, queue entries and index entries there, as
`CommitLog.append`, `ConsumeQueue.put` and `IndexFile.put` would; `DirectAppend.end` makes what was
written count, all at once, and lets go of the lock.

Invariants:
    - everything that can fail comes before the first byte: room is reserved, files are not rolled.
      What does not fit the current files, or is not as usual in any way, is left to `MessageStore`;
    - between `begin` and `end` nothing counts that was written: readers and a crash see the store
      as it was, or, after a crash, whole records that recovery finds in the log;
    - with SYNC_FLUSH only the records are written in place. Queue entries and keys go with the run
      to who waits for the disk (`rocketpy.store.dispatch.EncodedRun`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.proto.record import BLANK_BYTES, V4_HOST_BYTES
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.dispatch import Arrival, DispatcherList, EncodedRun
from rocketpy.store.index_file import IndexFile, IndexRun
from rocketpy.store.index_service import IndexService
from rocketpy.store.mapped_file import MappedFile
from rocketpy.store.offsets import StoreOffsets
from rocketpy.store.queue_entry import ENTRY_BYTES
from rocketpy.store.stats import StoreStats
from rocketpy.store.writer import MessageWriter

_new: Final = tuple.__new__
Place = tuple[str, int, int]
"""Topic, queue id, how many messages at most."""


class AppendSpace(NamedTuple):
    """Where a run may be written.

    Attributes:
        store_ms: store time of its records.
        store_host: 8 bytes for its records.
        log: the file that its records go to.
        log_end: position in that file before which they must end.
        queues: for each place that was asked for its queue; None when only `MessageStore` finds it.
        tails: for each queue its bytes and the position of the next entry in them.
        index_file: the file that its keys go to; None in a store without an index.
        index_run: where in that file.
        is_later: the run waits for the disk: the tails are memory of its own, no key is written.
    """

    store_ms: int
    store_host: bytes
    log: MappedFile
    log_end: int
    queues: list[ConsumeQueue | None]
    tails: list[tuple[bytearray, int] | None]
    index_file: IndexFile | None
    index_run: IndexRun | None
    is_later: bool


class AppendedRun(NamedTuple):
    """What was written.

    Attributes:
        log_position: where the records end in the file.
        counts: messages of each place.
        phy_ends: physical end of each place's last record.
        index_count: number that the next entry of the index gets.
        slots_used: slots of the index file that name an entry.
        last_phy_offset: where the last record begins.
        key_hashes: of all keys, of a run that waits for the disk; empty otherwise.
        key_phy_offsets: for each of them where its message begins.
        arrivals: who is to be told of such a run.
    """

    log_position: int
    counts: Sequence[int]
    phy_ends: Sequence[int]
    index_count: int
    slots_used: int
    last_phy_offset: int
    key_hashes: Sequence[int] = ()
    key_phy_offsets: Sequence[int] = ()
    arrivals: Sequence[Arrival] = ()


class DirectAppend:
    """Opens and closes runs; any thread, one run at a time.

    Args:
        writer: has the append lock, the store time, and the queues that were put to before.
        log: gets the records.
        offsets: are moved.
        dispatchers: those of ``index`` and the queues and no others; may have messages waiting.
        index: gets the keys; None without.
        stats: counts.
        is_sync_flush: whether every message waits for the disk.

    Attributes:
        has_index: whether keys are wanted.
        is_sync_flush: whether every message waits for the disk.
        dispatchers: know whom to tell of each message after `end`.
    """

    def __init__(
        self,
        writer: MessageWriter,
        *,
        log: CommitLog,
        offsets: StoreOffsets,
        dispatchers: DispatcherList,
        index: IndexService | None,
        stats: StoreStats,
        is_sync_flush: bool = False,
    ) -> None:
        self.has_index: bool = index is not None
        self.is_sync_flush = is_sync_flush
        self._writer = writer
        self._log = log
        self._offsets = offsets
        self.dispatchers = dispatchers
        self._pending = dispatchers.pending
        self._index = index
        self._stats = stats

    def readable(self) -> tuple[MappedFile, int] | None:
        """Return the file that is written, and the position before which records may be read."""
        log, _ = self._log.current
        return None if log is None else (log, self._offsets.visible - log.base_offset)

    def begin(self, places: Sequence[Place], log_bytes: int, key_count: int) -> AppendSpace | None:
        """Take the append lock and make room.

        Args:
            places: where the messages go.
            log_bytes: of all their records.
            key_count: of all their keys.

        Returns:
            Where to write, perhaps less than was asked for; `end` must follow. None when this is
            not the time for it: nothing was done, and `MessageStore` says why, or does better.
        """
        store_ms = self._writer.hold()
        if store_ms is None:
            return None
        space = None
        try:
            space = self._space(places, log_bytes, key_count, store_ms)
        except (ResourceShortError, StoreFormatError, OSError):
            return None  # perhaps there is room for some of them
        finally:
            if space is None:
                self._writer.let_go()
        return space

    def _space(
        self, places: Sequence[Place], log_bytes: int, key_count: int, store_ms: int
    ) -> AppendSpace | None:
        offsets, store_host = self._offsets, self._writer.store_host
        is_later = self.is_sync_flush
        if len(store_host) != V4_HOST_BYTES:
            return None
        if not is_later and (self._pending or offsets.appended + log_bytes > offsets.visible_bound):
            return None
        index_file = index_run = None
        if self._index is not None and not is_later:
            index_file = self._index.file_for_run(offsets.appended, store_ms)
            if index_file is None:
                return None
        open_run = _room_for_later if is_later else ConsumeQueue.open_run
        found: list[ConsumeQueue | None] = []
        tails: list[tuple[bytearray, int] | None] = []
        for topic, queue_id, count in places:  # one as a rule: quicker than comprehensions
            queue = self._writer.known_queue(topic, queue_id)
            found.append(queue)
            tails.append(None if queue is None else open_run(queue, count))
        log, end = self._log.current
        if log is None:
            return None
        wanted_end = min(log.write_position + log_bytes, log.size_bytes - BLANK_BYTES)
        if wanted_end <= log.write_position:
            return None
        if wanted_end + BLANK_BYTES > end:
            self._log.reserve(wanted_end - log.write_position)
        if index_file is not None:
            index_run = index_file.open_run(key_count)
        # As `AppendSpace(...)`, without its Python frame.
        return _new(AppendSpace, (
            store_ms, store_host, log, wanted_end, found, tails, index_file, index_run, is_later,
        ))  # fmt: skip

    def end(self, space: AppendSpace, run: AppendedRun | None) -> None:
        """Make what was written count, and let go of the append lock.

        Args:
            space: from `begin`.
            run: what was written; None for nothing.
        """
        try:
            if run is not None:
                self._count(space, run)
        finally:
            self._writer.let_go()
        if run is not None and space.is_later:
            self._offsets.ask()

    def _count(self, space: AppendSpace, run: AppendedRun) -> None:
        log, offsets, stats = space.log, self._offsets, self._stats
        size_bytes = run.log_position - log.write_position
        log.write_position = run.log_position
        offsets.appended = log.base_offset + run.log_position
        offsets.appended_ms = space.store_ms
        if space.is_later:
            self.dispatchers.submit_later(_later(space, run, offsets.appended))
        else:
            for queue, count, phy_end in zip(space.queues, run.counts, run.phy_ends, strict=True):
                if queue is not None and count:
                    queue.close_run(count, phy_end)
            if space.index_file is not None:
                space.index_file.close_run(
                    run.index_count, run.slots_used, run.last_phy_offset, space.store_ms
                )
            offsets.dispatched = offsets.appended
            offsets.dispatched_ms = space.store_ms
        stats.put_count += sum(run.counts)
        stats.put_bytes += size_bytes


def _room_for_later(queue: ConsumeQueue, count: int) -> tuple[bytearray, int] | None:
    """Make room in a queue for entries that are put when the disk has their messages."""
    return (bytearray(ENTRY_BYTES * count), 0) if queue.reserve_run(count) else None


def _later(space: AppendSpace, run: AppendedRun, phy_end: int) -> EncodedRun:
    """Count the entries of a run in their queues, and return what is to be put later."""
    placed = []
    for queue, tail, count, end in zip(
        space.queues, space.tails, run.counts, run.phy_ends, strict=True
    ):
        if queue is not None and tail is not None and count:
            placed.append((queue, queue.next_offset, bytes(tail[0][: ENTRY_BYTES * count]), end))
            queue.next_offset += count
    return EncodedRun(
        placed, run.key_hashes, run.key_phy_offsets, run.arrivals, phy_end, space.store_ms
    )
