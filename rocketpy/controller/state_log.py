"""Durable log of a controller's events: the interface, and the local file.

`controller.log` is a file of fixed size that begins as zeros. A record is::

    4 B magic | u32 length | u32 CRC-32 of the rest | u64 sequence number | events as MessagePack

The first record holds a snapshot. A record is on disk before the request that led to it is
answered, and only one is written at a time. So a crash can leave at most one incomplete record,
at the end, which the next start removes. A record that is damaged although valid ones follow it
stops the start: what it acknowledged is lost, and an election without it could lose messages.

A full file is replaced by one that begins with a snapshot: write beside, sync, rename, sync.

`stateId` has a random id, made with a new log: brokers follow no controller with another one.
"""

import asyncio
import secrets
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import structlog

from rocketpy.controller.events import AnyEvent, GroupStored, decode_events, encode_events
from rocketpy.controller.replica_groups import ReplicaGroups
from rocketpy.errors import (
    DiskFullError,
    ResourceShortError,
    StoreFormatError,
    StoreReadOnlyError,
)
from rocketpy.store.files.store_files import FileLock, PlainFile, StoreFiles

_logger = structlog.get_logger(__name__)

LOG_NAME: Final = "controller.log"
ID_NAME: Final = "stateId"
FILE_BYTES: Final = 4 * 1024 * 1024
_MAGIC: Final = b"RPC1"
_HEADER: Final = struct.Struct(">4sIIQ")
_SEQUENCE: Final = struct.Struct(">Q")
_ALIGNMENT_BYTES: Final = 4_096
_ID_BYTES: Final = 16


def new_state_id() -> str:
    """Return a random id of a state."""
    return secrets.token_hex(_ID_BYTES)


class StateLog(Protocol):
    """Durable log of events."""

    @property
    def state_id(self) -> str:
        """Id of the state, made with it; empty before `load`, and if it cannot be stored."""
        ...

    async def load(self) -> Sequence[AnyEvent]:
        """Take possession of the log, and return the events that lead to its state.

        Raises:
            StoreError: it cannot be used.
        """
        ...

    async def append(self, events: Sequence[AnyEvent]) -> None:
        """Return when the events are durable.

        Raises:
            ResourceShortError: nothing was stored; a later call may succeed.
            StoreReadOnlyError: it is unknown whether they were stored; a restart reads the log.
        """
        ...

    async def close(self) -> None:
        """Release the log."""
        ...


class LocalStateLog:
    """Log in a directory of this machine; files are used on another thread.

    Args:
        directory: of the log.
        files: the file system.
        file_bytes: size of a new file.
    """

    def __init__(self, directory: Path, files: StoreFiles, *, file_bytes: int = FILE_BYTES) -> None:
        self._file = StateFile(directory, files, file_bytes=file_bytes)

    @property
    def state_id(self) -> str:
        """See `StateLog.state_id`."""
        return self._file.state_id

    async def load(self) -> Sequence[AnyEvent]:
        """See `StateLog.load`."""
        return await asyncio.to_thread(self._file.load)

    async def append(self, events: Sequence[AnyEvent]) -> None:
        """See `StateLog.append`."""
        await asyncio.to_thread(self._file.append, events)

    async def close(self) -> None:
        """See `StateLog.close`."""
        await asyncio.to_thread(self._file.close)


