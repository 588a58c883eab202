"""The settings in force, and the one door through which they change at run time."""

import threading
from collections.abc import Callable
from dataclasses import fields, replace

from rocketpy.broker.config import BrokerConfig, live_broker_fields
from rocketpy.errors import ConfigError
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig

__all__ = ["ConfigSet"]


class ConfigSet:
    """Holds the current `BrokerConfig` beside the fixed settings of store and server.

    Attributes:
        broker: the broker's settings; replaced as a whole, so read it afresh each time.
        store: the store's settings.
        server: the server's settings.
        version: counts the changes.
    """

    def __init__(
        self, broker: BrokerConfig, store: MessageStoreConfig, server: RemotingServerConfig
    ) -> None:
        self.broker = broker
        self.store = store
        self.server = server
        self.version = 0
        self._lock = threading.Lock()
        self._listeners: list[Callable[[BrokerConfig], None]] = []

    def add_listener(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Call `listener` with the new settings after each change."""
        self._listeners.append(listener)

    def update_broker(self, changes: dict[str, object]) -> None:
        """Change live settings: all of them, or none.

        Args:
            changes: field name (snake case) to typed value.

        Raises:
            ConfigError: a field is unknown, may not change at run time, or is out of range.
        """
        live = live_broker_fields()
        for name in changes:
            if name not in live:
                known = any(part.name == name for part in fields(BrokerConfig))
                reason = "may not change while the broker runs" if known else "no such key"
                raise ConfigError(reason, key=name)
        with self._lock:
            self.broker = replace(self.broker, **changes)  # type: ignore[arg-type] # checked above
            self.version += 1
        for listener in self._listeners:
            listener(self.broker)
