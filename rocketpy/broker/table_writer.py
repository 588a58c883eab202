"""The thread that brings changed tables to disk, so that no loop waits for it.

It writes as soon as anything changed, all of it together, and what changed meanwhile with the next
write: a slow disk means more changes a write, not more writes.

Source: ConfigManager.persist (5.4.0), which every thread that changes a table does itself.
"""

from collections.abc import Callable
from typing import Any, Final

from rocketpy.broker.persistent_table import PersistentTable

_IDLE_MS: Final = 3_600_000


class TableWriter:
    """Writes tables whenever one of them changed; idle otherwise.

    Args:
        tables: what it writes, in this order.
    """

    name = "TableWriter"

    def __init__(self, *tables: PersistentTable[Any]) -> None:
        self._tables = tables

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Take over the writing; see `rocketpy.runtime.service.WokenService`."""
        for table in self._tables:
            table.use_writer(wake)

    def step(self, now_ms: int) -> int:
        """Write what changed; see `rocketpy.runtime.service.Service.step`."""
        for table in self._tables:
            table.write()
        return now_ms + _IDLE_MS
