"""Direct append: lets the compiled send path write records in place.

`DirectAppend.begin` takes the append lock and returns space in the log, the queues and the index.
The caller writes records, queue entries and index entries there, like `CommitLog.append`,
`ConsumeQueue.put` and `IndexFile.put`; `DirectAppend.end` publishes all of them at once and
releases the lock.

Invariants:
    - everything that can fail precedes the first byte: space is reserved, files are not rolled.
      Records that do not fit the current files, or are not fast-path eligible, are left to
      `MessageStore`;
    - between `begin` and `end` written bytes are not published: readers see the store unchanged,
      and after a crash recovery finds complete records in the log;
    - where messages are not visible at once (SYNC_FLUSH, or replicas are waited for), only the
      records are written in place. Queue entries and keys wait
      (`rocketpy.store.append.dispatch.EncodedRun`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.proto.record.record import BLANK_BYTES, V4_HOST_BYTES
from rocketpy.store.append.dispatch import Arrival, DispatcherList, EncodedRun
from rocketpy.store.append.message_writer import MessageWriter
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES
from rocketpy.store.files.mapped_file import MappedFile
from rocketpy.store.index.index_file import IndexFile, IndexRun
from rocketpy.store.index.index_service import IndexService
from rocketpy.store.stats import StoreStats
from rocketpy.store.store_offsets import StoreOffsets

_open_run: Final = ConsumeQueue.open_run
Place = tuple[str, int, int]
"""Topic, queue id, largest number of messages."""

Tail: TypeAlias = tuple[bytearray, int]
"""Bytes of a queue's tail, and the position of the next entry in them."""


class AppendSpace(NamedTuple):
    """Space for consecutive records, their queue entries and keys.

    Attributes:
        store_ms: store time of the records.
        store_host: 8 bytes for the records.
        log: log file for the records.
        log_end: position in that file before which they must end.
        queues: queue of each requested place; None if only `MessageStore` can find it.
        tails: for each queue its bytes and the position of the next entry in them.
        index_file: index file for the keys; None in a store without an index.
        index_run: space in that file.
        waits: the run is not visible at once: tails are its own memory, no key is written.
    """

    store_ms: int
    store_host: bytes
    log: MappedFile
    log_end: int
    queues: list[ConsumeQueue | None]
    tails: list[Tail | None]
    index_file: IndexFile | None
    index_run: IndexRun | None
    waits: bool


