"""Flush service of the timer's files.

Source: TimerMessageStore.TimerFlushService, TimerLog cleaning (5.4.0).
"""

from typing import Final

import structlog

from rocketpy.broker.timer.service import TimerService
from rocketpy.broker.timer.store_protocol import TimerStore
from rocketpy.errors import StoreError
from rocketpy.store.timer.state import TimerState

_log = structlog.get_logger(__name__)


class TimerFlush:
    """Background service that flushes the timer's files and deletes old ones.

    Args:
        timer: the timer; its progress goes into the checkpoint.
        state: the files.
        store: start of the commit log, which decides which files are obsolete.
        interval_ms: pause between two flushes.
    """

    name = "TimerFlush"
    _CLEAN_MS: Final = 30_000

    def __init__(
        self, timer: TimerService, state: TimerState, store: TimerStore, interval_ms: int
    ) -> None:
        self._timer = timer
        self._state = state
        self._store = store
        self._interval_ms = interval_ms
        self._clean_ms = 0

    def step(self, now_ms: int) -> int:
        """Flush; see `rocketpy.runtime.service.Service.step`."""
        try:
            self._state.flush(self._timer.progress)
        except (StoreError, OSError) as error:
            _log.error("timer flush failed", error=str(error))
        if now_ms >= self._clean_ms:
            self._clean_ms = now_ms + self._CLEAN_MS
            with self._state.lock:
                self._state.remove_before(self._store.min_phy_offset)
        return now_ms + self._interval_ms
