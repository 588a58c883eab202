"""Gate of a service that delivers due messages: it runs only at a master or an acting master.

A service starts again from the persisted progress each time it may run. `is_idle` is true between
the end of one such time and the start of the next, so that the progress can be read.
"""

import threading
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from rocketpy.runtime.service import Service, connect

_CLOSED_MS: Final = 200
"""Pause between two checks whether the service may run."""


@runtime_checkable
class Restarted(Service, Protocol):
    """Service that reads its progress again when it starts to run."""

    def restart(self) -> None:
        """Read the progress."""
        ...


@runtime_checkable
class Ended(Service, Protocol):
    """Service that writes its progress when it ceases to run."""

    def end(self) -> None:
        """Write the progress, and close files."""
        ...


class GatedService:
    """Gate that runs a service while it is allowed to.

    Args:
        service: the service.
        may_run: returns whether it may run; callable on any thread.
    """

    def __init__(self, service: Service, may_run: Callable[[], bool]) -> None:
        self.name: str = service.name
        self._service = service
        self._may_run = may_run
        self._lock = threading.Lock()
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        """Whether the last run has ended; false when the service runs, or is about to end."""
        with self._lock:
            return not self._is_running

    def use_wake(self, wake: Callable[[], None]) -> None:
        """See `rocketpy.runtime.service.WokenService.use_wake`."""
        connect(self._service, wake)

    def step(self, now_ms: int) -> int:
        """Run a step of the service, if it may; see `rocketpy.runtime.service.Service.step`."""
        with self._lock:
            if not self._may_run():
                if self._is_running:
                    self._is_running = False
                    if isinstance(self._service, Ended):
                        self._service.end()
                return now_ms + _CLOSED_MS
            if not self._is_running:
                if isinstance(self._service, Restarted):
                    self._service.restart()
                self._is_running = True
            return self._service.step(now_ms)
