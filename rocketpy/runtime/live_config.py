"""The settings in force, and the one door through which they change while a server runs."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from rocketpy.runtime.config import ConfigSet
from rocketpy.runtime.live_settings import LiveSettings

T = TypeVar("T")
U = TypeVar("U")


class LiveConfig(Generic[T]):
    """Holds a server's own configuration and those of its parts; safe from any thread.

    Args:
        config: the server's own configuration, a dataclass.
        parts: more of them, whose keys may be changed in the same way.
        live: where accepted changes are kept for the next start; None keeps none.

    Attributes:
        current: the server's own configuration; read it afresh each time.
    """

    def __init__(
        self,
        config: T,
        *parts: Any,  # noqa: ANN401 - dataclasses of any kind
        live: LiveSettings | None = None,
    ) -> None:
        self.current: T = config
        self._class: type[T] = type(config)
        self._all = ConfigSet.of(config, *parts)  # type: ignore[arg-type] # a dataclass
        self._live = live
        self._lock = threading.Lock()
        self._listeners: list[Callable[[T], None]] = []

    @property
    def live_keys(self) -> frozenset[str]:
        """The keys that may change while running."""
        return self._all.live_keys()

    def get(self, config_class: type[U]) -> U:
        """Return the configuration of a part; read it afresh each time."""
        return self._all.get(config_class)

    def as_properties(self) -> str:
        """Return everything in force as sorted ``key=value`` lines, secrets hidden."""
        return self._all.as_properties()

    def add_listener(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the server's new configuration after each change."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str]) -> None:
        """Change settings: all of them, or none; they are kept for the next start.

        Args:
            changes: key to text.

        Raises:
            ConfigError: a key is unknown or may not change at run time, or a value does not fit.
            OSError: the changes cannot be kept; nothing changed then.
            DiskFullError: the same, for lack of space.
        """
        with self._lock:
            updated = self._all.updated(changes)
            if self._live is not None:
                self._live.add(changes)
            self._all = updated
            self.current = updated.get(self._class)
        for listener in self._listeners:
            listener(self.current)
