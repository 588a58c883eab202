"""Messages that are in the log and not yet in the files of their queues.

A RocketPy broker has the newest entries of its queues in memory; a broker that was killed had some,
too. They are made again from the end of the log, as a start would do it: RocketPy's checkpoint says
up to where all entries are on disk; Apache's brokers write them one after the other, so there it
is the end of the last one.
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

MAX_TAIL_BYTES: Final = 1 << 30
"""Most of the log that is searched; a broker leaves 32,768 entries or a minute behind."""

ENTRIES: Final = np.dtype([("phy_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
"""A queue's entry as a numpy type; `store.queue_entry` has the layout."""
UNKNOWN_TAGS: Final = -(1 << 40)
"""Tags code of an entry made here: below every hash, so nobody goes by it."""
LOST_SIZE: Final = 0
"""Size in an entry made here in place of a message that the log does not have (any more)."""
_NOWHERE: Final = -1

Entries = npt.NDArray[Any]
QueueKey = tuple[str, int]


class UnflushedEntries(NamedTuple):
    """Records of the end of the log, one element each.

    Attributes:
        topics: names, by number.
        topic: number of the topic.
        queue_id: queue within it.
        queue_offset: offset in the queue.
        phy_offset: where it lies.
        size_bytes: its length.
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
    """Return the entries that the files of queues lack.

    Args:
        log: the log.
        start: physical offset of a record from which on entries may be missing.
        ends: of the queues that have files: the offset after their last entry.
        deleted: physical offsets before which topics are deleted.
        known: every topic there is; None when that is not known.
        is_vouched: whether all entries before `start` were in the files when `ends` were found.
            Else a queue may have got some between its look and another's: it ends before them.

    Returns:
        By queue: the queue offset of the first entry, and the entries, which follow one another
        and the files. A message that is damaged beyond recognition has an entry of `LOST_SIZE`.

    Raises:
        StoreFormatError: more is missing than may be searched.
    """
    if start >= log.end:
        return {}
    if log.end - start > MAX_TAIL_BYTES and not log.is_behind_end(start + MAX_TAIL_BYTES):
        raise StoreFormatError(
            f"the consume queues end at physical offset {start}, more than {MAX_TAIL_BYTES} bytes "
            "before the log: scan by log, or let a broker open the store once"
        )
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
        rows = rows[found.queue_offset[rows] >= first]
        if not is_vouched and len(rows) and int(found.queue_offset[rows[0]]) > first:
            continue
        rows = _in_order(found, rows, first, start)
        if len(rows):
            places = found.queue_offset[rows] - first
            entries = np.empty(int(places[-1]) + 1, ENTRIES)
            entries["phy_offset"], entries["size_bytes"] = _NOWHERE, LOST_SIZE
            entries["phy_offset"][places] = found.phy_offset[rows]
            entries["size_bytes"][places] = found.size_bytes[rows]
            entries["tags_code"] = UNKNOWN_TAGS
            made[queue] = first, entries
    return made


def _in_order(found: UnflushedEntries, rows: Int64s, first: int, start: int) -> Int64s:
    """Return those of a queue's rows, by place, that may follow one another from an offset on.

    What is between two of them is damaged, and has to have had room there: a queue offset that
    leaves out more is itself damaged.
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
    """Return every record from a place on that consumers may see."""
    topics: dict[bytes, int] = {}
    columns: list[tuple[Int64s, ...]] = []
    for mapped, positions in _walk(log, start):
        heads = RecordHeaders(np.frombuffer(mapped.data, np.uint8), positions)
        if not heads.regular.all():
            columns += _odd_records(mapped, positions[~heads.regular], topics)
            heads = heads.select(heads.regular)
        chosen = heads.select(_has_entry(heads.field("sys_flag")))
        names = gather(mapped.data, chosen.topic_at, chosen.topic_end, pa.binary())
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
            mapped.release_before(int(positions[-1]))


def _has_entry(sys_flags: npt.NDArray[Any]) -> Mask:
    """Say which are neither half nor rolled back; `store.dispatch.has_queue_entry` for many."""
    kind = sys_flags & TRANSACTION_MASK
    mask: Mask = (kind == 0) | (kind == TRANSACTION_COMMIT)
    return mask


def _odd_records(
    mapped: MappedLog, positions: Int64s, topics: dict[bytes, int]
) -> list[tuple[Int64s, ...]]:
    """Return the same of records of other layouts, one by one."""
    rows = []
    for position in positions.tolist():
        found = mapped.check(position)
        if found.topic and _has_entry(np.array([found.sys_flag])).all():
            number = topics.setdefault(found.topic, len(topics))
            place = mapped.base + position
            rows.append((number, found.queue_id, found.queue_offset, place, found.size_bytes))
    return [tuple(np.array(column, np.int64) for column in zip(*rows, strict=True))] if rows else []
