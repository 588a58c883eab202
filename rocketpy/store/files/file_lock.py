"""Locks of files and directories that exclude other processes of the machine.

The store directory has the lock of Apache: a POSIX record lock of the first byte of a file. It does
not exclude the same process, so a set of paths does. The log may be outside of the store directory,
and a file in its own directory would keep Apache's broker from starting; there the directory itself
is locked, which leaves nothing behind.

Source: MessageStore's `lock` file in DefaultMessageStore (5.4.0)
"""

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Final

from rocketpy.errors import StoreError, StoreLockedError
from rocketpy.store.files.descriptor_reserve import DescriptorReserve

_FLOCK: Final = struct.Struct("hhqqi0q")  # type, whence, start, length, pid
_LOCKED: Final = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK})

_locked_here: set[Path] = set()
_locked_mutex = threading.Lock()


class _RecordLock:
    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with _locked_mutex:
                _locked_here.discard(self._path)


class _DirectoryLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            # Explicitly, because a forked child may have the same open file.
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1


def lock_file(path: Path, reserve: DescriptorReserve) -> _RecordLock:
    """Lock the first byte of a file, and write `lock` into it as Apache does.

    Args:
        path: without symbolic links; created if it is missing.
        reserve: opens the file.

    Raises:
        StoreLockedError: another process, or this one, has the lock.
        StoreError: the file cannot be opened or locked.
    """
    with _locked_mutex:
        if path in _locked_here:  # opening it again is wrong: closing would release the lock
            raise StoreLockedError(f"this process uses the store already: {path}")
        _locked_here.add(path)
    fd = -1
    try:
        fd = reserve.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        holder = _holder(fd)
        if fd >= 0:
            os.close(fd)
        with _locked_mutex:
            _locked_here.discard(path)
        if fd >= 0 and error.errno in _LOCKED:
            text = f"another process{holder} uses the store: {path} is locked"
            raise StoreLockedError(text) from error
        what = "opened; it must be a file this user may write" if fd < 0 else "locked"
        raise StoreError(f"{path} cannot be {what}: {error.strerror}") from error
    os.pwrite(fd, b"lock", 0)
    return _RecordLock(fd, path)


def lock_directory(path: Path, reserve: DescriptorReserve) -> _DirectoryLock:
    """Lock a directory against other stores, of this process as well.

    A file system that cannot lock directories, such as NFS, does without.

    Args:
        path: an existing directory.
        reserve: opens it.

    Raises:
        StoreLockedError: another store has the lock.
        OSError: it cannot be opened.
    """
    fd = reserve.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            os.close(fd)
            text = f"another store uses the commit log: {path} is locked; check storePathCommitLog"
            raise StoreLockedError(text) from error
    return _DirectoryLock(fd)


def _holder(fd: int) -> str:
    """Return the process that locks the first byte of a file, as words; empty when unknown."""
    if fd < 0 or not sys.platform.startswith("linux"):
        return ""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[4]
    except OSError:
        return ""
    # 0 or -1 is a process of another machine or another pid namespace.
    return f" (pid {pid})" if pid > 0 else ""
