"""Log file with rotation by size; imported only by a process that writes one."""

import contextlib
import errno
import logging
import os
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path


class LogFileHandler(RotatingFileHandler):
    """Handler of a log file: `PATH`, then `PATH.1` (the newest old one) and so on.

    A file that cannot be written costs lines, never the server. It is reported on standard error
    once, not with each line. After another program renamed or removed the file (logrotate), the
    next line begins a new one.

    Args:
        path: the file; its directory must exist.
        size_bytes: size from which the file is renamed and a new one begun.
        backups: number of old files that are kept, at least 1.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, size_bytes: int, backups: int) -> None:
        super().__init__(path, maxBytes=size_bytes, backupCount=backups, encoding="utf-8")
        self._failed_count = 0
        self._is_failing = False
        self._remove_surplus()

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        if not path.is_fifo():
            return super()._open()
        try:
            # Otherwise a named pipe would be opened only when it has a reader.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            raise OSError(error.errno, "a named pipe without a reader", str(path)) from error
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "w", encoding="utf-8")

    def _remove_surplus(self) -> None:
        """Remove old files beyond the number kept: an earlier process may have kept more."""
        number = self.backupCount + 1
        # Only without a gap: PATH.20261127 is not a file of this handler.
        with contextlib.suppress(OSError):
            while True:
                Path(f"{self.baseFilename}.{number}").unlink()
                number += 1

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        failed_before = self._failed_count
        self._leave_moved_file()
        super().emit(record)
        if self._failed_count == failed_before:
            self._is_failing = False

    def _leave_moved_file(self) -> None:
        """Close the file when its path names another one, or none; the next line opens the path."""
        if self.stream is None:
            return
        try:
            found = Path(self.baseFilename).stat()
        except FileNotFoundError:
            found = None
        except OSError:  # a write reports it
            return
        if found is not None and os.path.samestat(found, os.fstat(self.stream.fileno())):
            return
        if sys.stderr is not None:
            sys.stderr.write(f"log file moved or removed, begun again: {self.baseFilename}\n")
        self.stream.close()
        # The base class opens it again. An assignment would redefine the type of its attribute.
        vars(self)["stream"] = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's name
        """Report a failure, unless the last line failed as well."""
        self._failed_count += 1
        if not self._is_failing and sys.stderr is not None:
            self._is_failing = True
            reason = sys.exception()
            sys.stderr.write(f"log file not written: {self.baseFilename}: {reason}\n")
