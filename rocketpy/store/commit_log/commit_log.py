"""The commit log: every message of every topic, one after the other, in fixed-size files.

A record never crosses a file: when it does not fit with eight bytes to spare, the rest becomes a
blank (its length, a magic number) and the record begins the next file. Bytes are allocated ahead
of the write position, and the next file is made before it is needed: no append waits for the disk.

One thread at a time appends (the store's append lock); flushing and reading take no part in it.

Step 14 of a message's life (docs/ARCHITECTURE.md).

Source: CommitLog, AllocateMappedFileService (5.4.0).
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, count, repeat
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
from rocketpy.store.store_offsets import StoreOffsets

logger: logging.Logger = logging.getLogger(__name__)

_STEP_BYTES: Final = 16 << 20
_SMALL_STEP_BYTES: Final = 64 << 10
_POPULATE_BYTES: Final = 1 << 20
"""Pages are made present so far ahead: 1 us each; touching them one by one costs 7."""


class CommitLog:
    """The log's files and its write position.

    ``StoreOffsets.appended`` is where the next record goes, or a blank if it does not fit.

    Attributes:
        offsets: what it moves.
        verified_from: records from here on were checked at the start or written since.
        record_from_disk: does what `record` does by a system call; see `MappedFileQueue.read`.
        damaged: physical offsets of damaged records met so far.
        queue: its mapped files.
        file: the one being written; None before the first record.
        limit: position in it before which nothing needs thought.
    """

    def __init__(
        self, config: MessageStoreConfig, files: StoreFiles, offsets: StoreOffsets
    ) -> None:
        """Describe a log; `load` touches files, appending moves the offsets."""
        file_bytes = config.mapped_file_size_commit_log
        self._step_bytes = min(_STEP_BYTES, file_bytes)
        self.queue: MappedFileQueue = MappedFileQueue(
            Path(config.commit_log_directory), file_bytes, files, step_bytes=self._step_bytes
        )
        self.record_from_disk: Callable[[int, int], memoryview | None] = self.queue.read
        self.written_part: Callable[[int], tuple[memoryview, int, int]] = self.queue.written_part
        self._files = files
        self.offsets: StoreOffsets = offsets
        self.file: MappedFile | None = None
        self._spare: MappedFile | None = None
        self._roll_mutex = threading.Lock()
        self._flush_mutex = threading.Lock()
        self.limit: int = 0
        self.on_step: Callable[[], None] = _nothing
        self.verified_from = 0
        self._damage = DamagedRecords()
        self.damaged: AbstractSet[int] = self._damage.places
        self.end_without_damage: Callable[[int, int], int] = self._damage.end_without

    # -- the files -------------------------------------------------------------------------

    @property
    def file_bytes(self) -> int:
        """Length of a file."""
        return self.queue.file_bytes

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self.queue.directory

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, oldest first."""
        return self.queue.files

    @property
    def min_phy_offset(self) -> int:
        """Where the oldest file begins."""
        first = self.queue.first
        return self.offsets.appended if first is None else first.base_offset

    @property
    def max_phy_offset(self) -> int:
        """Where the next record goes."""
        return self.offsets.appended

    def load(self) -> None:
        """Map the files that are there.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        self.queue.check_no_directories()
        self.queue.load()

    def set_end(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Make an offset the write position; what lies after it is erased.

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
        """Make room for a record (or several that stay together); return where it begins.

        Raises:
            DiskFullError: no space; nothing changed that matters.
            StoreFormatError: more than a file holds.
        """
        if size_bytes + BLANK_BYTES > self.file_bytes:
            raise StoreFormatError(f"{size_bytes} bytes do not fit into a commit log file")
        mapped = self.file
        position = 0 if mapped is None else mapped.write_position
        if mapped is None or position + size_bytes + BLANK_BYTES > mapped.size_bytes:
            following = self._next_file()
            self._allocate(following, size_bytes + BLANK_BYTES)
            if mapped is not None:
                self._fill(mapped, position)
            self.file = mapped = following
            position = 0
        else:
            self._allocate(mapped, position + size_bytes + BLANK_BYTES)
        self.limit = min(
            mapped.allocated, position + max(_POPULATE_BYTES, size_bytes + BLANK_BYTES)
        )
        mapped.region.populate(position, self.limit)
        if position + self._step_bytes > mapped.allocated or position > mapped.size_bytes // 2:
            self.on_step()
        return mapped.base_offset + position

    def _allocate(self, mapped: MappedFile, position: int) -> None:
        try:
            mapped.allocate(position, self._step_bytes)
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
                return last  # added before, then there was no space for the record
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
            struct.error: a number that does not fit its field; nothing counts as written.
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
            struct.error: a number that does not fit its field; nothing counts as written.
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
            messages.properties, messages.flags, repeat(batch.queue_id), count(queue_offset),
            phy_offsets, repeat(middle), len(middle), topic_with_length,
        )  # fmt: skip
        mapped.write_position += total_bytes
        self.offsets.appended = phy_end
        self.offsets.appended_ms = store_timestamp_ms
        return phy_offsets

    @property
    def write_end(self) -> int:
        """Where bytes were written last; ahead of ``appended`` within a piece of `append_raw`."""
        mapped = self.file
        return (
            self.offsets.appended if mapped is None else mapped.base_offset + mapped.write_position
        )

    def append_raw(self, phy_offset: int, data: bytes) -> int:
        """Write bytes of another store's log; return where they end.

        ``StoreOffsets.appended`` stays: the caller moves it over the records that are whole.

        Args:
            phy_offset: where they lay in that log; exactly where this one ends. An empty log
                begins where a file begins.
            data: records and blanks, maybe the beginning of one.

        Raises:
            LogGapError: they begin elsewhere.
            DiskFullError: no space; what fitted in is written.
        """
        if not self.queue.files and phy_offset % self.file_bytes == 0:
            self.offsets.restart(phy_offset, 0)
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
            self._allocate(mapped, position + len(piece))
            mapped.buffer[position : position + len(piece)] = piece
            mapped.write_position = position + len(piece)
            rest = rest[len(piece) :]
        return self.write_end

    def whole_records(self, start: int, end: int) -> Iterator[tuple[int, RecordCheck]]:
        """Yield the records and blanks that lie wholly between two offsets.

        Raises:
            StoreFormatError: bytes that are none.
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
                raise StoreFormatError(f"the bytes at {position} of the log are no record")
            yield position, found
            position += found.size_bytes

    def prepare(self) -> None:
        """Allocate ahead, and make the next file (another thread than the appending one).

        Raises:
            DiskFullError: no space; appending goes on with what is there.
        """
        mapped = self.file
        if mapped is None:
            return
        ahead = min(mapped.size_bytes, mapped.write_position + 2 * self._step_bytes)
        mapped.allocate(ahead, self._step_bytes)
        if mapped.write_position >= self._step_bytes:  # memory for few messages is better used
            mapped.warm()
        if mapped.write_position > mapped.size_bytes // 2:
            with self._roll_mutex:
                if self._spare is None and self.queue.last is mapped:
                    self._spare = self._make_next()

    def flush(self) -> int:
        """Bring everything appended before the call to disk; return up to where.

        Raises:
            OSError: the disk failed; what is on it is unknown.
        """
        with self._flush_mutex:
            end = self.offsets.appended
            self.queue.flush()
            return end

    def sync_from(self, phy_offset: int) -> None:
        """Bring the files from an offset on to disk, whoever wrote them.

        A killed process leaves bytes in memory that look stored; nobody may see them as
        stored before they are.

        Raises:
            OSError: the disk failed.
        """
        for mapped in self.queue.files:
            if mapped.end_offset > phy_offset:
                mapped.region.flush()

    def record(self, phy_offset: int, size_bytes: int) -> memoryview | None:
        """Return bytes that a consume queue points to, unchecked; None when they are gone."""
        view, base, end = self.written_part(phy_offset)
        at = phy_offset - base
        return view[at : at + size_bytes] if phy_offset + size_bytes <= end else None

    def check(self, phy_offset: int, *, check_crc: bool = True) -> RecordCheck | None:
        """Tell what lies at an offset; None outside the files."""
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
        """Return the record a queue entry points to if it names that entry; else None."""
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
        """Return the record that begins exactly at an offset, checked; None when there is none.

        Args:
            phy_offset: any number, it may come from the network.
            end: records that end after it are not for the caller yet.
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
        """Return the store time of a record a consume queue points to, -1 when it is gone."""
        whole = size_bytes >= MIN_RECORD_BYTES
        record = self.record(phy_offset, size_bytes) if whole else None
        return -1 if record is None else record_store_timestamp_ms(record, 0)

    def next_file_offset(self, phy_offset: int) -> int:
        """Return where the file after the one with this offset begins."""
        return phy_offset - phy_offset % self.file_bytes + self.file_bytes

    def scan(self, start: int, end: int) -> Iterator[tuple[int, RecordCheck]]:
        """Walk over the whole records between two offsets; stops at what is none."""
        position = start
        while position < end:
            found = self.check(position, check_crc=False)
            if found is None or found.state in {RecordState.EMPTY, RecordState.BROKEN}:
                return
            if found.state is RecordState.RECORD:
                yield position, found
            position += found.size_bytes

    def report_damage(self, phy_offset: int, reason: str) -> None:
        """Say once that a record is damaged; readers leave it out."""
        if self._damage.add(phy_offset):
            logger.error("damaged record: phy_offset=%d reason=%s", phy_offset, reason)

    def file_count(self) -> int:
        """Number of files, the one being written included."""
        return len(self.queue.files)

    def oldest_modified_ms(self) -> int:
        """Wall time of the oldest file's last modification, ms."""
        first = self.queue.first
        return 0 if first is None else self._files.modified_ms(first.path)

    def delete_oldest(self) -> bool:
        """Delete the oldest file, unless it is the one being written."""
        if len(self.queue.files) <= 1:
            return False
        self.queue.remove_first()
        return True

    def drop_spare(self) -> None:
        """Delete the file that was made ahead and not used."""
        with self._roll_mutex:
            spare, self._spare = self._spare, None
            last = self.queue.last
            if last is not None and last.write_position == 0 and self.file_count() > 1:
                self.queue.remove_last()
        if spare is not None:
            spare.close()
            self._files.remove(spare.path)

    def close(self) -> None:
        """Let go of the files."""
        if self._spare is not None:
            self._spare.close()
        self.file = None
        self.limit = 0
        self.queue.close()


def _nothing() -> None:
    """Stand in for a callback nobody has set."""
