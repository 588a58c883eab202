"""The settings in force, and the one door through which they change at run time."""

import threading
from collections.abc import Callable, Mapping

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.document import DataVersion
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config import ConfigSet
from rocketpy.runtime.live_settings import LiveSettings
from rocketpy.store.config import MessageStoreConfig


class ConfigHolder:
    """Holds the settings of broker, store and server.

    Accepted changes are kept for the next start, where `live` says; None keeps none.

    Attributes:
        current: everything, as key and value; replaced as a whole by `update`.
        broker: the broker's part of it; read it afresh each time.
        store: the store's part of it.
        server: the server's part of it.
    """

    __slots__ = (
        "_clock",
        "_listeners",
        "_live",
        "_lock",
        "_version",
        "broker",
        "current",
        "server",
        "store",
    )

    def __init__(
        self,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        server: RemotingServerConfig,
        clock: Clock,
        live: LiveSettings | None = None,
    ) -> None:
        self._live = live
        self.current = ConfigSet.of(broker, store, server)
        self.broker = broker
        self.store = store
        self.server = server
        self._clock = clock
        self._version = DataVersion(clock.time_ms())
        self._lock = threading.Lock()
        self._listeners: list[Callable[[BrokerConfig], None]] = []

    @property
    def data_version(self) -> dict[str, int]:
        """DataVersion of the settings, as JSON."""
        return self._version.to_json()

    def add_listener(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Call `listener` with the broker's new settings after each change."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str]) -> None:
        """Change settings that may change at run time: all of them, or none.

        Args:
            changes: Apache's key to text.

        Raises:
            ConfigError: a key is unknown or may not change at run time, or a value does not fit.
            OSError: the changes cannot be kept; nothing changed then.
            DiskFullError: the same, for lack of space.
        """
        with self._lock:
            updated = self.current.updated(changes)
            if self._live is not None:
                self._live.add(changes)
            self.current = updated
            self.broker = self.current.get(BrokerConfig)
            self.store = self.current.get(MessageStoreConfig)
            self.server = self.current.get(RemotingServerConfig)
            self._version.bump(self._clock)
        for listener in self._listeners:
            listener(self.broker)
