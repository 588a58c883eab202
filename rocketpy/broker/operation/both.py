"""Two things that a sender waits for, in whichever order they happen."""

import threading
from collections.abc import Callable

from rocketpy.broker.operation.refusal import Refusal


class Both:
    """Calls back when two things have happened, with the first refusal among them.

    Args:
        done: called once, with a refusal or None, by who reports the second.
    """

    def __init__(self, done: Callable[[Refusal | None], None]) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._missing = 2
        self._refused: Refusal | None = None

    def arrived(self, refused: Refusal | None) -> None:
        """Report one of them; any thread."""
        with self._lock:
            self._missing -= 1
            self._refused = self._refused or refused
            is_last = self._missing == 0
        if is_last:
            self._done(self._refused)
