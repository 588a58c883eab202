"""Current settings of a broker, its store and its server; live ones can be changed."""

from collections.abc import Sequence

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import DataVersion
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from rocketpy.store.config import MessageStoreConfig


class LiveBrokerConfig(LiveConfig[BrokerConfig]):
    """Live settings with short names, and with the version that Apache's tools display."""

    def __init__(
        self,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        server: RemotingServerConfig,
        clock: Clock,
        live: LiveSettings | None = None,
        more: Sequence[object] = (),
    ) -> None:
        super().__init__(broker, store, server, *more, live=live)
        self._clock = clock
        self._version = DataVersion(clock.time_ms())
        self.add_listener(lambda _: self._version.bump(self._clock))

    @property
    def data_version(self) -> dict[str, int]:
        """DataVersion of the settings, as JSON."""
        return self._version.to_json()

    @property
    def broker(self) -> BrokerConfig:
        """The broker's own settings; read again at each use, because a change replaces them."""
        return self.current

    @property
    def store(self) -> MessageStoreConfig:
        """The store's settings; read again at each use."""
        return self.get(MessageStoreConfig)

    @property
    def server(self) -> RemotingServerConfig:
        """The server's settings; read again at each use."""
        return self.get(RemotingServerConfig)
