"""Entries of messages that are in the log but not yet in the files of their queues.

A running or killed RocketPy broker has the newest entries of its queues in memory only. They are
rebuilt from the end of the log, as recovery would do it. RocketPy's checkpoint records up to where
all entries are on disk; Apache's brokers write entries in order, so there it is the end of the last
one.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketpy.arrow.gather import Int64s, gather
from rocketpy.arrow.record_headers import Mask, RecordHeaders
from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.record import MIN_RECORD_BYTES
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from rocketpy.store.scan.log import Log, MappedLog
from rocketpy.store.scan.log_walk import IgnoreDamage, stretches

MAX_TAIL_RECORDS: Final = 1 << 23
"""Most records after the queues' last entries: they need about 40 bytes of memory each.

The part of the log that they fill may have any size, because it is read as a stream.
"""

ENTRIES: Final = np.dtype([("phy_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
"""Queue entry as a numpy type; for the layout see `rocketpy.store.consume_queue.queue_entry`."""
UNKNOWN_TAGS: Final = -(1 << 40)
"""Tags code of a rebuilt entry: below every hash, so that no filter uses it."""
LOST_SIZE: Final = 0
"""Size of an entry in place of a message that is not in the log."""
_NOWHERE: Final = -1

Entries = npt.NDArray[Any]
QueueKey = tuple[str, int]


class UnflushedEntries(NamedTuple):
    """Records of the end of the log, one array element each.

    Attributes:
        topics: topic names by number.
        topic: number of the topic.
        queue_id: queue within the topic.
        queue_offset: offset in the queue.
        phy_offset: physical offset of the record.
        size_bytes: length of the record.
    """

    topics: list[str]
    topic: Int64s
    queue_id: Int64s
    queue_offset: Int64s
    phy_offset: Int64s
    size_bytes: Int64s


def tails(
    log: Log,
    start: int,
    ends: Mapping[QueueKey, int],
    deleted: Mapping[str, int],
    known: Collection[str] | None,
    *,
    is_vouched: bool = True,
) -> dict[QueueKey, tuple[int, Entries]]:
    """Return the entries that are missing in the files of queues.

    Args:
        log: the log.
        start: physical offset of a record from which on entries may be missing.
        ends: offset after the last entry of each queue with files.
        deleted: physical offsets before which topics are deleted.
        known: all existing topics; None if unknown.
        is_vouched: whether all entries before `start` were in the files when `ends` were found.
            Otherwise a queue may have got entries between the reads of two queues, which are left
            out.

    Returns:
        By queue: the queue offset of the first entry, and the entries, contiguous with the files.
        An unrecognisable message has an entry of `LOST_SIZE`.

    Raises:
        StoreFormatError: more than `MAX_TAIL_RECORDS` entries are missing.
    """
    # A store that was closed has all entries in its files.
    if start >= log.end:
        return {}
    found = _records(log, start)
    made: dict[QueueKey, tuple[int, Entries]] = {}
    order = np.lexsort((found.phy_offset, found.queue_id, found.topic))
    keys = np.stack((found.topic[order], found.queue_id[order]))
    cuts = np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1
    for group in np.split(order, cuts) if len(order) else ():
        topic = found.topics[int(found.topic[group[0]])]
        queue = (topic, int(found.queue_id[group[0]]))
        if known is not None and topic not in known:
            continue
        rows = group[found.phy_offset[group] >= deleted.get(topic, 0)]
        first = ends.get(queue)
        if first is None:  # a queue of which no entry is on disk
            first = int(found.queue_offset[rows[0]]) if len(rows) else 0
        # Entries of the files are not repeated.
        rows = rows[found.queue_offset[rows] >= first]
        if not is_vouched and len(rows) and int(found.queue_offset[rows[0]]) > first:
            continue
        rows = _in_order(found, rows, first, start)
        if len(rows):
            places = found.queue_offset[rows] - first
            entries = np.empty(int(places[-1]) + 1, ENTRIES)
            # Offsets without a record keep this value: the entry exists, its message is lost.
            entries["phy_offset"], entries["size_bytes"] = _NOWHERE, LOST_SIZE
            entries["phy_offset"][places] = found.phy_offset[rows]
            entries["size_bytes"][places] = found.size_bytes[rows]
            entries["tags_code"] = UNKNOWN_TAGS
            made[queue] = first, entries
    return made


def _in_order(found: UnflushedEntries, rows: Int64s, first: int, start: int) -> Int64s:
    """Return the rows of a queue that form a contiguous sequence from an offset on.

    Offsets between two rows belong to damaged records, which must fit between them in the log: a
    queue offset that leaves out more is damaged itself.
    """
    offsets = found.queue_offset[rows]
    if (offsets == first + np.arange(len(rows))).all():
        return rows
    kept = []
    expected, behind = first, start
    for row, offset in zip(rows.tolist(), offsets.tolist(), strict=True):
        phy_offset = int(found.phy_offset[row])
        if 0 <= offset - expected <= (phy_offset - behind) // MIN_RECORD_BYTES:
            kept.append(row)
            expected, behind = offset + 1, phy_offset + int(found.size_bytes[row])
    return np.array(kept, np.int64)


def _records(log: Log, start: int) -> UnflushedEntries:
    """Return every record after an offset that consumers may read."""
    topics: dict[bytes, int] = {}
    columns: list[tuple[Int64s, ...]] = []
    count = 0
    for mapped, positions in _walk(log, start):
        count += len(positions)
        # Checked while reading: the memory must not grow with the log.
        if count > MAX_TAIL_RECORDS:
            raise StoreFormatError(
                f"the consume queues end at physical offset {start}, more than {MAX_TAIL_RECORDS} "
                "messages before the log: scan by log, or let a broker open the store once"
            )
        heads = RecordHeaders(np.frombuffer(mapped.data, np.uint8), positions)
        if not heads.regular.all():
            columns += _odd_records(mapped, positions[~heads.regular], topics)
            heads = heads.select(heads.regular)
        chosen = heads.select(_has_entry(heads.field("sys_flag")))
        names = gather(mapped.data, chosen.topic_at, chosen.topic_end, pa.binary())
        # Topics as numbers: a string for each record would need most of the memory.
        coded = names.dictionary_encode()
        numbers = [topics.setdefault(each, len(topics)) for each in coded.dictionary.to_pylist()]
        columns.append(
            (
                np.array(numbers, np.int64)[coded.indices.to_numpy()],
                chosen.field("queue_id").astype(np.int64),
                chosen.field("queue_offset").astype(np.int64),
                chosen.positions + mapped.base,
                chosen.end - chosen.positions,
            )
        )
    names = [str(name, "utf-8", "replace") for name in topics]
    if not columns:
        return UnflushedEntries(names, *(np.empty(0, np.int64) for _ in range(5)))
    return UnflushedEntries(names, *(np.concatenate(parts) for parts in zip(*columns, strict=True)))


def _walk(log: Log, start: int) -> Iterator[tuple[MappedLog, Int64s]]:
    for number in range(max(log.file_number(start), 0), len(log.files)):
        mapped = log.open(number)
        if mapped is None:
            continue
        begin = max(start - mapped.base, 0)
        for positions in stretches(log, mapped, begin, mapped.size_bytes, IgnoreDamage()):
            yield mapped, positions
            # These pages are not read again.
            mapped.release_before(int(positions[-1]))


def _has_entry(sys_flags: npt.NDArray[Any]) -> Mask:
    """Return which records have a queue entry: neither half messages nor rolled back."""
    kind = sys_flags & TRANSACTION_MASK
    mask: Mask = (kind == 0) | (kind == TRANSACTION_COMMIT)
    return mask


def _odd_records(
    mapped: MappedLog, positions: Int64s, topics: dict[bytes, int]
) -> list[tuple[Int64s, ...]]:
    """Return the same columns for records with other layouts."""
    rows = []
    for position in positions.tolist():
        found = mapped.check(position)
        if found.topic and _has_entry(np.array([found.sys_flag])).all():
            number = topics.setdefault(found.topic, len(topics))
            place = mapped.base + position
            rows.append((number, found.queue_id, found.queue_offset, place, found.size_bytes))
    return [tuple(np.array(column, np.int64) for column in zip(*rows, strict=True))] if rows else []
