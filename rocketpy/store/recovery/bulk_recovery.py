"""Bulk recovery of fast-path eligible records with the compiled reader.

`_plain_records.pyx` reads consecutive records of a log file up to the first one that is not
eligible, and makes queue and index entries of them without writing any. This module decides whether
they are used: each of their queues must continue exactly at its end. Otherwise they are read record
by record, like every record that is not eligible (`recovery.recovery`, the reference:
docs/decisions/0012-a-compiled-reader-for-recovery.md).

It is a step of `rocketpy.store.recovery.recovery`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from rocketpy.compiled_module import load_compiled
from rocketpy.errors import ResourceShortError
from rocketpy.store.consume_queue.consume_queue_table import is_safe_topic
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES
from rocketpy.store.consume_queue.queue_rebuild import QueueRebuilder
from rocketpy.store.files.mapped_file import MappedFile
from rocketpy.store.index.index_service import IndexService

_MODULE: Final = "rocketpy.store.recovery._plain_records"
NO_INDEX: Final = (1 << 63) - 1
"""Physical offset from which no record is indexed."""


class QueueRun(NamedTuple):
    """Messages of one queue in a bulk.

    Attributes:
        topic: stored topic.
        queue_id: queue within the topic.
        queue_offset: queue offset of the first one; the others follow it.
        entries: encoded queue entries.
        first_phy: physical offset of the first one.
        last_phy: physical offset of the last one.
        phy_end: physical end of the last one.
    """

    topic: str
    queue_id: int
    queue_offset: int
    entries: bytes
    first_phy: int
    last_phy: int
    phy_end: int


class PlainRecords(Protocol):
    """Interface of the compiled reader; see `_plain_records.pyx`."""

    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def key_count(self) -> int: ...  # noqa: D102
    @property
    def end(self) -> int: ...  # noqa: D102
    @property
    def last_ms(self) -> int: ...  # noqa: D102

    def know_delays(self, delays_ms: tuple[int, ...]) -> None:
        """Read delayed messages as well; their delays, level 1 first."""
        ...

    def read(
        self,
        view: memoryview,
        position: int,
        end: int,
        base_offset: int,
        check_crc: bool,
        index_from: int,
    ) -> int:
        """Read records until one is not eligible; return their number."""
        ...

    def queues(self) -> list[tuple[str, int, int, bytes, int, int, int]]:
        """Return the fields of a `QueueRun` for each queue."""
        ...

    def place(self, first: int) -> tuple[int, int]:
        """Return physical offset and store time of the message of a key."""
        ...

    def keys_of_message(self, first: int) -> list[int]:
        """Return the following hashes that belong to the same message as a key."""
        ...

    def write(  # noqa: PLR0917 - as the compiled one takes them
        self,
        buffer: object,
        slots: int,
        entries_at: int,
        first_entry: int,
        begin_ms: int,
        first: int,
        count: int,
    ) -> int:
        """Write index entries; return the number of slots that were unused."""
        ...


class RunRead(NamedTuple):
    """Result of reading records in bulk.

    Attributes:
        end: physical offset after the last record.
        last_ms: store time of the last record.
        is_taken: whether queues and index got the entries; otherwise the records must be read
            singly.
    """

    end: int
    last_ms: int
    is_taken: bool


def compiled_records() -> Callable[[], PlainRecords] | None:
    """Return the factory of compiled readers; None if not available or disabled.

    Raises:
        ImportError: it is missing although ROCKETPY_COMPILED=1 requires it.
    """
    module = load_compiled(_MODULE)
    if module is None:
        return None
    make: Callable[[], PlainRecords] = module.PlainRecords
    return make


class CompiledReader:
    """Compiled reader of one scan, loaded on first use.

    Args:
        delays_ms: delay levels; without any, delayed messages need the general path.
    """

    def __init__(self, delays_ms: tuple[int, ...] = ()) -> None:
        self._delays_ms = delays_ms
        self._records: PlainRecords | None = None
        self._is_loaded = False

    def records(self) -> PlainRecords | None:
        """Return the reader; None if not available or disabled.

        Raises:
            ImportError: it is not there and ROCKETPY_COMPILED=1 says that it must be.
        """
        if not self._is_loaded:
            make = compiled_records()
            self._records = None if make is None else make()
            # Before the first read, which computes delivery times with them.
            if self._records is not None:
                self._records.know_delays(self._delays_ms)
            self._is_loaded = True
        return self._records


class BulkRecovery:
    """Handles eligible records in bulk during one scan of the log.

    Attributes:
        record_count: number of handled records.
    """

    def __init__(
        self,
        rebuilder: QueueRebuilder,
        is_batch_topic: Callable[[str], bool],
        index: IndexService | None,
        *,
        index_from: int,
        check_crc: bool,
        delays_ms: tuple[int, ...] = (),
    ) -> None:
        """Prepare for a scan; the compiled reader is loaded on first use.

        Args:
            rebuilder: writes queue entries.
            is_batch_topic: returns whether a topic has batch queues.
            index: the message index.
            index_from: physical offset before which messages are indexed.
            check_crc: whether to check bodies.
            delays_ms: delay levels.
        """
        self._rebuilder = rebuilder
        self._is_batch_topic = is_batch_topic
        self._index = index
        self._index_from = NO_INDEX if index is None else index_from
        self._check_crc = check_crc
        self._reader = CompiledReader(delays_ms)
        self.record_count: int = 0

    def take(self, mapped: MappedFile, phy_offset: int, end: int) -> RunRead | None:
        """Handle the eligible records at a physical offset; return None if there are none.

        Args:
            mapped: a file of the log.
            phy_offset: a possible record position.
            end: limit within the file; records that end later are ignored.

        Raises:
            DiskFullError: no space to rebuild queues.
            OSError: the disk failed.
        """
        base = mapped.base_offset
        # The module is loaded only when there is something to read: most starts are clean.
        records = self._reader.records() if end > phy_offset else None
        if records is None or not records.read(
            mapped.view, phy_offset - base, end - base, base, self._check_crc, self._index_from
        ):
            return None
        found = RunRead(base + records.end, records.last_ms, is_taken=True)
        queues = [QueueRun(*each) for each in records.queues()]
        # Checked for all queues before any entry is written: the general path must be able to
        # start at the first record.
        if not all(map(self._fits, queues)):
            return found._replace(is_taken=False)
        for queue in queues:
            self._rebuilder.put_run(
                queue.topic, queue.queue_id, queue.entries, queue.last_phy, queue.phy_end
            )
        self.record_count += records.count
        if self._index is not None:
            # After the queues: a message that is found by key must be readable.
            put_keys(self._index, records)
        return found

    def _fits(self, run: QueueRun) -> bool:
        """Return whether the entries continue their queue."""
        # The general path rejects unsafe names and handles batch queues.
        return (
            is_safe_topic(run.topic)
            and not self._is_batch_topic(run.topic)
            and self._rebuilder.goes_on(
                run.topic,
                run.queue_id,
                run.queue_offset,
                run.first_phy,
                len(run.entries) // ENTRY_BYTES,
            )
        )


def put_keys(index: IndexService, records: PlainRecords, *, is_replay: bool = False) -> bool:
    """Index all keys, in bulk where a file has room, otherwise message by message.

    Args:
        index: the message index.
        records: the records.
        is_replay: the index is catching up with these records.

    Returns:
        Whether all keys were indexed; otherwise the index records where it is behind.
    """
    first = 0
    while first < records.key_count and (is_replay or index.missing_from is None):
        phy_offset, time_ms = records.place(first)
        count = _write_keys(index, records, first, is_replay=is_replay)
        if not count:
            keys = records.keys_of_message(first)
            count = len(keys)
            if not is_replay:
                # Without room the index only records from where it is behind.
                index.put_hashed(keys, [phy_offset] * count, time_ms)
            elif not index.replay_hashed(keys, phy_offset, time_ms):
                index.replayed_to(phy_offset)
                return False
        first += count
    return first >= records.key_count


def _write_keys(index: IndexService, records: PlainRecords, first: int, *, is_replay: bool) -> int:
    """Write the keys that fit into the file; return how many, 0 to index them singly."""
    phy_offset, time_ms = records.place(first)
    wanted = records.key_count - first
    try:
        found = index.open_run(phy_offset, time_ms, wanted, is_replay=is_replay)
    except (ResourceShortError, OSError):  # a smaller number may fit
        return 0
    if found is None:
        return 0
    file, room = found
    count = room.stop - room.first
    # Slots that were unused are counted: the header of the file has their number.
    unused = records.write(
        room.buffer, room.slots, room.entries_at, room.first, room.begin_ms, first, count
    )
    file.close_run(room.stop, room.slots_used + unused, *records.place(first + count - 1))
    return count
