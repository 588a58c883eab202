"""Room for records that somebody else writes: how a compiled path appends a run of plain messages.

`DirectAppend.begin` takes the append lock and says where in the log, in the queues and in the index
bytes may be written; whoever asked writes records, queue entries and index entries there, as
`CommitLog.append`, `ConsumeQueue.put` and `IndexFile.put` would; `DirectAppend.end` makes what was
written count, all at once, and lets go of the lock.

Invariants:
    - everything that can fail comes before the first byte: room is reserved, files are not rolled.
      What does not fit the current files, or is not as usual in any way, is left to `MessageStore`;
    - between `begin` and `end` nothing counts that was written: readers and a crash see the store
      as it was, or, after a crash, whole records that recovery finds in the log.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.proto.record import BLANK_BYTES, V4_HOST_BYTES
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.dispatch import DispatcherList
from rocketpy.store.index_file import IndexFile, IndexRun
from rocketpy.store.index_service import IndexService
from rocketpy.store.mapped_file import MappedFile
from rocketpy.store.offsets import StoreOffsets
from rocketpy.store.stats import StoreStats
from rocketpy.store.writer import MessageWriter

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
    """

    store_ms: int
    store_host: bytes
    log: MappedFile
    log_end: int
    queues: list[ConsumeQueue | None]
    tails: list[tuple[bytearray, int] | None]
    index_file: IndexFile | None
    index_run: IndexRun | None


class AppendedRun(NamedTuple):
    """What was written.

    Attributes:
        log_position: where the records end in the file.
        counts: messages of each place.
        phy_ends: physical end of each place's last record.
        index_count: number that the next entry of the index gets.
        slots_used: slots of the index file that name an entry.
        last_phy_offset: where the last record begins.
    """

    log_position: int
    counts: Sequence[int]
    phy_ends: Sequence[int]
    index_count: int
    slots_used: int
    last_phy_offset: int


class DirectAppend:
    """Opens and closes runs; any thread, one run at a time.

    Args:
        writer: has the append lock, the store time, and the queues that were put to before.
        log: gets the records.
        offsets: are moved.
        dispatchers: those of ``index`` and the queues and no others; may have messages waiting.
        index: gets the keys; None without.
        stats: counts.

    Attributes:
        has_index: whether keys are wanted.
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
    ) -> None:
        self.has_index = index is not None
        self._writer = writer
        self._log = log
        self._offsets = offsets
        self._dispatchers = dispatchers
        self._index = index
        self._stats = stats

    @property
    def on_arrival(self) -> Callable[[str, int, int, int], None] | None:
        """Who is told of each message after `end`; see `MessageStore.on_arrival`."""
        return self._dispatchers.on_arrival

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
        if (
            self._dispatchers.pending_count
            or offsets.appended + log_bytes > offsets.visible_bound
            or len(store_host) != V4_HOST_BYTES
        ):
            return None
        index_file = index_run = None
        if self._index is not None:
            index_file = self._index.file_for_run(offsets.appended, store_ms)
            if index_file is None:
                return None
        found = [self._writer.known_queue(topic, queue_id) for topic, queue_id, _ in places]
        tails = [
            None if queue is None else queue.open_run(count)
            for queue, (_, _, count) in zip(found, places, strict=True)
        ]
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
        return AppendSpace(
            store_ms, store_host, log, wanted_end, found, tails, index_file, index_run
        )

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

    def _count(self, space: AppendSpace, run: AppendedRun) -> None:
        log, offsets, stats = space.log, self._offsets, self._stats
        size_bytes = run.log_position - log.write_position
        log.write_position = run.log_position
        offsets.appended = log.base_offset + run.log_position
        offsets.appended_ms = space.store_ms
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
