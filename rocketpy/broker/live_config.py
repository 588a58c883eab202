"""The settings of a broker in force: its own, its store's, its server's."""

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import DataVersion
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from rocketpy.store.config import MessageStoreConfig


class LiveBrokerConfig(LiveConfig[BrokerConfig]):
    """What `LiveConfig` does, by short names and with the version that Apache's tools show."""

    def __init__(
        self,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        server: RemotingServerConfig,
        clock: Clock,
        live: LiveSettings | None = None,
    ) -> None:
        super().__init__(broker, store, server, live=live)
        self._clock = clock
        self._version = DataVersion(clock.time_ms())
        self.add_listener(lambda _: self._version.bump(self._clock))

    @property
    def data_version(self) -> dict[str, int]:
        """DataVersion of the settings, as JSON."""
        return self._version.to_json()

    @property
    def broker(self) -> BrokerConfig:
        """The broker's own settings; read them afresh each time."""
        return self.current

    @property
    def store(self) -> MessageStoreConfig:
        """The store's settings; read them afresh each time."""
        return self.get(MessageStoreConfig)

    @property
    def server(self) -> RemotingServerConfig:
        """The server's settings; read them afresh each time."""
        return self.get(RemotingServerConfig)
