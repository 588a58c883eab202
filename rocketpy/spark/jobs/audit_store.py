"""The checks of an audit: every record of the log, every entry of the queues, both against both.

Two kinds of task, which know nothing of each other: a file of the log, and a queue. What they find
is told by physical offset, so that one damaged message is one line, however many checks it fails.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketpy.arrow import RecordDecoder, row_schema
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.record import (
    BLANK_MAGIC,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
)
from rocketpy.proto.record.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import LMQ_PREFIX, SCHEDULE_TOPIC, is_system_topic
from rocketpy.spark.jobs.audit_files import (
    DataFile,
    Int64s,
    Maps,
    QueueFolder,
    end_of,
    entry_chunks,
    is_blank,
    log_files,
    phy_offsets_at,
    queue_folders,
)

_CHUNK_BYTES: Final = 16 << 20
_SLICE_ROWS: Final = 20_000
_PHY_AT: Final = 28
"""Where in a record its own physical offset stands."""
_COLUMNS: Final = ("topic", "queueId", "queueOffset", "tags", "storeTimestamp", "sysFlag")
_MAGICS: Final = tuple(
    np.frombuffer(each.to_bytes(4, "big", signed=True), np.uint8) for each in (MAGIC_V1, MAGIC_V2)
)
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        phy_offset: of the record, or of the hole; -1 for an entry that points nowhere.
        topic: as far as it is known.
        queue_id: as far as it is known, else -1.
        queue_offset: as far as it is known, else -1.
        problem: what is wrong, as a sentence.
    """

    phy_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    problem: str


@dataclass(slots=True)
class Audit:
    """What one task, or all of them, saw.

    Attributes:
        findings: what is wrong.
        records: messages in the log.
        entries: written entries of queues.
        pending: messages at the end of the log whose entry is not on disk yet (a broker runs, or
            was killed).
        size_bytes: of all records.
        days: bytes of records by topic and UTC day.
    """

    findings: list[Finding] = field(default_factory=list)
    records: int = 0
    entries: int = 0
    pending: int = 0
    size_bytes: int = 0
    days: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, other: "Audit") -> None:
        """Take in what another task saw."""
        self.findings += other.findings
        self.records += other.records
        self.entries += other.entries
        self.pending += other.pending
        self.size_bytes += other.size_bytes
        for key, size_bytes in other.days.items():
            self.days[key] = self.days.get(key, 0) + size_bytes


@dataclass(frozen=True, slots=True)
class Store:
    """A store directory as an audit found it when it began.

    Attributes:
        logs: files of the log, in order.
        queues: its consume queues.
        batch_topics: topics whose queues are of another kind, which is not checked.
        is_clean: a broker closed it; else the last entries may not be on disk.
        deleted: topics that were deleted, and the physical offset before which.
    """

    logs: tuple[DataFile, ...]
    queues: tuple[QueueFolder, ...]
    batch_topics: frozenset[str]
    is_clean: bool
    deleted: tuple[tuple[str, int], ...] = ()

    @classmethod
    def find(cls, root: Path) -> "Store":
        """Look at a directory; raises StoreFormatError when it is no store."""
        deleted = [
            (topic.name, int(mark.name.partition(".")[0]))
            for mark in sorted((root / "deleted").glob("*"))
            if mark.name.partition(".")[0].isdecimal()
            for topic in mark.iterdir()
        ]
        batch = (root / "batchconsumequeue").glob("*")
        return cls(
            logs=tuple(log_files(root)),
            queues=tuple(queue_folders(root)),
            batch_topics=frozenset(path.name for path in batch),
            is_clean=not (root / "abort").exists(),
            deleted=tuple(deleted),
        )

    def is_deleted(self, topic: str, phy_offset: int) -> bool:
        """Whether a message was deleted with its topic."""
        return any(name == topic and phy_offset < before for name, before in self.deleted)


# ---- the log


