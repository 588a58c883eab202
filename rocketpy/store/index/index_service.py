"""Message index: all index files of a store as one table.

`put` is called for every message and never fails a send. If the disk is full, the service *falls
behind*: it records the physical offset from which messages are missing and ignores new messages,
because a rebuild is repeatable only while entries are in the order of physical offsets.
`IndexCatchUpService` reads the missing part back from the log; when it reaches the end of the log,
the service indexes new messages again.

After a crash a file is trusted if it is complete (full, or closed because store time descended),
ends before the offset or time that the checkpoint covers (or is the first one that ends at it:
files reach the disk in order), and all earlier files are trusted too. The others are deleted and
their messages read back from the log. (Apache rebuilds only the part that recovery scans, so older
messages of a deleted file are no longer found by key.)

The store calls `IndexService.load`; `IndexService.begin_recovery` before its
recovery dispatches again and `IndexService.cut` after it; `put` for every message except those
of rolled-back transactions; `flush_full_files` periodically; `delete_expired` when the log's
start moves; `close`. The store runs an `IndexCatchUpService`.

Source: IndexService.java, 5.4.0.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.proto.record.tags import IndexKeyHasher
from rocketpy.runtime.clock import Clock
from rocketpy.store.files.store_files import Region, StoreFiles
from rocketpy.store.index.index_file import IndexFile, IndexHeader, IndexRun, index_file_bytes
from rocketpy.store.index.index_keys import index_keys, keys_of_run
from rocketpy.store.index.index_lookup import IndexLookup
from rocketpy.store.results import BatchColumns, QueryIndexResult

logger: logging.Logger = logging.getLogger(__name__)

INDEX_TYPE_TAG: Final = "T"
_NAME_DIGITS: Final = 17
_QUERY_MAX: Final = 64
# Failures after which messages are indexed later, from the log.
_NOT_WRITTEN: Final = (ResourceShortError, OSError)


class IndexedMessage(Protocol):
    """Fields of a record that the index needs."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def uniq_key(self) -> str | None: ...  # noqa: D102
    @property
    def keys(self) -> str | None: ...  # noqa: D102
    @property
    def tags(self) -> str | None: ...  # noqa: D102
    @property
    def phy_offset(self) -> int: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102
    @property
    def store_timestamp_ms(self) -> int: ...  # noqa: D102


