"""The log is brought into memory before a consumer that is far behind reads it.

Such a consumer reads records through the mapping that have been on disk only for long. Each page
that is missing holds up the thread that touches it, and with it everybody that it serves; the
system's own guess comes late, and reads around the page instead of behind it. A queue's records lie
in the log in order: so when a read comes into a piece of the log, that piece and the next are asked
for at once, on a thread of their own.

Space and the next file of the commit log, made before they are needed.

Source: AllocateMappedFileService (5.4.0).
"""

import collections
import logging
import threading
from collections.abc import Callable
from typing import Final

from rocketpy.errors import ResourceShortError
from rocketpy.store.commit_log.commit_log import CommitLog

PIECE_BYTES: Final = 4 << 20
RECENT_BYTES: Final = 64 << 20
"""The end of the log is in memory: it was just written."""
_MAX_KNOWN: Final = 64
_INTERVAL_MS: Final = 60_000


class LogPrefetcher:
    """Hears of reads, on any thread, and has what follows read from the disk.

    Args:
        log: what is read.

    Attributes:
        wake: called when there is something to do.
    """

    name: Final = "ColdReadsService"

    def __init__(self, log: CommitLog) -> None:
        self.wake: Callable[[], None] = _nothing
        self._log = log
        self._lock = threading.Lock()
        self._known: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._wanted: collections.deque[int] = collections.deque(maxlen=_MAX_KNOWN)

    def expect(self, phy_offset: int) -> None:
        """Hear that a read begins at a physical offset."""
        piece = phy_offset // PIECE_BYTES
        if piece in self._known or phy_offset >= self._log.max_phy_offset - RECENT_BYTES:
            return
        with self._lock:
            self._known[piece] = None
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
            self._wanted.append(piece)
        self.wake()

    def step(self, now_ms: int) -> int:
        """Ask the system for what is wanted; see `rocketpy.runtime.service.Service.step`."""
        with self._lock:
            wanted = [*self._wanted]
            self._wanted.clear()
        for piece in wanted:
            self._read(piece * PIECE_BYTES, (piece + 2) * PIECE_BYTES)
        return now_ms + _INTERVAL_MS

    def _read(self, start: int, end: int) -> None:
        for file in self._log.files:
            first, last = max(start, file.base_offset), min(end, file.end_offset)
            if first < last:
                file.region.read_ahead(first - file.base_offset, last - file.base_offset)


def _nothing() -> None:
    """Nobody waits to be woken."""


logger: logging.Logger = logging.getLogger(__name__)


class AllocateService:
    """Keeps space and the next file ready, so that appending does not wait for them."""

    name: Final = "AllocateService"

    def __init__(self, log: CommitLog, *, interval_ms: int = 1_000) -> None:
        self._log = log
        self._interval_ms = interval_ms

    def step(self, now_ms: int) -> int:
        """Prepare what the next appends need; see `rocketpy.runtime.service.Service.step`."""
        try:
            self._log.prepare()
        except ResourceShortError:
            logger.debug("no space to allocate ahead")
        return now_ms + self._interval_ms
