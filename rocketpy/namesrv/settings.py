"""The name server's settings in force, and the one door through which they change."""

import threading
from collections.abc import Callable, Mapping

from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config import ConfigSet
from rocketpy.runtime.live_settings import LiveSettings


class NamesrvSettings:
    """Holds the current `NamesrvConfig`; read it afresh each time.

    Args:
        config: the settings at start.
        live: where accepted changes are kept for the next start; None keeps none.
    """

    def __init__(self, config: NamesrvConfig, live: LiveSettings | None = None) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._set = ConfigSet.of(config)
        self._listeners: list[Callable[[NamesrvConfig], None]] = []
        self.current = config

    @property
    def live_keys(self) -> frozenset[str]:
        """The keys that may change while running."""
        return self._set.live_keys()

    def add_listener(self, listener: Callable[[NamesrvConfig], None]) -> None:
        """Call ``listener`` with the new settings after each change."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str]) -> None:
        """Change settings: all of them, or none; they are kept for the next start.

        Raises:
            ConfigError: a key that may not change, or a value that does not fit.
            OSError: the changes cannot be kept; nothing changed then.
        """
        with self._lock:
            updated = self._set.updated(changes)
            if self._live is not None:
                self._live.add(changes)
            self._set = updated
            self.current = self._set.get(NamesrvConfig)
        for listener in self._listeners:
            listener(self.current)

    def as_properties(self) -> str:
        """Return everything in force as sorted ``key=value`` lines, secrets hidden."""
        return self._set.as_properties()
