"""Checks of a store directory: records of the commit log against consume queues, and the reverse.

There are two kinds of independent tasks: a file of the log, and a queue. Findings carry the
physical offset, so that a damaged message is one line, however many checks it fails. The log is
walked as scans walk it (`rocketpy.store.scan`). Entries of queues are read without the assumptions
of a scan, because a damaged entry is what an audit looks for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocketpy.arrow import RecordDecoder, row_schema
from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.record_headers import Mask, RecordHeaders
from rocketpy.errors import CorruptRecordError, StoreFormatError
from rocketpy.proto.record.record import MIN_RECORD_BYTES
from rocketpy.proto.record.record_check import RecordState
from rocketpy.proto.record.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import LMQ_PREFIX, SCHEDULE_TOPIC, is_system_topic
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE, ENTRY_BYTES
from rocketpy.store.scan.directory import LogFile, StoreDirectory, offset_files
from rocketpy.store.scan.log import Log, MappedLog, log_of
from rocketpy.store.scan.log_walk import stretches
from rocketpy.store.scan.unflushed_tail import ENTRIES, Entries

_CHUNK_ENTRIES: Final = 50_000
_COLUMNS: Final = ("topic", "queueId", "queueOffset", "tags", "storeTimestamp", "sysFlag")
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Defect of a record or an entry.

    Attributes:
        phy_offset: of the record, or of bytes that are no record; that of the entry when it
            points outside the log.
        topic: empty if unknown.
        queue_id: -1 if unknown.
        queue_offset: -1 if unknown.
        problem: description, as a sentence.
    """

    phy_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    problem: str


@dataclass(slots=True)
class Audit:
    """Result of one task, or of several.

    Attributes:
        findings: the defects.
        records: messages in the log.
        entries: written entries of queues.
        pending: messages at the end of the log with no entry on disk yet (a broker runs, or was
            killed).
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
        """Add the result of another task."""
        self.findings += other.findings
        self.records += other.records
        self.entries += other.entries
        self.pending += other.pending
        self.size_bytes += other.size_bytes
        for key, size_bytes in other.days.items():
            self.days[key] = self.days.get(key, 0) + size_bytes


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """Files of one consume queue, in order."""

    topic: str
    queue_id: int
    files: tuple[LogFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """A store directory at the start of an audit. It can be pickled for tasks of Spark.

    Attributes:
        root: the directory.
        logs: files of the log, in order.
        queues: its consume queues.
        batch_topics: topics with batch consume queues, which are not checked.
        is_clean: a broker closed it; otherwise the last entries may not be on disk.
        deleted: physical offset by deleted topic: messages before it were deleted.
    """

    root: Path
    logs: tuple[LogFile, ...]
    queues: tuple[QueueFiles, ...]
    batch_topics: frozenset[str]
    is_clean: bool
    deleted: Mapping[str, int]

    @classmethod
    def find(cls, root: Path) -> "Store":
        """List the files of a directory; raise StoreFormatError when it is no store."""
        directory = StoreDirectory(root)
        logs = directory.log_files()
        if not logs:
            raise StoreFormatError(f"{root} is no store directory: it has no commitlog with files")
        queues = [
            QueueFiles(topic, each, tuple(offset_files(directory.queue_directory(topic, each))))
            for topic, ids in directory.queues().items()
            for each in ids
        ]
        return cls(
            root=root,
            logs=tuple(logs),
            queues=tuple(queues),
            batch_topics=frozenset(directory.batch_queues()),
            is_clean=not (root / "abort").exists(),
            deleted=directory.deleted_topics(),
        )

    def log(self) -> Log:
        """Return the log, with the files that it had at the start."""
        return log_of(StoreDirectory(self.root), self.logs)


# ---- the log


class _Holes:
    """Positions of damage that the walk of the log skips."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def report(self, error: CorruptRecordError) -> None:
        """Note the physical offset of damage; `stretches` calls it."""
        self.starts.append(error.phy_offset)


def audit_log_file(store: Store, number: int) -> Audit:
    """Check one file of the log: holes, checksums, and that each message is in its queue.

    Args:
        store: the store.
        number: of the file.
    """
    log, done = store.log(), Audit()
    mapped = log.open(number)
    if mapped is None:  # it expired after the audit began
        return done
    holes = _Holes()
    for positions in _positions(store, log, mapped, holes):
        done.findings += _hole_findings(holes, mapped, int(positions[0]))
        rows, good, errors = _decoded(mapped, positions, check_crc=True)
        headers = RecordHeaders(np.frombuffer(mapped.data, np.uint8), good)
        _count(done, rows, headers.field("size_bytes").astype(np.int64))
        _check_in_queues(store, rows, good + mapped.base, done)
        done.records += len(errors)
        done.findings += [_of_damage(store, mapped, error) for error in errors]
        mapped.release_before(int(positions[-1]))
    done.findings += _hole_findings(holes, mapped, mapped.size_bytes)
    return done


