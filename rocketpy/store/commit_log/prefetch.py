"""Prefetching of the commit log: for lagging consumers, and of space for appends.

A consumer far behind reads records through the mapping that are no longer in the page cache. Each
missing page blocks the thread that touches it, and all clients of that thread. Kernel read-ahead
starts late and is centred on the page; consumers need the bytes that follow. Records of a queue lie
in the log in order, so a read in one piece of the log prefetches that piece and the next one, on a
separate thread.

`AllocateService` allocates space and creates the next file before appends need them.

Source: AllocateMappedFileService (5.4.0).
"""

import collections
import logging
import threading
from collections.abc import Callable
from typing import Final

from rocketpy.errors import ResourceShortError
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.write_gate import WriteGate

PIECE_BYTES: Final = 4 << 20
RECENT_BYTES: Final = 64 << 20
"""The last bytes of the log were just written and are in the page cache."""
_MAX_KNOWN: Final = 64
_INTERVAL_MS: Final = 60_000


class LogPrefetcher:
    """Prefetches the bytes after a read; notified of reads from any thread.

    Args:
        log: the log to prefetch.

    Attributes:
        wake: called when there is work.
    """

    name: Final = "ColdReadsService"

    def __init__(self, log: CommitLog) -> None:
        self.wake: Callable[[], None] = _nothing
        self._log = log
        self._lock = threading.Lock()
        self._known: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._wanted: collections.deque[int] = collections.deque(maxlen=_MAX_KNOWN)

    def expect(self, phy_offset: int) -> None:
        """Note that a read starts at a physical offset."""
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
        """Prefetch the noted ranges; see `rocketpy.runtime.service.Service.step`."""
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
    """Default of `wake`."""


logger: logging.Logger = logging.getLogger(__name__)


class AllocateService:
    """Allocates space and the next file ahead, so that appends do not wait for them."""

    name: Final = "AllocateService"

    def __init__(self, log: CommitLog, gate: WriteGate, *, interval_ms: int = 1_000) -> None:
        self._log = log
        self._gate = gate
        self._interval_ms = interval_ms

    def step(self, now_ms: int) -> int:
        """Allocate for the next appends; see `rocketpy.runtime.service.Service.step`."""
        for work in (self._log.prepare, self._end_shortage):
            try:
                work()
            except (ResourceShortError, OSError) as error:
                logger.debug("allocation ahead failed: reason=%s", error)
        return now_ms + self._interval_ms

    def _end_shortage(self) -> None:
        """Try a refused allocation again: a broker that is not ready may get no sends that do."""
        if self._gate.shortage is not None:
            self._log.allocate_refused()
            self._gate.resource_found()