class IndexService:
    """Index of messages by key; one writer, any number of readers."""

    def __init__(
        self,
        directory: Path,
        *,
        max_hash_slots: int,
        max_index_count: int,
        clock: Clock,
        files: StoreFiles,
        on_file_flushed: Callable[[int, int], None] | None = None,
        query_max: int = _QUERY_MAX,
    ) -> None:
        """Build the service; `load` opens the files.

        Args:
            directory: `index` in the store's root; created on first use.
            max_hash_slots: slots per file (`maxHashSlotNum`).
            max_index_count: entries per file, the unused first one included (`maxIndexNum`).
            clock: its wall time names new files.
            files: the file system.
            on_file_flushed: called when a complete file is on disk, with the physical offset and
                the store time (ms) of its last message, for the checkpoint.
            query_max: most offsets one query returns (`maxMsgsNumBatch`).
        """
        self._directory = directory
        self._max_hash_slots = max_hash_slots
        self._max_index_count = max_index_count
        self._clock = clock
        self._files = files
        self._on_file_flushed = on_file_flushed
        self._query_max = query_max
        self._hasher = IndexKeyHasher()
        self._index_files: tuple[IndexFile, ...] = ()
        self._current: IndexFile | None = None
        self._unflushed_full: list[IndexFile] = []
        self._missing_from: int | None = None
        self._files_lock = threading.Lock()
        self._flush_lock = threading.Lock()

    @property
    def missing_from(self) -> int | None:
        """Physical offset of the first message not indexed; None if all are."""
        return self._missing_from

    @property
    def end_phy_offset(self) -> int:
        """Physical offset of the last indexed message; -1 if there is none."""
        files = self._index_files
        return files[-1].end_phy_offset if files else -1

    @property
    def on_disk_to(self) -> tuple[int, int]:
        """Offset and store time of the last message in a complete file on disk; 0 if none."""
        last = self._current
        for file in reversed(self._index_files):
            is_complete = file.is_full or file is not last
            if is_complete and file not in self._unflushed_full:
                return file.end_phy_offset, file.end_timestamp_ms
        return 0, 0

    @property
    def headers(self) -> list[IndexHeader]:
        """Headers of all files, oldest first."""
        return [file.header for file in self._index_files]

    def load(self, after_crash: bool, index_msg_timestamp: int, index_phy_offset: int = 0) -> None:
        """Open the files of the directory.

        Args:
            after_crash: the store was not closed; untrusted files are deleted.
            index_msg_timestamp: store time in the checkpoint, ms.
            index_phy_offset: offset in the checkpoint of the last message in a trusted file; it
                decides unless it is 0, because store times can be equal or descend.

        Raises:
            StoreFormatError: a file has the wrong length although there was no crash.
            ResourceShortError: no descriptor or memory.
        """

        def mark(file: IndexFile) -> int:
            return file.end_phy_offset if index_phy_offset else file.end_timestamp_ms

        vouched = index_phy_offset or index_msg_timestamp
        loaded: list[IndexFile] = []
        trusted = True
        names = self._names()
        for name in names:
            file = self._open(name, may_be_broken=after_crash) if trusted else None
            if after_crash and file is not None:
                is_complete = file.is_full or (index_phy_offset > 0 and name != names[-1])
                if not is_complete or mark(file) > vouched:
                    file.close()
                    file = None
                # Files reach the disk in order, so the first untrusted one ends the trusted part.
                trusted = file is not None and mark(file) < vouched
            if file is None:
                trusted = False
                self._files.remove(self._directory / name)
            else:
                loaded.append(file)
        for file in loaded[:-1]:
            # Full files are only read: release their descriptors.
            file.rest()
        self._index_files = tuple(loaded)
        self._current = loaded[-1] if loaded else None

    def lacks_keys_of(self, last: IndexedMessage) -> bool:
        """Return whether keys of the last message belong to a next file that does not exist."""
        # One read: another thread may roll to a new file.
        current = self._current
        if current is None or not current.is_full:
            return False
        count = len(self._hashes(last.topic, last.uniq_key, last.keys, last.tags))
        numbers = range(max(1, current.count - count), current.count)
        return sum(current.entry(each)[1] == last.phy_offset for each in numbers) < count

    def begin_recovery(self, first_phy_offset: int, indexed_to: int) -> None:
        """Set the range that recovery dispatches again; catch-up handles earlier messages.

        Args:
            first_phy_offset: first record that recovery will `put`.
            indexed_to: end of the indexed part of the log.
        """
        if indexed_to < first_phy_offset:
            self._missing_from = indexed_to

    def cut(self, log_end: int, min_phy_offset: int) -> None:
        """Drop messages that the log no longer holds; called at the end of recovery.

        An index file can reach the disk before the log that it points to. Its entries would then
        refer to the messages that are appended at those offsets next.

        Args:
            log_end: end of the commit log; files with later entries are removed, and their
                earlier entries read back from the log.
            min_phy_offset: start of the commit log.
        """
        kept = sum(file.end_phy_offset < log_end for file in self._index_files)
        if not self.keep(kept):
            return
        indexed_to = max(self.end_phy_offset, min_phy_offset)
        self._missing_from = indexed_to if indexed_to < log_end else None

    def keep(self, count: int) -> bool:
        """Delete all files except the first `count`; return whether any were deleted."""
        gone = self._index_files[count:]
        kept = self._index_files = self._index_files[:count]
        self._current = kept[-1] if kept else None
        self._unflushed_full = [file for file in self._unflushed_full if file in kept]
        for file in gone:
            file.close()
            self._files.remove(self._directory / file.name)
        return bool(gone)

    def put(
        self,
        topic: str,
        uniq_key: str | None,
        keys: str | None,
        tags: str | None,
        phy_offset: int,
        store_timestamp_ms: int,
    ) -> None:
        """Index one message; ignored if it was indexed before.

        Args:
            topic: the topic stored in the record.
            uniq_key: property UNIQ_KEY.
            keys: property KEYS: any number of keys separated by single spaces.
            tags: property TAGS.
            phy_offset: physical offset of the message.
            store_timestamp_ms: store time of the message.
        """
        if self._missing_from is not None:
            return
        current = self._current
        # Most messages have one key, for which a list and a loop would double the cost.
        if current is not None and uniq_key is not None and not keys and not tags:
            try:
                if current.put_one(
                    self._hasher.hash(topic, uniq_key), phy_offset, store_timestamp_ms
                ):
                    return
            except _NOT_WRITTEN:
                self._fall_behind(phy_offset)
                return
        hashes = self._hashes(topic, uniq_key, keys, tags)
        if not self._put_hashes(hashes, phy_offset, store_timestamp_ms):
            self._fall_behind(phy_offset)

    def put_run(
        self,
        topic: str,
        messages: BatchColumns,
        phy_offsets: Sequence[int],
        store_timestamp_ms: int,
    ) -> None:
        """Index the messages of one batch; see `put`.

        Args:
            topic: the topic stored in the records.
            messages: the messages.
            phy_offsets: physical offset of each message.
            store_timestamp_ms: store time of the messages.
        """
        if self._missing_from is not None:
            return
        found = keys_of_run(self._hasher, topic, messages.uniq_keys, messages.keys, messages.tags)
        places = [phy_offsets[number] for number in found.numbers]
        self.put_hashed(found.hashes, places, store_timestamp_ms)

    def put_hashed(
        self, hashes: Sequence[int], phy_offsets: Sequence[int], store_timestamp_ms: int
    ) -> None:
        """Index messages by hashed keys; see `put`.

        Args:
            hashes: hashes of all keys, in the order of the log.
            phy_offsets: for each key the physical offset of its message.
            store_timestamp_ms: store time of the messages.
        """
        current = self._current
        if self._missing_from is not None or not hashes:
            return
        # The general path below skips messages that were indexed.
        with suppress(*_NOT_WRITTEN):  # a part may have been written
            if current is not None and current.put_run(hashes, phy_offsets, store_timestamp_ms):
                return
        by_message: dict[int, list[int]] = {}
        for phy_offset, key_hash in zip(phy_offsets, hashes, strict=True):
            by_message.setdefault(phy_offset, []).append(key_hash)
        for phy_offset, keys in by_message.items():
            if not self._put_hashes(keys, phy_offset, store_timestamp_ms):
                self._fall_behind(phy_offset)
                return

    def open_run(
        self, phy_offset: int, store_timestamp_ms: int, count: int, *, is_replay: bool = False
    ) -> tuple[IndexFile, IndexRun] | None:
        """Open a bulk write in the current file; `is_replay`: of missing messages."""
        file = self._current
        if file is not None and (is_replay or self._missing_from is None):
            run = file.open_run(count, phy_offset, store_timestamp_ms)
            return None if run is None else (file, run)
        return None

    def replay(self, message: IndexedMessage) -> bool:
        """Index a message read back from the log; return False if there is still no space."""
        hashes = self._hashes(message.topic, message.uniq_key, message.keys, message.tags)
        if not self._put_hashes(hashes, message.phy_offset, message.store_timestamp_ms):
            return False
        self._missing_from = message.phy_offset + message.size_bytes
        return True

    def replay_hashed(self, hashes: list[int], phy_offset: int, store_timestamp_ms: int) -> bool:
        """Index a message by hashed keys, like `replay`, without advancing `missing_from`."""
        return self._put_hashes(hashes, phy_offset, store_timestamp_ms)

    def replayed_to(self, phy_offset: int) -> None:
        """Advance `missing_from`: all messages before an offset are indexed."""
        self._missing_from = phy_offset

    def end_replay(self) -> None:
        """End the catch-up: all messages are indexed, new ones are again indexed on arrival."""
        self._missing_from = None

    def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
        *,
        accept: Callable[[int], bool] | None = None,
    ) -> QueryIndexResult:
        """Return offsets of messages with a key, newest first, without a lock.

        Args:
            topic: the stored topic.
            key: a UNIQ_KEY, one of the KEYS, or a tag.
            max_count: most offsets to return; a configured limit applies too.
            begin_ms: earliest store time.
            end_ms: latest store time.
            index_type: "T" for a tag.
            accept: returns whether the record at an offset has the key; None accepts every record
                with the key's hash.
        """
        key = f"T#{key}" if index_type == INDEX_TYPE_TAG else key
        files = self._index_files
        is_behind = self._missing_from is not None
        lookup = IndexLookup(
            # Its own hasher: the cached one is used by the appending thread.
            IndexKeyHasher().hash(topic, key),
            min(max_count, self._query_max),
            begin_ms,
            end_ms,
            accept=accept,
        )
        for file in reversed(files):
            # From the newest file on, which answers most look-ups.
            if lookup.is_done:
                break
            if file.covers(begin_ms, end_ms):
                lookup.look_into(file)
        if not lookup.is_complete:
            logger.warning("index look-up stopped at its work limit: topic=%s", topic)
        last = files[-1] if files else None
        return QueryIndexResult(
            lookup.phy_offsets,
            last.end_timestamp_ms if last else 0,
            last.end_phy_offset if last else 0,
            is_complete=lookup.is_complete and not is_behind,
        )

    def flush_full_files(self) -> None:
        """Flush files that became full, and report their end timestamps."""
        with self._flush_lock:
            while self._unflushed_full:
                file = self._unflushed_full[0]
                file.flush()
                file.rest()
                if self._on_file_flushed is not None:
                    # Only after the flush may the checkpoint cover the file.
                    self._on_file_flushed(file.end_phy_offset, file.end_timestamp_ms)
                # Last: a failed flush leaves the file in the list.
                self._unflushed_full.pop(0)

    def flush(self) -> None:
        """Flush every file to disk."""
        self.flush_full_files()
        with self._flush_lock:
            current = self._current
            if current is not None:
                current.flush()

    def close(self) -> None:
        """Flush and unmap every file."""
        self.flush()
        with self._files_lock:
            files, self._index_files, self._current = self._index_files, (), None
            for file in files:
                file.close()

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete leading files that only refer to deleted messages; return how many.

        The last file always stays.
        """
        with self._flush_lock:
            with self._files_lock:
                files = self._index_files
                count = 0
                while count < len(files) - 1 and files[count].end_phy_offset < min_phy_offset:
                    count += 1
                self._index_files = files[count:]
            for file in files[:count]:
                if file in self._unflushed_full:
                    self._unflushed_full.remove(file)
                file.close()
                self._files.remove(self._directory / file.name)
        return count

    def _fall_behind(self, phy_offset: int) -> None:
        self._missing_from = phy_offset
        logger.warning(
            "index stopped, later messages are not found by key: phy_offset=%d", phy_offset
        )

    def _hashes(
        self, topic: str, uniq_key: str | None, keys: str | None, tags: str | None
    ) -> list[int]:
        key_hash = self._hasher.hash
        return [key_hash(topic, key) for key in index_keys(uniq_key, keys, tags)]

    def _put_hashes(self, hashes: list[int], phy_offset: int, store_timestamp_ms: int) -> bool:
        """Put all hashes, rolling as needed; return False if the disk is full."""
        if not hashes:
            return True
        current = self._current
        try:
            if current is None or current.is_full:
                current = self._roll()
            # Indexed before the crash or by the catch-up.
            if phy_offset < current.end_phy_offset:
                return True
            if not current.takes_time(store_timestamp_ms):
                current = self._roll()
            done = current.put(hashes, phy_offset, store_timestamp_ms)
            while done < len(hashes):
                current = self._roll()
                done += current.put(hashes[done:], phy_offset, store_timestamp_ms)
        except _NOT_WRITTEN:
            return False
        return True

    def _roll(self) -> IndexFile:
        full = self._current
        name = self._next_name(full)
        path = self._directory / name
        size_bytes = index_file_bytes(self._max_hash_slots, self._max_index_count)
        file = self._wrap(name, self._files.create(path, size_bytes))
        try:
            file.begin_after(
                full.end_timestamp_ms if full else 0, full.end_phy_offset if full else 0
            )
        except _NOT_WRITTEN:
            file.close()
            self._files.remove(path)
            raise
        if full is not None:
            self._unflushed_full.append(full)
        with self._files_lock:  # retention replaces the tuple on another thread
            self._index_files = (*self._index_files, file)
        self._current = file
        return file

    def _next_name(self, last: IndexFile | None) -> str:
        """Return local time as yyyyMMddHHmmssSSS, but above the last file's name."""
        now_ms = self._clock.time_ms()
        name = f"{time.strftime('%Y%m%d%H%M%S', time.localtime(now_ms // 1000))}{now_ms % 1000:03d}"
        if last is not None and name <= last.name:
            return f"{int(last.name) + 1:0{_NAME_DIGITS}d}"
        return name

    def _names(self) -> list[str]:
        names = self._files.list_files(self._directory)
        return sorted(name for name in names if len(name) == _NAME_DIGITS and name.isdigit())

    def _open(self, name: str, *, may_be_broken: bool) -> IndexFile | None:
        """Open a file; return None if it is damaged and `may_be_broken`."""
        try:
            return self._wrap(name, self._files.open(self._directory / name))
        except StoreFormatError:
            if may_be_broken:
                return None
            raise

    def _wrap(self, name: str, region: Region) -> IndexFile:
        return IndexFile(
            name,
            region,
            max_hash_slots=self._max_hash_slots,
            max_index_count=self._max_index_count,
        )