def _positions(store: Store, log: Log, mapped: MappedLog, holes: _Holes) -> Iterator[Int64s]:
    """Yield positions of records, some at a time; at the end that of a torn record."""
    end = 0
    for positions in stretches(log, mapped, 0, mapped.size_bytes, holes):
        yield positions
        end = int(positions[-1]) + mapped.check(int(positions[-1])).size_bytes
    # Scans ignore a torn record at the end of the log. An audit reports it once its head was
    # written; in a store that was closed, in any case.
    if holes.starts or mapped.check(end).state is not RecordState.BROKEN:
        return
    at = np.array([end], np.int64)
    headers = RecordHeaders(np.frombuffer(mapped.data, np.uint8), at)
    if headers.field("phy_offset")[0] == mapped.base + end:
        yield at
    elif store.is_clean:
        holes.starts.append(mapped.base + end)


def _hole_findings(holes: _Holes, mapped: MappedLog, end: int) -> Iterator[Finding]:
    """Yield the findings for damage before a position, and forget them."""
    for start in holes.starts:
        problem = f"{mapped.base + end - start} bytes are no record"
        yield Finding(start, "", -1, -1, problem)
    holes.starts.clear()


def _decoded(
    mapped: MappedLog, positions: Int64s, *, check_crc: bool = False
) -> tuple[Any, Int64s, list[CorruptRecordError]]:
    """Return rows and positions of intact records, and the damage of the others."""
    errors: list[CorruptRecordError] = []
    decoder = RecordDecoder(
        row_schema(columns=_COLUMNS), check_crc=check_crc, damaged="skip", on_damaged=errors.append
    )
    rows = decoder.decode(mapped.data, positions, broker_name="", base_offset=mapped.base)
    bad = [error.phy_offset - mapped.base for error in errors]
    return rows, positions[~np.isin(positions, bad)] if bad else positions, errors


def _of_damage(store: Store, mapped: MappedLog, error: CorruptRecordError) -> Finding:
    at = np.array([error.phy_offset - mapped.base], np.int64)
    headers = RecordHeaders(np.frombuffer(mapped.data, np.uint8), at)
    queue_id, queue_offset = (int(headers.field(name)[0]) for name in ("queue_id", "queue_offset"))
    reason = str(error).partition(": ")[2] or str(error)
    topic = ""
    if headers.regular[0]:
        name = bytes(mapped.view[int(headers.topic_at[0]) : int(headers.topic_end[0])])
        topic = str(name, "utf-8", "replace")
    # Damage of other parts than the body may make it any text: only existing topics are shown.
    if topic not in {each.topic for each in store.queues} | store.batch_topics:
        topic = ""
    return Finding(error.phy_offset, topic, queue_id, queue_offset, reason)


def _count(done: Audit, rows: Any, sizes: Int64s) -> None:  # noqa: ANN401 - pyarrow has no types
    """Add records and bytes, by topic and day, to a result."""
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
    rows: Any,  # noqa: ANN401 - pyarrow has no types
    phy_offsets: Int64s,
    done: Audit,
) -> None:
    """Check that the queue of each message has an entry that leads to it."""
    numpy_of = {name: rows.column(name).to_numpy(zero_copy_only=False) for name in _COLUMNS}
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
        queue = _QueueEntries(by_name.get((topic, queue_id), QueueFiles(topic, queue_id)))
        there = queue.phy_offsets_at(offsets)
        for index in np.flatnonzero(there != wanted).tolist():
            at, offset, got = int(wanted[index]), int(offsets[index]), int(there[index])
            if at < store.deleted.get(topic, 0):
                continue
            if got < 0 and offset > queue.last_written and not store.is_clean:
                done.pending += 1
                continue
            problem = (
                "its queue has no entry for it"
                if got < 0
                else f"its queue has another message there, at {got}"
            )
            done.findings.append(Finding(at, topic, queue_id, offset, problem))


# ---- the queues


