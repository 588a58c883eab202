"""Space and the next file of the commit log, made before they are needed.

Source: AllocateMappedFileService (5.4.0).
"""

import logging
from typing import Final

from rocketpy.errors import ResourceShortError
from rocketpy.store.commit_log import CommitLog

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