class AppendedRun(NamedTuple):
    """Records that were written into an `AppendSpace`.

    Attributes:
        log_position: end of the records in the file.
        counts: number of messages of each place.
        phy_ends: physical end of each place's last record.
        index_count: number of the next entry of the index.
        slots_used: number of slots of the index file that name an entry.
        last_phy_offset: physical offset of the last record.
        key_hashes: hashes of all keys if the records wait; empty otherwise.
        key_phy_offsets: physical offset of the message of each key.
        arrivals: arguments for the listener if the records wait.
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


SpaceFields: TypeAlias = tuple[
    int,
    bytes,
    MappedFile,
    int,
    list[ConsumeQueue | None],
    list[Tail | None],
    IndexFile | None,
    IndexRun | None,
    bool,
]
"""Fields of an `AppendSpace`: a named tuple would cost more than writing the records."""

RunFields: TypeAlias = tuple[
    int,
    Sequence[int],
    Sequence[int],
    int,
    int,
    int,
    Sequence[int],
    Sequence[int],
    Sequence[Arrival],
]
"""Fields of an `AppendedRun`."""


class DirectAppend:
    """Opens and closes direct appends, one at a time, on any thread.

    Args:
        writer: provides the append lock, the store time, and known queues.
        log: the commit log.
        offsets: offsets to advance.
        dispatchers: dispatchers of the queues and of `index` only; messages may be pending.
        index: the index; None without.
        stats: statistics.
        answers_wait: whether messages may have to wait: for a flush, or for replicas.

    Attributes:
        has_index: whether the caller must write keys.
        answers_wait: whether messages may have to wait.
        dispatchers: provides the arrival listener to call after `end`.
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
        answers_wait: bool = False,
    ) -> None:
        self.has_index: bool = index is not None
        self.answers_wait: bool = answers_wait
        self._writer = writer
        self._log = log
        self._offsets = offsets
        self.dispatchers = dispatchers
        self._pending = dispatchers.pending
        self._index = index
        self._stats = stats

    def readable(self) -> tuple[MappedFile, int] | None:
        """Return the file being written, and the end of the readable records in it."""
        log = self._log.file
        return None if log is None else (log, self._offsets.visible - log.base_offset)

    def begin(self, places: Sequence[Place], log_bytes: int, key_count: int) -> SpaceFields | None:
        """Take the append lock and reserve space.

        Args:
            places: queues of the messages.
            log_bytes: size of all records.
            key_count: number of all keys.

        Returns:
            The fields of an `AppendSpace`, possibly smaller than requested; `end` must follow. None
            if a direct append is not possible now; nothing was done, and the caller must use
            `MessageStore`.
        """
        writer = self._writer
        store_ms = writer.lock()
        if store_ms is None:
            return None
        space: SpaceFields | None = None
        try:
            offsets, log, store_host = self._offsets, self._log, writer.store_host
            file = log.file
            # The compiled path writes the record layout with IPv4 hosts only.
            if file is None or len(store_host) != V4_HOST_BYTES:
                return None
            appended = offsets.appended
            # Entries that are published at once must not overtake pending messages.
            waits = bool(self._pending) or appended + log_bytes > offsets.visible_bound
            position = file.write_position
            end = position + log_bytes
            # Space for a blank stays free, because the next record may start a new file.
            if end > file.size_bytes - BLANK_BYTES:  # noqa: PLR1730 - quicker
                end = file.size_bytes - BLANK_BYTES
            if end <= position:
                return None
            open_run = _room_for_later if waits else _open_run
            queues: list[ConsumeQueue | None] = []
            tails: list[Tail | None] = []
            for topic, queue_id, count in places:  # one as a rule: quicker than comprehensions
                queue = writer.known_queue(topic, queue_id)
                queues.append(queue)
                tails.append(None if queue is None else open_run(queue, count))
            # Last of the steps that can fail for lack of space: nothing has to be undone before.
            if end + BLANK_BYTES > log.limit:
                log.reserve(end - position)
            index_file = index_run = None
            if self._index is not None and not waits:
                found = self._index.open_run(appended, store_ms, key_count)
                if found is None:
                    return None
                index_file, index_run = found
            space = (
                store_ms, store_host, file, end, queues, tails, index_file, index_run, waits,
            )  # fmt: skip
        except (ResourceShortError, StoreFormatError, OSError):
            return None  # single puts may still succeed
        finally:
            # The lock stays held until `end` when there is space to write.
            if space is None:
                writer.unlock()
        return space

    def end(self, space: SpaceFields, run: RunFields | None) -> None:
        """Publish the written records and release the append lock.

        Args:
            space: from `begin`.
            run: the written records; None if there are none.
        """
        try:
            if run is not None:
                self._count(space, run)
        finally:
            self._writer.unlock()
        if run is not None and space[8]:
            self._offsets.ask()

    def _count(self, space: SpaceFields, run: RunFields) -> None:
        store_ms, _, log, _, queues, _, index_file, _, waits = space
        log_position, counts, phy_ends, index_count, slots_used, last_phy_offset, _, _, _ = run
        offsets, stats = self._offsets, self._stats
        size_bytes = log_position - log.write_position
        # Until here readers and recovery see the store unchanged.
        log.write_position = log_position
        appended = offsets.appended = log.base_offset + log_position
        offsets.appended_ms = store_ms
        if waits:
            later = _later(AppendSpace._make(space), AppendedRun._make(run), appended)
            self.dispatchers.submit_later(later)
        else:
            for number, queue in enumerate(queues):
                if queue is not None and counts[number]:
                    queue.close_run(counts[number], phy_ends[number])
            if index_file is not None:
                index_file.close_run(index_count, slots_used, last_phy_offset, store_ms)
            offsets.dispatched = appended
            offsets.dispatched_ms = store_ms
        stats.put_count += sum(counts)
        stats.put_bytes += size_bytes


def _room_for_later(queue: ConsumeQueue, count: int) -> Tail | None:
    """Reserve space in a queue for entries that are put when their messages are visible."""
    return (bytearray(ENTRY_BYTES * count), 0) if queue.reserve_run(count) else None


def _later(space: AppendSpace, run: AppendedRun, phy_end: int) -> EncodedRun:
    """Advance the queues' next offsets, and return the entries to put later."""
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