def record_starts(data: npt.NDArray[np.uint8], base: int) -> Int64s:
    """Return where in a file of the log records begin, by their magic and their own offset.

    What has both by chance inside a body would have to know where it is stored.
    """
    found = []
    last = len(data) - MIN_RECORD_BYTES
    for start in range(0, last + 1, _CHUNK_BYTES):
        piece = np.asarray(data[start : min(len(data), start + _CHUNK_BYTES + MIN_RECORD_BYTES)])
        stop = min(_CHUNK_BYTES, last + 1 - start)
        for magic in _MAGICS:
            at = np.flatnonzero(piece[MAGIC_AT : MAGIC_AT + stop] == magic[0])
            for number in (1, 2, 3):
                at = at[piece[at + MAGIC_AT + number] == magic[number]]
            claimed = _longs_at(piece, at + _PHY_AT)
            found.append(at[claimed == at + start + base] + start)
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _longs_at(data: npt.NDArray[np.uint8], places: Int64s) -> Int64s:
    windows = np.lib.stride_tricks.sliding_window_view(data, 8)
    return windows[places].view(">i8")[:, 0].astype(np.int64)


def _ints_at(data: npt.NDArray[np.uint8], places: Int64s) -> Int64s:
    windows = np.lib.stride_tricks.sliding_window_view(data, 4)
    return windows[places].view(">i4")[:, 0].astype(np.int64)


def audit_log_file(store: Store, number: int) -> Audit:
    """Check one file of the log: holes, checksums, and that each message is in its queue.

    Args:
        store: where it is.
        number: of the file.
    """
    file, maps, done = store.logs[number], Maps(), Audit()
    data = maps.bytes_of(file)
    starts = record_starts(data, file.base)
    damaged: set[int] = set()
    for start in range(0, len(starts), _SLICE_ROWS):
        places = starts[start : start + _SLICE_ROWS]
        rows, good, errors = _decoded(data, places, file.base, check_crc=True)
        _count(done, rows, _ints_at(data, good))
        _check_in_queues(store, maps, rows, good + file.base, done)
        damaged |= {error.phy_offset - file.base for error in errors}
        done.findings += [_of_damage(data, file, error) for error in errors]
    done.records += len(damaged)
    done.findings += _holes(store, data, file, starts, damaged)
    return done


def _decoded(
    data: npt.NDArray[np.uint8], places: Int64s, base: int, *, check_crc: bool = False
) -> tuple[Any, Int64s, list[CorruptRecordError]]:
    """Return the rows of intact records, where these are, and what is wrong with the others."""
    errors: list[CorruptRecordError] = []
    decoder = RecordDecoder(
        row_schema(columns=_COLUMNS), check_crc=check_crc, damaged="skip", on_damaged=errors.append
    )
    rows = decoder.decode(data, places, broker_name="", base_offset=base)
    if not errors:
        return rows, places, errors
    bad = [error.phy_offset - base for error in errors]
    return rows, places[~np.isin(places, bad)], errors


def _holes(
    store: Store,
    data: npt.NDArray[np.uint8],
    file: DataFile,
    starts: Int64s,
    damaged: set[int],
) -> list[Finding]:
    """Find bytes between intact records that are none."""
    found = []
    sizes = _ints_at(data, starts) if len(starts) else starts
    ends = np.concatenate((np.zeros(1, np.int64), starts + sizes))
    nexts = np.concatenate((starts, np.full(1, _records_end(store, data, file, int(ends[-1])))))
    for index in np.flatnonzero(ends != nexts).tolist():
        end, begin = int(ends[index]), int(nexts[index])
        if index and int(starts[index - 1]) in damaged:
            continue  # how long it is, is not known
        problem = f"{begin - end} bytes are no record"
        found.append(Finding(file.base + end, "", -1, -1, problem))
    return found