class StateFile:
    """The file of a local log; one call at a time.

    Args:
        directory: of the file; created if it does not exist.
        files: the file system.
        file_bytes: size of a new file, if its snapshot leaves half of that free.
        new_id: returns a random id.

    Attributes:
        state_id: see `StateLog.state_id`.
    """

    def __init__(
        self,
        directory: Path,
        files: StoreFiles,
        *,
        file_bytes: int = FILE_BYTES,
        new_id: Callable[[], str] = new_state_id,
    ) -> None:
        self.state_id: str = ""
        self._new_id = new_id
        self._directory = directory
        self._path = directory / LOG_NAME
        self._files = files
        self._file_bytes = file_bytes
        # State after the last record, for snapshots.
        self._groups = ReplicaGroups()
        self._lock: FileLock | None = None
        self._file: PlainFile | None = None
        self._size_bytes = 0
        self._end = 0
        self._sequence = 0

    def load(self) -> Sequence[GroupStored]:
        """See `StateLog.load`."""
        self._refuse_dledger()
        lock = self._files.lock(self._directory / "lock")
        try:
            has_log = self._files.exists(self._path)
            if has_log:
                self._open()
            # An empty log is another state: its brokers have other ids.
            self.state_id = (self._read_id() if has_log else "") or self._make_id()
            if not has_log:
                self._replace(0)
        except BaseException:
            self._close_file()
            lock.close()
            raise
        self._lock = lock
        return self._groups.snapshot()

    def append(self, events: Sequence[AnyEvent]) -> None:
        """See `StateLog.append`."""
        if self._file is None:
            raise StoreReadOnlyError(f"{self._path}: a write has failed: restart the controller")
        record = _record(self._sequence + 1, events)
        try:
            if self._end + len(record) > self._size_bytes:
                self._replace(len(record))
                record = _record(self._sequence + 1, events)
            self._write(record)
        except (ResourceShortError, StoreReadOnlyError):
            raise
        except OSError as error:
            self._close_file()
            reason = f"{self._path}: {error.strerror or error}: restart the controller"
            raise StoreReadOnlyError(reason) from error
        self._sequence += 1
        self._end += len(record)
        self._groups.apply(events)

    def close(self) -> None:
        """See `StateLog.close`."""
        self._close_file()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _write(self, record: bytes) -> None:
        assert self._file is not None, "append checks it"
        try:
            self._file.write(self._end, record)
        except DiskFullError:
            # A part of it may be written, and a shorter record could follow.
            self._file.erase(self._end, self._end + len(record))
            raise
        self._file.flush()

    def _open(self) -> None:
        data = self._files.read_bytes(self._path)
        self._size_bytes = len(data)
        self._file = self._files.open_file(self._path)
        position = 0
        while (record := self._record_at(data, position)) is not None:
            sequence, events, end = record
            self._groups.apply(events)
            self._sequence, position = sequence, end
        if not position:
            raise StoreFormatError(
                f"{self._path} has no valid snapshot: restore it from a backup, or remove it and "
                "the brokerIdentity file of every broker, which then join as new ones"
            )
        self._end = position
        is_torn = self._file.erase(position, len(data))
        # A killed process may have left records and the name of the file in memory only.
        self._file.flush()
        self._files.touch_directory(self._directory)
        self._files.sync_directories()
        if is_torn:
            _logger.warning("incomplete record removed", path=str(self._path), position=position)

    def _record_at(self, data: bytes, position: int) -> tuple[int, Sequence[AnyEvent], int] | None:
        """Return sequence number, events and end of a record; None at the end of the log.

        Raises:
            StoreFormatError: a record is damaged that is not the last one.
        """
        expected = self._sequence + 1 if position else None
        content = _content_at(data, position)
        if content is not None and expected in {None, content[0]}:
            sequence, payload, end = content
            try:
                return sequence, decode_events(payload), end
            except ValueError as error:
                raise StoreFormatError(
                    f"{self._path}, position {position}: events of another version: {error}"
                ) from error
        later = position
        while (later := data.find(_MAGIC, later + 1)) >= 0:
            if _content_at(data, later) is not None:
                raise StoreFormatError(
                    f"{self._path}, position {position}: a record is damaged, and another one "
                    f"follows at {later}: restore the file from a backup"
                )
        return None

    def _replace(self, room_bytes: int) -> None:
        """Write a new file that begins with a snapshot, and use it.

        Args:
            room_bytes: room that it must have behind the snapshot.
        """
        snapshot = self._groups.snapshot()
        record = _record(self._sequence + 1, snapshot)
        needed = 2 * len(record) + room_bytes
        size_bytes = max(self._file_bytes, needed + -needed % _ALIGNMENT_BYTES)
        beside = self._path.with_name(LOG_NAME + ".tmp")
        file = self._files.create_file(beside, size_bytes)
        try:
            # With all of its space: a full disk must not stop elections until the next file.
            file.write(0, record.ljust(size_bytes, b"\0"))
            file.flush()
            self._close_file()
            self._files.rename(beside, self._path)
            self._files.sync_directories()
        except BaseException:
            file.close()
            raise
        self._file, self._size_bytes = file, size_bytes
        self._sequence += 1
        self._end = len(record)

    def _read_id(self) -> str:
        path = self._directory / ID_NAME
        if not self._files.exists(path):
            return ""
        text = self._files.read_bytes(path).decode("ascii", "replace").strip()
        if len(text) != 2 * _ID_BYTES or not text.isalnum():
            raise StoreFormatError(f"{path} is damaged: restore it from a backup")
        return text

    def _make_id(self) -> str:
        made, path = self._new_id(), self._directory / ID_NAME
        beside = path.with_name(ID_NAME + ".tmp")
        try:
            self._files.write_bytes(beside, made.encode())
            self._files.rename(beside, path)
            self._files.sync_directories()
        except ResourceShortError as error:
            if not self._files.exists(self._path):
                raise
            # A log of an earlier version: its brokers have followed it without one.
            _logger.error("state id not written", path=str(path), error=str(error))  # noqa: TRY400
            return ""
        return made

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _refuse_dledger(self) -> None:
        """Refuse the directory of Apache's controller, whose state would be missing."""
        if self._files.exists(self._path):
            return
        for name in self._files.list_directories(self._directory):
            if name.startswith("dledger") or name == "raft_meta":
                raise StoreFormatError(
                    f"{self._directory / name}: the state of Apache's controller is here, which "
                    "RocketPy cannot read: use another controllerStorePath, and remove the "
                    "brokerIdentity file of every broker, which then join as new ones"
                )


def _record(sequence: int, events: Sequence[AnyEvent]) -> bytes:
    rest = _SEQUENCE.pack(sequence) + encode_events(events)
    length = _HEADER.size + len(rest) - _SEQUENCE.size
    return _HEADER.pack(_MAGIC, length, zlib.crc32(rest), sequence) + rest[_SEQUENCE.size :]


def _content_at(data: bytes, position: int) -> tuple[int, memoryview, int] | None:
    """Return sequence number, payload and end of a record; None if it is not valid."""
    if position + _HEADER.size > len(data):
        return None
    magic, length, crc, sequence = _HEADER.unpack_from(data, position)
    end = position + length
    if magic != _MAGIC or length < _HEADER.size or end > len(data):
        return None
    checked = memoryview(data)[position + _HEADER.size - _SEQUENCE.size : end]
    if zlib.crc32(checked) != crc:
        return None
    return sequence, checked[_SEQUENCE.size :], end