class _QueueEntries:
    """Entries of a consume queue, as its files have them.

    Attributes:
        last_written: queue offset of the last written entry; -1 without one.
    """

    def __init__(self, queue: QueueFiles) -> None:
        self._files = Log(queue.files)
        # Searched from the end, not by bisection: a damaged entry may look unwritten.
        self.last_written: int = -1
        for first, entries in self._arrays(reversed(range(len(queue.files)))):
            written = np.flatnonzero((entries["size_bytes"] != 0) | (entries["phy_offset"] != 0))
            if len(written):
                self.last_written = first + int(written[-1])
                break

    def _arrays(self, numbers: Iterable[int]) -> Iterator[tuple[int, Entries]]:
        """Yield the queue offset of the first entry, and the entries, of some files."""
        for number in numbers:
            mapped = self._files.open(number)
            if mapped is not None:
                count = mapped.size_bytes // ENTRY_BYTES
                yield mapped.base // ENTRY_BYTES, np.frombuffer(mapped.data, ENTRIES, count)

    def chunks(self) -> Iterator[tuple[int, Entries]]:
        """Yield the queue offset of the first entry, and the entries, up to the last written."""
        for first, entries in self._arrays(range(len(self._files.files))):
            count = min(len(entries), max(0, self.last_written + 1 - first))
            for start in range(0, count, _CHUNK_ENTRIES):
                # A copy: a broker may write the file while an entry is checked.
                yield first + start, entries[start : min(count, start + _CHUNK_ENTRIES)].copy()

    def phy_offsets_at(self, offsets: Int64s) -> Int64s:
        """Return the physical offsets in the entries of queue offsets; -1 without an entry."""
        found = np.full(len(offsets), -1, np.int64)
        for first, entries in self._arrays(range(len(self._files.files))):
            places = offsets - first
            inside = np.flatnonzero((places >= 0) & (places < len(entries)))
            there = entries[places[inside]]
            written = (there["size_bytes"] != 0) & ~_is_blank(there)
            found[inside[written]] = there["phy_offset"][written]
        return found


def _is_blank(entries: Entries) -> Mask:
    """Return which entries precede the first message of a queue that begins late."""
    blank: Mask = (entries["phy_offset"] == 0) & (entries["size_bytes"] == BLANK_SIZE)
    return blank


def audit_queue(store: Store, number: int) -> Audit:
    """Check the entries of one queue: each leads to a message of that queue, offset and tag.

    Args:
        store: the store.
        number: of the queue.
    """
    queue, log, done = store.queues[number], store.log(), Audit()
    if queue.topic.startswith(LMQ_PREFIX):
        return done  # its messages are those of other topics
    for first, entries in _QueueEntries(queue).chunks():
        offsets = first + np.arange(len(entries), dtype=np.int64)
        written = ~_is_blank(entries) & (entries["phy_offset"] >= log.begin)
        done.entries += int((~_is_blank(entries)).sum())
        problems: dict[int, str] = {}
        for file_number, file in enumerate(store.logs):
            inside = written & (entries["phy_offset"] >= file.base)
            inside &= entries["phy_offset"] < file.base + file.size_bytes
            at = np.flatnonzero(inside)
            mapped = log.open(file_number) if len(at) else None
            if mapped is not None:
                found = _entry_problems(queue, mapped, entries[at], offsets[at])
                problems |= {int(at[index]): problem for index, problem in found}
        behind = np.flatnonzero(written & (entries["phy_offset"] >= log.end)).tolist()
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
    queue: QueueFiles, mapped: MappedLog, entries: Entries, offsets: Int64s
) -> Iterator[tuple[int, str]]:
    """Yield the index of each entry that does not lead to its message in a file, and why."""
    places = entries["phy_offset"].astype(np.int64) - mapped.base
    headers = RecordHeaders(np.frombuffer(mapped.data, np.uint8), places)
    good = places + MIN_RECORD_BYTES <= mapped.size_bytes
    good &= headers.field("size_bytes") == entries["size_bytes"]
    good &= headers.field("phy_offset") == entries["phy_offset"]
    for index in np.flatnonzero(~good).tolist():
        yield index, "its entry points to no record, or to one of another size"
    # Damaged records are findings of the log's tasks.
    rows, intact, _ = _decoded(mapped, places[good])
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


# ---- tasks


def tasks_of(store: Store) -> list[tuple[str, int]]:
    """Return the tasks of an audit: ("log" or "queue", number)."""
    logs = [("log", number) for number in range(len(store.logs))]
    return logs + [("queue", number) for number in range(len(store.queues))]


def run_task(store: Store, kind: str, number: int) -> Audit:
    """Run one task."""
    return audit_log_file(store, number) if kind == "log" else audit_queue(store, number)


def by_message(findings: Iterable[Finding]) -> list[Finding]:
    """Merge the findings of each physical offset into one, and sort them."""
    found: dict[int, list[Finding]] = {}
    for each in findings:
        found.setdefault(each.phy_offset, []).append(each)
    merged = []
    for phy_offset, several in sorted(found.items()):
        best = max(several, key=lambda each: (bool(each.topic), each.queue_id, each.queue_offset))
        problems = "; ".join(sorted({each.problem for each in several}))
        merged.append(Finding(phy_offset, best.topic, best.queue_id, best.queue_offset, problems))
    return merged
