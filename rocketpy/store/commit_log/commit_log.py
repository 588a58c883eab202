"""Commit log: the records of all topics in order of arrival, in files of fixed size.

A record never crosses a file boundary: when it does not fit with eight bytes to spare, the rest of
the file becomes a blank (length and magic number) and the record starts the next file. Bytes are
allocated ahead of the write position, and the next file is created before it is needed. An append
allocates space itself only if that has fallen behind.

Methods that read records differ in what they check:

- `record`: nothing, for callers that trust a queue entry or check the bytes themselves;
- `check`: the record at any offset, for recovery, which needs to know the kind of damage;
- `proven`: also that the record agrees with a queue entry, for recovery;
- `intact_record`: one record at an offset that may be wrong, for look-ups of clients;
- `scan`: only the frames of consecutive records up to the first damage, for searches in the log;
- `whole_records`: all of consecutive records, for bytes from another store; damage is an error.

One thread at a time appends, under the store's append lock; flushing and reading do not need it.

Source: CommitLog, AllocateMappedFileService (5.4.0).
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

from rocketpy.errors import DiskFullError, LogGapError, StoreFormatError
from rocketpy.proto.record.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MIN_RECORD_BYTES,
    pack_blank,
    pack_record,
    pack_run,
    record_middle,
    record_store_timestamp_ms,
    size_and_magic,
)
from rocketpy.proto.record.record_check import RecordCheck, RecordState, check_record, is_intact
from rocketpy.store.commit_log.damaged_records import DamagedRecords
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.mapped_file import MappedFile
from rocketpy.store.files.mapped_file_queue import MappedFileQueue
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.results import PutBatch, PutMessage
from rocketpy.store.retention import OldestFile
from rocketpy.store.store_offsets import StoreOffsets

logger: logging.Logger = logging.getLogger(__name__)

_STEP_BYTES: Final = 16 << 20
_SMALL_STEP_BYTES: Final = 64 << 10
# Bytes faulted in ahead of the write position: 1 us per page, instead of 7 us on first touch.
_POPULATE_BYTES: Final = 1 << 20


class CommitLog:
    """Files of the commit log and their write position.

    `StoreOffsets.appended` is the position of the next record, or of a blank if it does not fit.

    Attributes:
        offsets: offsets of the store; appending advances them.
        verified_from: later records were checked by recovery or written since the start.
        record_from_disk: like `record`, but by a system call; see `MappedFileQueue.read`.
        read_once: the same for bytes that are hardly read again.
        damaged: physical offsets of damaged records met so far.
        queue: its mapped files.
        file: the one being written; None before the first record.
        limit: position in `file` up to which an append need not call `reserve`: the space is
            allocated and its pages are populated.
        on_step: called by `reserve`, with the append lock, when `prepare` should run soon.
        written_part: the written bytes of one file; see `MappedFileQueue.written_part`.
        end_without_damage: end of a range before its first damaged record; see
            `DamagedRecords.end_without`.
    """

    def __init__(
        self, config: MessageStoreConfig, files: StoreFiles, offsets: StoreOffsets
    ) -> None:
        """Describe a log without touching files; `load` maps them."""
        file_bytes = config.mapped_file_size_commit_log
        self._step_bytes = min(_STEP_BYTES, file_bytes)
        self.queue: MappedFileQueue = MappedFileQueue(
            Path(config.commit_log_directory), file_bytes, files, step_bytes=self._step_bytes
        )
        self.record_from_disk: Callable[[int, int], memoryview | None] = self.queue.read
        self.read_once: Callable[[int, int], memoryview | None] = partial(
            self.queue.read, is_read_again=False
        )
        self.written_part: Callable[[int], tuple[memoryview, int, int]] = self.queue.written_part
        self._files = files
        self.offsets: StoreOffsets = offsets
        self.file: MappedFile | None = None
        self._spare: MappedFile | None = None
        self._roll_mutex = threading.Lock()
        self._flush_mutex = threading.Lock()
        self.limit: int = 0
        self._reserved_bytes = 0
        self.on_step: Callable[[], None] = _nothing
        self.verified_from = 0
        self._damage = DamagedRecords()
        self.damaged: AbstractSet[int] = self._damage.places
        self.end_without_damage: Callable[[int, int], int] = self._damage.end_without

    # -- the files -------------------------------------------------------------------------

    @property
    def file_bytes(self) -> int:
        """Length of one file."""
        return self.queue.file_bytes

    @property
    def directory(self) -> Path:
        """Directory of the files."""
        return self.queue.directory

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """Current files, oldest first."""
        return self.queue.files

    @property
    def min_phy_offset(self) -> int:
        """Offset of the first byte of the oldest file."""
        first = self.queue.first
        return self.offsets.appended if first is None else first.base_offset

    @property
    def max_phy_offset(self) -> int:
        """Offset of the next record."""
        return self.offsets.appended

    def load(self) -> None:
        """Map the existing files.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        self.queue.check_no_directories()
        self.queue.load()

    def set_end(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Make an offset the write position and erase all bytes after it.

        Args:
            phy_offset: end of the log.
            store_timestamp_ms: store time of its last record.
        """
        self.queue.truncate(phy_offset)
        self.offsets.restart(phy_offset, store_timestamp_ms)
        last = self.queue.last
        self.file = last if last is not None and phy_offset < last.end_offset else None
        self.limit = 0

    # -- appending (under the append lock) ---------------------------------------------------

    def reserve(self, size_bytes: int) -> int:
        """Allocate space for a record, or for several that stay together; return its position.

        Raises:
            DiskFullError: no space; the log is unchanged.
            StoreFormatError: the records are larger than a file.
        """
        if size_bytes + BLANK_BYTES > self.file_bytes:
            raise StoreFormatError(f"{size_bytes} bytes do not fit into a commit log file")
        self._reserved_bytes = size_bytes + BLANK_BYTES
        mapped = self.file
        position = 0 if mapped is None else mapped.write_position
        if mapped is None or position + size_bytes + BLANK_BYTES > mapped.size_bytes:
            # The next file is ready before this one is closed with a blank: without space the log
            # must stay as it is, so that a smaller record may still fit.
            following = self._next_file()
            self._allocate(following, size_bytes + BLANK_BYTES)
            if mapped is not None:
                self._fill(mapped, position)
            self.file = mapped = following
            position = 0
        else:
            self._allocate(mapped, position + size_bytes + BLANK_BYTES)
        self._populate(mapped, position, size_bytes + BLANK_BYTES)
        return mapped.base_offset + position

    def _extend(self, mapped: MappedFile, position: int, size_bytes: int) -> None:
        """Allocate and populate space for bytes of another store's log."""
        self._allocate(mapped, position + size_bytes)
        self._populate(mapped, position, size_bytes)

    def _populate(self, mapped: MappedFile, position: int, size_bytes: int) -> None:
        self.limit = min(mapped.allocated, position + max(_POPULATE_BYTES, size_bytes))
        # Touching a fresh page costs 7 us, populating it 1 us; so pages are populated in steps.
        mapped.region.populate(position, self.limit)
        if position + self._step_bytes > mapped.allocated or position > mapped.size_bytes // 2:
            self.on_step()

    def _allocate(self, mapped: MappedFile, position: int) -> None:
        try:
            mapped.allocate(position, self._step_bytes)
        # A nearly full disk may still have the few pages that this record needs.
        except DiskFullError:
            mapped.allocate(position, _SMALL_STEP_BYTES)

    def _fill(self, mapped: MappedFile, position: int) -> None:
        pack_blank(mapped.buffer, position, mapped.size_bytes - position)
        mapped.write_position = mapped.size_bytes
        self.offsets.appended = mapped.end_offset

    def _next_file(self) -> MappedFile:
        with self._roll_mutex:
            last = self.queue.last
            if last is not None and last.write_position == 0 and last is not self.file:
                return last  # an earlier attempt added it, then had no space for the record
            following, self._spare = self._spare, None
            if following is None:
                following = self._make_next()
            self.queue.add(following)
            return following

    def _make_next(self) -> MappedFile:
        last = self.queue.last
        base = self.offsets.appended if last is None else last.end_offset
        return self.queue.make(base - base % self.file_bytes)

    def append(  # noqa: PLR0917 - an object would cost the hot path
        self,
        message: PutMessage,
        size_bytes: int,
        crc: int,
        queue_offset: int,
        sys_flag: int,
        store_timestamp_ms: int,
        store_host: bytes,
        topic_with_length: bytes,
    ) -> int:
        """Write one record; return its physical offset.

        Raises:
            DiskFullError: no space; nothing was written.
            struct.error: a number does not fit its field; nothing was appended.
        """
        mapped = self.file
        if mapped is None or mapped.write_position + size_bytes + BLANK_BYTES > self.limit:
            self.reserve(size_bytes)
            mapped = self.file
            assert mapped is not None
        position = mapped.write_position
        phy_offset = mapped.base_offset + position
        pack_record(
            mapped.buffer,
            position,
            size_bytes,
            crc,
            message.queue_id,
            message.flag,
            queue_offset,
            phy_offset,
            sys_flag,
            message.born_timestamp_ms,
            message.born_host,
            store_timestamp_ms,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            topic_with_length,
            message.properties,
        )
        # Published last: readers trust every byte before `appended`.
        mapped.write_position = position + size_bytes
        offsets = self.offsets
        offsets.appended = phy_offset + size_bytes
        offsets.appended_ms = store_timestamp_ms
        return phy_offset

    def append_run(  # noqa: PLR0917 - an object would cost the hot path
        self,
        batch: PutBatch,
        sizes_bytes: Sequence[int],
        crcs: Sequence[int],
        queue_offset: int,
        sys_flag: int,
        store_timestamp_ms: int,
        store_host: bytes,
        topic_with_length: bytes,
    ) -> list[int]:
        """Write the records of a batch; return their physical offsets.

        Raises:
            DiskFullError: no space; nothing was written.
            struct.error: a number does not fit its field; nothing was appended.
        """
        messages = batch.messages
        total_bytes = sum(sizes_bytes)
        mapped = self.file
        if mapped is None or mapped.write_position + total_bytes + BLANK_BYTES > self.limit:
            self.reserve(total_bytes)
            mapped = self.file
            assert mapped is not None
        phy_offset = mapped.base_offset + mapped.write_position
        *phy_offsets, phy_end = accumulate(sizes_bytes, initial=phy_offset)
        middle = record_middle(
            sys_flag, batch.born_timestamp_ms, batch.born_host, store_timestamp_ms, store_host,
            batch.reconsume_times,
        )  # fmt: skip
        pack_run(
            mapped.buffer, mapped.write_position, sizes_bytes, crcs, messages.bodies,
            messages.properties, messages.flags, batch.queue_id, queue_offset, phy_offsets, middle,
            topic_with_length,
        )  # fmt: skip
        mapped.write_position += total_bytes
        self.offsets.appended = phy_end
        self.offsets.appended_ms = store_timestamp_ms
        return phy_offsets

    @property
    def write_end(self) -> int:
        """End of the written bytes; ahead of `appended` during `append_raw`."""
        mapped = self.file
        return (
            self.offsets.appended if mapped is None else mapped.base_offset + mapped.write_position
        )

    def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
        """Append bytes of another store's log; return their end.

        `StoreOffsets.appended` does not change: the caller advances it over complete records.

        Args:
            phy_offset: their position in that log, which must be the end of this one. An empty log
                starts at the start of a file.
            data: records and blanks; the last one may be incomplete.

        Raises:
            LogGapError: `phy_offset` is not the end of this log.
            DiskFullError: no space; the bytes that fitted were written.
        """
        if not self.queue.files and phy_offset % self.file_bytes == 0:
            self.offsets.restart(phy_offset, 0)
        # A gap or an overlap would shift every later record against its physical offset.
        if phy_offset != self.write_end:
            raise LogGapError(expected=self.write_end, got=phy_offset)
        rest = memoryview(data)
        while rest:
            mapped = self.file
            if mapped is None or mapped.write_position == mapped.size_bytes:
                mapped = self.file = self._next_file()
                self.limit = 0
            position = mapped.write_position
            piece = rest[: mapped.size_bytes - position]
            if position + len(piece) > self.limit:
                self._extend(mapped, position, len(piece))
            mapped.buffer[position : position + len(piece)] = piece
            mapped.write_position = position + len(piece)
            rest = rest[len(piece) :]
        return self.write_end

    @property
    def is_without_record(self) -> bool:
        """Whether there are files, but no record in them."""
        first = self.queue.first
        return first is not None and self.offsets.appended <= first.base_offset

    def drop_incomplete(self) -> None:
        """Erase the written bytes behind the last record, while others read and flush.

        Without a record all files are removed: the log may begin at another one.
        """
        end, is_empty = self.offsets.appended, self.is_without_record
        with self._roll_mutex:
            while (last := self.queue.last) is not None and (is_empty or last.base_offset > end):
                spare, self._spare = self._spare, None
                if spare is not None:  # it would follow the removed file
                    spare.close()
                    self._files.remove(spare.path)
                self.queue.remove_last()
            if is_empty:
                self.offsets.restart(0, 0)
            else:
                self.queue.erase_tail(end)
            self.file = self.queue.last
            self.limit = 0

    def whole_records(self, start: int, end: int) -> Iterator[tuple[int, RecordCheck]]:
        """Yield the records and blanks that lie completely between two offsets, bodies checked.

        A record with a wrong body is yielded as DAMAGED.

        Raises:
            StoreFormatError: bytes that are neither a record nor a blank.
        """
        position = start
        while (mapped := self.queue.find(position)) is not None and position + BLANK_BYTES <= end:
            size_bytes, magic = size_and_magic(mapped.view, position - mapped.base_offset)
            if magic == BLANK_MAGIC:
                size_bytes = mapped.end_offset - position
            if position + size_bytes > end:
                return
            found = self.check(position)
            if found is None or found.state in {RecordState.EMPTY, RecordState.BROKEN}:
                raise StoreFormatError(f"no record at position {position} of the log")
            yield position, found
            position += found.size_bytes

    def prepare(self) -> None:
        """Allocate ahead and create the next file; called by another thread than the appender.

        Raises:
            DiskFullError: no space; appends continue in the allocated part.
        """
        mapped = self.file
        if mapped is None:
            return
        ahead = min(mapped.size_bytes, mapped.write_position + 2 * self._step_bytes)
        mapped.allocate(ahead, self._step_bytes)
        if (
            mapped.write_position >= self._step_bytes
        ):  # a log with few messages does not need the memory
            mapped.warm()
        if mapped.write_position > mapped.size_bytes // 2:
            # Shared with `_next_file`: both threads may make the next file at the same time.
            with self._roll_mutex:
                if self._spare is None and self.queue.last is mapped:
                    self._spare = self._make_next()

    def allocate_refused(self) -> None:
        """Allocate what the last reservation needed; called by another thread than the appender.

        Raises:
            ResourceShortError: the reservation would fail again.
        """
        mapped, needed = self.file, self._reserved_bytes
        if mapped is not None and mapped.write_position + needed <= mapped.size_bytes:
            self._allocate(mapped, mapped.write_position + needed)
            return
        with self._roll_mutex:
            following = self.queue.last
            if following is None or following.write_position or following is mapped:
                if self._spare is None:
                    self._spare = self._make_next()
                following = self._spare
            self._allocate(following, needed)

    def flush(self) -> int:
        """Flush everything appended before the call to disk; return the flushed end.

        Raises:
            OSError: the disk failed; its content is unknown.
        """
        with self._flush_mutex:
            # Read before the flush: records appended during it may not be covered.
            end = self.offsets.appended
            self.queue.flush()
            return end

    def sync_from(self, phy_offset: int) -> None:
        """Flush the files from an offset on, also bytes that an earlier process wrote.

        A killed process leaves bytes in the page cache that look durable; they must not be served
        as durable before they are.

        Raises:
            OSError: the disk failed.
        """
        for mapped in self.queue.files:
            if mapped.end_offset > phy_offset:
                mapped.region.flush()

    def record(self, phy_offset: int, size_bytes: int) -> memoryview | None:
        """Return the bytes that a queue entry points to, unchecked; None if they were deleted."""
        view, base, end = self.written_part(phy_offset)
        at = phy_offset - base
        return view[at : at + size_bytes] if phy_offset + size_bytes <= end else None

    def check(self, phy_offset: int, *, check_crc: bool = True) -> RecordCheck | None:
        """Return state, size and fields of the record at an offset; None outside the files."""
        mapped = self.queue.find(phy_offset)
        if mapped is None:
            return None
        position = phy_offset - mapped.base_offset
        if position + BLANK_BYTES > mapped.data_end:
            return RecordCheck(RecordState.EMPTY)
        return check_record(mapped.view, position, phy_offset, check_crc=check_crc)

    def proven(
        self, topic: str, queue_offset: int, phy_offset: int, size_bytes: int
    ) -> RecordCheck | None:
        """Return the record of a queue entry if its topic, offset and size agree; else None."""
        found = self.check(phy_offset)
        if (
            found is None
            or found.state is not RecordState.RECORD
            or found.size_bytes != size_bytes
            or found.queue_offset != queue_offset
            or found.topic != topic.encode()
        ):
            return None
        return found

    def intact_record(self, phy_offset: int, end: int) -> memoryview | None:
        """Return the intact record that starts exactly at an offset; None if there is none.

        Args:
            phy_offset: any number; it may come from the network.
            end: records that end later are not visible to the caller yet.
        """
        if not self.min_phy_offset <= phy_offset <= end - BLANK_BYTES:
            return None
        head = self.record(phy_offset, BLANK_BYTES)
        size_bytes = end if head is None else size_and_magic(head, 0)[0]
        if phy_offset + size_bytes > end:
            return None
        record = self.record(phy_offset, size_bytes)
        return record if record is not None and is_intact(record, phy_offset) else None

    def store_time_ms(self, phy_offset: int, size_bytes: int) -> int:
        """Return the store time of the record of a queue entry, -1 if it was deleted."""
        whole = size_bytes >= MIN_RECORD_BYTES
        record = self.record(phy_offset, size_bytes) if whole else None
        return -1 if record is None else record_store_timestamp_ms(record, 0)

    def next_file_offset(self, phy_offset: int) -> int:
        """Return the start of the file after the one that holds an offset."""
        return phy_offset - phy_offset % self.file_bytes + self.file_bytes

    def scan(self, start: int, end: int) -> Iterator[tuple[int, RecordCheck]]:
        """Yield the records between two offsets, without checking bodies.

        Blanks are skipped; the first invalid frame ends the iteration without an error.
        """
        position = start
        while position < end:
            found = self.check(position, check_crc=False)
            if found is None or found.state in {RecordState.EMPTY, RecordState.BROKEN}:
                return
            if found.state is RecordState.RECORD:
                yield position, found
            position += found.size_bytes

    def report_damage(self, phy_offset: int, reason: str) -> None:
        """Log a damaged record once; readers skip it from then on."""
        if self._damage.add(phy_offset):
            logger.error("record damaged: phy_offset=%d reason=%s", phy_offset, reason)

    def file_count(self) -> int:
        """Return the number of files, including the one being written."""
        return len(self.queue.files)

    def oldest_modified_ms(self) -> int:
        """Return the last modification of the oldest file, ms since 1970."""
        first = self.queue.first
        return 0 if first is None else self._files.modified_ms(first.path)

    def oldest_file(self) -> OldestFile:
        """Describe the oldest file."""
        first = self.queue.first
        assert first is not None, "the log has no file"
        found = next(iter(self.scan(first.base_offset, first.end_offset)), None)
        first_ms = 0 if found is None else self.store_time_ms(found[0], found[1].size_bytes)
        modified_ms = self._files.modified_ms(first.path)
        return OldestFile(str(first.path), first.end_offset, max(0, first_ms), modified_ms)

    def delete_oldest(self) -> bool:
        """Delete the oldest file, unless it is the one being written."""
        if len(self.queue.files) <= 1:
            return False
        self.queue.remove_first()
        return True

    def drop_spare(self) -> None:
        """Delete the spare file that was created ahead and not used."""
        with self._roll_mutex:
            spare, self._spare = self._spare, None
            last = self.queue.last
            if last is not None and last.write_position == 0 and self.file_count() > 1:
                self.queue.remove_last()
        if spare is not None:
            spare.close()
            self._files.remove(spare.path)

    def close(self) -> None:
        """Close the files."""
        if self._spare is not None:
            self._spare.close()
        self.file = None
        self.limit = 0
        self.queue.close()


def _nothing() -> None:
    """Default of a callback that is not set."""