def _records_end(store: Store, data: npt.NDArray[np.uint8], file: DataFile, end: int) -> int:
    """Return where the records of a file should end: `end`, if what follows is as it must be."""
    if not 0 <= end <= len(data) - 8:
        return end
    size, magic = (int(each) for each in _ints_at(data, np.array([end, end + 4], np.int64)))
    if magic == BLANK_MAGIC:
        return end
    if _is_last_used(store, file) and (not store.is_clean or (size == 0 and magic == 0)):
        return end  # nothing yet, or a message that is being written
    return end + size if 0 < size <= len(data) - end else len(data)


def _is_last_used(store: Store, file: DataFile) -> bool:
    """Tell whether nothing is in the files after it: brokers make the next one in advance."""
    maps = Maps()
    later = store.logs[store.logs.index(file) + 1 :]
    return not any(maps.bytes_of(each)[:8].any() for each in later)


def _of_record(data: npt.NDArray[np.uint8], file: DataFile, at: int, problem: str) -> Finding:
    queue_id = int(_ints_at(data, np.array([at + 12], np.int64))[0])
    offset = int(_longs_at(data, np.array([at + 20], np.int64))[0])
    return Finding(file.base + at, "", queue_id, offset, problem)


def _of_damage(data: npt.NDArray[np.uint8], file: DataFile, error: CorruptRecordError) -> Finding:
    reason = str(error).partition(": ")[2] or str(error)
    return _of_record(data, file, error.phy_offset - file.base, reason)


def _count(done: Audit, rows: Any, sizes: Int64s) -> None:  # noqa: ANN401 - pyarrow has no types
    done.records += rows.num_rows
    done.size_bytes += int(sizes.sum())
    days = rows.column("storeTimestamp").cast("int64").to_numpy(zero_copy_only=False) // _DAY_US
    topics = rows.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    names = topics.dictionary.to_pylist()
    for day in np.unique(days):
        of_day = days == day
        total = np.bincount(codes[of_day], sizes[of_day], len(names))
        for name, size_bytes in zip(names, total.tolist(), strict=True):
            if size_bytes:
                key = (name, str(np.datetime64(int(day), "D")))
                done.days[key] = done.days.get(key, 0) + int(size_bytes)


def _check_in_queues(
    store: Store,
    maps: Maps,
    rows: Any,  # noqa: ANN401 - pyarrow has no types
    phy_offsets: Int64s,
    done: Audit,
) -> None:
    """Check that each message is in its queue at its offset."""
    numpy_of = {
        name: rows.column(name).to_numpy(zero_copy_only=False)
        for name in ("topic", "queueId", "queueOffset", "sysFlag")
    }
    kind = numpy_of["sysFlag"] & TRANSACTION_MASK
    queued = (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)
    by_name = {(each.topic, each.queue_id): each for each in store.queues}
    pairs = set(zip(numpy_of["topic"].tolist(), numpy_of["queueId"].tolist(), strict=True))
    for topic, queue_id in sorted(pairs):
        if topic in store.batch_topics:
            continue
        mine = queued & (numpy_of["topic"] == topic) & (numpy_of["queueId"] == queue_id)
        wanted = phy_offsets[mine]
        offsets = numpy_of["queueOffset"][mine].astype(np.int64)
        queue = by_name.get((topic, queue_id), QueueFolder(topic, queue_id, ()))
        there = phy_offsets_at(maps, queue, offsets)
        end = end_of(maps, queue)
        for index in np.flatnonzero(there != wanted).tolist():
            at, offset, got = int(wanted[index]), int(offsets[index]), int(there[index])
            if store.is_deleted(topic, at):
                continue
            if got < 0 and offset >= end and not store.is_clean:
                done.pending += 1
                continue
            problem = (
                "its queue has no entry for it"
                if got < 0
                else f"its queue has another message there, at {got}"
            )
            done.findings.append(Finding(at, topic, queue_id, offset, problem))


# ---- the queues


