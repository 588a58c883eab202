"""Recovery of plain records, many at a time, by the compiled reader where there is one.

`_plain_records.pyx` reads the records that follow one another in a file of the log up to the first
that is not plain, and makes queue entries and index entries of them; nothing is written yet. Here
it is decided whether the run may be taken: it is when each of its queues goes on exactly where it
ends. Otherwise all of it is read record by record, and so is every record that is not plain
(`recovery.recovery`, the reference: docs/decisions/0012-a-compiled-reader-for-recovery.md).

A step of a start; see `rocketpy.store.recovery.recovery`.
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
_NO_INDEX: Final = (1 << 63) - 1


class QueueRun(NamedTuple):
    """The messages of one queue in a run.

    Attributes:
        topic: stored topic.
        queue_id: queue within the topic.
        queue_offset: of the first one; the others follow it.
        entries: queue entries as they stand in the file.
        first_phy: where the first one begins in the log.
        last_phy: where the last one begins.
        phy_end: where the last one ends.
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

    def read(
        self,
        view: memoryview,
        position: int,
        end: int,
        base_offset: int,
        check_crc: bool,
        index_from: int,
    ) -> int:
        """Read records until one is not plain; return how many they are."""
        ...

    def queues(self) -> list[tuple[str, int, int, bytes, int, int, int]]:
        """Return the fields of a `QueueRun` for each queue."""
        ...

    def place(self, first: int) -> tuple[int, int]:
        """Return physical offset and store time of the message of a key."""
        ...

    def keys_of_message(self, first: int) -> list[int]:
        """Return the hashes from a key on that belong to the same message."""
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
        """Write index entries; return how many slots were unused."""
        ...


class RunRead(NamedTuple):
    """Result of reading records in bulk.

    Attributes:
        end: physical offset after the run.
        last_ms: store time of its last record.
        is_taken: whether queues and index have it; otherwise it is to be read record by record.
    """

    end: int
    last_ms: int
    is_taken: bool


def compiled_records() -> Callable[[], PlainRecords] | None:
    """Return what makes readers of plain records; None when it is not there or not wanted.

    Raises:
        ImportError: it is not there and ROCKETPY_COMPILED=1 says that it must be.
    """
    module = load_compiled(_MODULE)
    if module is None:
        return None
    make: Callable[[], PlainRecords] = module.PlainRecords
    return make


class CompiledReader:
    """The reader of one reading of the log, loaded when it is first asked for."""

    def __init__(self) -> None:
        self._records: PlainRecords | None = None
        self._is_loaded = False

    def records(self) -> PlainRecords | None:
        """Return it; None when it is not there or not wanted.

        Raises:
            ImportError: it is not there and ROCKETPY_COMPILED=1 says that it must be.
        """
        if not self._is_loaded:
            make = compiled_records()
            self._records = None if make is None else make()
            self._is_loaded = True
        return self._records


class BulkRecovery:
    """Takes runs of plain records during one reading of the log.

    Attributes:
        record_count: records taken.
    """

    def __init__(
        self,
        rebuilder: QueueRebuilder,
        is_batch_topic: Callable[[str], bool],
        index: IndexService | None,
        *,
        index_from: int,
        check_crc: bool,
    ) -> None:
        """Prepare for a reading; the compiled reader is loaded when the first run is asked for.

        Args:
            rebuilder: writes queue entries.
            is_batch_topic: whether a topic has queues of another kind.
            index: the message index.
            index_from: messages before it are in the index.
            check_crc: whether bodies are checked.
        """
        self._rebuilder = rebuilder
        self._is_batch_topic = is_batch_topic
        self._index = index
        self._index_from = _NO_INDEX if index is None else index_from
        self._check_crc = check_crc
        self._reader = CompiledReader()
        self.record_count: int = 0

    def take(self, mapped: MappedFile, phy_offset: int, end: int) -> RunRead | None:
        """Take the plain records at a place in the log; None when there are none.

        Args:
            mapped: the file of the log.
            phy_offset: where a record may begin.
            end: records that end after it are left alone; within the file.

        Raises:
            DiskFullError: no space to rebuild queues.
            OSError: the disk failed.
        """
        base = mapped.base_offset
        records = self._reader.records() if end > phy_offset else None
        if records is None or not records.read(
            mapped.view, phy_offset - base, end - base, base, self._check_crc, self._index_from
        ):
            return None
        found = RunRead(base + records.end, records.last_ms, is_taken=True)
        queues = [QueueRun(*each) for each in records.queues()]
        if not all(map(self._fits, queues)):
            return found._replace(is_taken=False)
        for queue in queues:
            self._rebuilder.put_run(
                queue.topic, queue.queue_id, queue.entries, queue.last_phy, queue.phy_end
            )
        self.record_count += records.count
        if self._index is not None:
            put_keys(self._index, records)
        return found

    def _fits(self, run: QueueRun) -> bool:
        """Whether entries can be appended as they are."""
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
    """Put all keys, many at a time where a file takes them; else as for one message.

    Args:
        index: the message index.
        records: a run.
        is_replay: the index is behind, and these are what it misses.

    Returns:
        Whether the index has all of them; otherwise it knows where it is behind.
    """
    first = 0
    while first < records.key_count and (is_replay or index.missing_from is None):
        phy_offset, time_ms = records.place(first)
        count = _write_keys(index, records, first, is_replay=is_replay)
        if not count:
            keys = records.keys_of_message(first)
            count = len(keys)
            if not is_replay:
                index.put_hashed(keys, [phy_offset] * count, time_ms)
            elif not index.replay_hashed(keys, phy_offset, time_ms):
                index.replayed_to(phy_offset)
                return False
        first += count
    return first >= records.key_count


def _write_keys(index: IndexService, records: PlainRecords, first: int, *, is_replay: bool) -> int:
    """Write as many keys as a file takes; return how many, 0 when they go one by one."""
    phy_offset, time_ms = records.place(first)
    wanted = records.key_count - first
    try:
        found = index.open_run(phy_offset, time_ms, wanted, is_replay=is_replay)
    except (ResourceShortError, OSError):  # fewer of them may find room
        return 0
    if found is None:
        return 0
    file, room = found
    count = room.stop - room.first
    unused = records.write(
        room.buffer, room.slots, room.entries_at, room.first, room.begin_ms, first, count
    )
    file.close_run(room.stop, room.slots_used + unused, *records.place(first + count - 1))
    return count
