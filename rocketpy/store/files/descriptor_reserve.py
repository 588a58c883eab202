"""Reserve of file descriptors, so that the store can flush when the process has none left.

A broker shares one descriptor table with its connections. When the table is full, one of the
reserved descriptors is released for the file that has to be opened, and reserved again as soon as
there is room.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.runtime.os_resources import DESCRIPTOR_LIMIT_NAMES

_T = TypeVar("_T")

KEPT_COUNT: Final = 16
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_SHORT: Final = (*_NO_DESCRIPTOR, errno.ENOMEM, errno.EEXIST, errno.EFBIG)
_NO_SPACE_TEXT: Final = "no space is left on the disk"
_CAUSES: Final = {
    errno.ENOSPC: _NO_SPACE_TEXT,
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the limit of file sizes is reached: raise ulimit -f or LimitFSIZE= (systemd)",
    errno.EMFILE: f"no file descriptor is left: raise {DESCRIPTOR_LIMIT_NAMES}",
    errno.ENFILE: "the system has no file descriptor left",
    errno.ENOMEM: "the system grants no more memory or mappings",
}


@contextlib.contextmanager
def shortage_refused(what: str) -> Iterator[None]:
    """Convert a shortage reported by the system into an error that refuses this call only.

    Args:
        what: the attempted action, for the message.

    Raises:
        DiskFullError: ENOSPC, EDQUOT.
        ResourceShortError: EMFILE, ENFILE, ENOMEM, EEXIST, EFBIG.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            cause = shortage_cause(error)
            text = f"no space to {what}" if cause == _NO_SPACE_TEXT else f"cannot {what}: {cause}"
            raise DiskFullError(text) from error
        if error.errno in _SHORT:
            raise ResourceShortError(f"cannot {what}: {shortage_cause(error)}") from error
        raise


def shortage_cause(error: Exception) -> str:
    """Return which resource an error is about, for clients: it names no file of the server."""
    origin = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(origin, OSError):
        return _NO_SPACE_TEXT if isinstance(error, DiskFullError) else "a resource runs short"
    if origin.errno == errno.ENOSPC and _has_no_inode(origin.filename):
        return "no inode is left on the disk: it has too many files"
    return _CAUSES.get(origin.errno or 0) or origin.strerror or type(origin).__name__


def _has_no_inode(path: object) -> bool:
    """Return whether the file system of a file that could not be created has no inode left."""
    if not isinstance(path, (str, Path)):
        return False
    try:
        usage = os.statvfs(Path(path).parent)
    except OSError:
        return False
    # Some file systems have no limit of inodes, and report 0 in all.
    return usage.f_files > 0 and usage.f_favail == 0


class DescriptorReserve:
    """Descriptors of this process that only the store may use. Safe to use from any thread."""

    def __init__(self, count: int = KEPT_COUNT) -> None:
        """Reserve descriptors; fewer if the process has not so many left."""
        self._count = count
        self._kept: list[int] = []
        self._mutex = threading.Lock()
        self.refill()

    def refill(self) -> None:
        """Reserve released descriptors again, as far as there is room."""
        with self._mutex:
            while len(self._kept) < self._count:
                try:
                    self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    # Not an error: the next operation that succeeds tries again.
                    return

    def _give_up_one(self) -> bool:
        with self._mutex:
            if not self._kept:
                return False
            os.close(self._kept.pop())
            return True

    def run(self, operation: Callable[[], _T]) -> _T:
        """Run an operation that needs a few descriptors, releasing reserved ones as needed.

        Raises:
            OSError: from the operation; EMFILE or ENFILE when the reserve is empty.
        """
        while True:
            try:
                result = operation()
            except OSError as error:
                # Ends: each repetition releases one reserved descriptor.
                if error.errno not in _NO_DESCRIPTOR or not self._give_up_one():
                    raise
            else:
                if len(self._kept) < self._count:
                    self.refill()
                return result

    def open(self, path: Path | str, flags: int) -> int:
        """Open a file as `os.open` does, in mode 0644, never inherited by another program.

        Raises:
            OSError: see `run`.
        """
        return self.run(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))


_reserve: DescriptorReserve | None = None
_reserve_mutex = threading.Lock()


def process_reserve() -> DescriptorReserve:
    """Return the reserve of this process: descriptors are counted by process, so there is one."""
    global _reserve  # noqa: PLW0603 - see the docstring
    with _reserve_mutex:
        if _reserve is None:
            _reserve = DescriptorReserve()
        return _reserve