def audit_queue(store: Store, number: int) -> Audit:
    """Check the entries of one queue: each leads to a message of that queue, offset and tag.

    Args:
        store: where it is.
        number: of the queue.
    """
    queue, maps, done = store.queues[number], Maps(), Audit()
    if queue.topic.startswith(LMQ_PREFIX):
        return done  # its messages are those of other topics
    lowest, highest = store.logs[0].base, store.logs[-1].end
    for first, entries in entry_chunks(maps, queue):
        offsets = first + np.arange(len(entries), dtype=np.int64)
        written = ~is_blank(entries) & (entries["phy_offset"] >= lowest)
        done.entries += int((~is_blank(entries)).sum())
        problems: dict[int, str] = {}
        for file in store.logs:
            inside = written & (entries["phy_offset"] >= file.base)
            inside &= entries["phy_offset"] < file.end
            at = np.flatnonzero(inside)
            if len(at):
                found = _entry_problems(queue, file, maps, entries[at], offsets[at])
                problems |= {int(at[index]): problem for index, problem in found}
        behind = np.flatnonzero(written & (entries["phy_offset"] >= highest)).tolist()
        problems |= dict.fromkeys(behind, "its entry points behind the end of the log")
        done.findings += [
            Finding(
                int(entries["phy_offset"][index]),
                queue.topic,
                queue.queue_id,
                int(offsets[index]),
                problem,
            )
            for index, problem in sorted(problems.items())
        ]
    return done


def _entry_problems(
    queue: QueueFolder,
    file: DataFile,
    maps: Maps,
    entries: npt.NDArray[Any],
    offsets: Int64s,
) -> Iterator[tuple[int, str]]:
    """Yield which entries do not lead to their message in one file of the log, and why."""
    data = maps.bytes_of(file)
    places = entries["phy_offset"].astype(np.int64) - file.base
    good = places + MIN_RECORD_BYTES <= len(data)
    inside = np.flatnonzero(good)
    good[inside] &= _ints_at(data, places[inside]) == entries["size_bytes"][inside]
    good[inside] &= _longs_at(data, places[inside] + _PHY_AT) == places[inside] + file.base
    for index in np.flatnonzero(~good).tolist():
        yield index, "its entry points to no record, or to one of another size"
    rows, intact, _ = _decoded(data, places[good], file.base)  # the log's check tells of others
    kept = np.flatnonzero(good & np.isin(places, intact))
    topics, tags = (rows.column(name).to_pylist() for name in ("topic", "tags"))
    queue_ids, row_offsets = (
        rows.column(name).to_numpy(zero_copy_only=False) for name in ("queueId", "queueOffset")
    )
    has_codes = queue.topic != SCHEDULE_TOPIC and not is_system_topic(queue.topic)
    codes = entries["tags_code"].tolist()
    for row, index in enumerate(kept.tolist()):
        if topics[row] != queue.topic or queue_ids[row] != queue.queue_id:
            yield index, f"its entry points to a message of {topics[row]}, queue {queue_ids[row]}"
        elif row_offsets[row] != offsets[index]:
            yield index, f"its entry points to the message of offset {row_offsets[row]}"
        elif has_codes and -(1 << 31) <= codes[index] != tags_code(tags[row]):
            yield index, "its entry has the code of another tag"


# ---- all of it


def tasks_of(store: Store) -> list[tuple[str, int]]:
    """Return what there is to do: ("log" or "queue", number)."""
    logs = [("log", number) for number in range(len(store.logs))]
    return logs + [("queue", number) for number in range(len(store.queues))]


def run_task(store: Store, kind: str, number: int) -> Audit:
    """Do one task."""
    return audit_log_file(store, number) if kind == "log" else audit_queue(store, number)


def by_message(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with one line a record, sorted; what is wrong with it is joined."""
    found: dict[int, list[Finding]] = {}
    for each in findings:
        found.setdefault(each.phy_offset, []).append(each)
    merged = []
    for phy_offset, several in sorted(found.items()):
        best = max(several, key=lambda each: (bool(each.topic), each.queue_id, each.queue_offset))
        problems = "; ".join(sorted({each.problem for each in several}))
        merged.append(Finding(phy_offset, best.topic, best.queue_id, best.queue_offset, problems))
    return merged
