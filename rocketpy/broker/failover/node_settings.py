"""Settings of a replica in a group with a controller, and the rules that they have to obey."""

from dataclasses import dataclass, field, replace

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.errors import ConfigError
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Settings of a replica.

    Attributes:
        broker: settings of its brokers; brokerId is given by the controller.
        store: settings of the store; brokerRole follows from the election.
        failover: settings of fail-over.
        replication: settings of replication.
        server: settings of the remoting server.
        client: settings of the connections to name servers and controllers.
    """

    broker: BrokerConfig
    store: MessageStoreConfig
    failover: FailoverConfig
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    server: RemotingServerConfig = field(default_factory=RemotingServerConfig)
    client: RemotingClientConfig = field(default_factory=RemotingClientConfig)

    def following(self, configs: LiveBrokerConfig) -> "NodeSettings":
        """Return these settings with the live changes of a broker, for the next one.

        Args:
            configs: settings of the broker that stops.
        """
        replication = replace(self.replication, config=configs.get(ReplicationConfig))
        return replace(
            self,
            broker=replace(configs.broker, broker_id=self.broker.broker_id),
            store=replace(configs.store, broker_role=self.store.broker_role),
            server=configs.server,
            replication=replication,
        )

    def min_in_sync(self, configs: LiveBrokerConfig | None) -> int:
        """Return minInSyncReplicas, which is live.

        Args:
            configs: settings of the running broker, if there is one.
        """
        replication = self.replication.config
        current = replication if configs is None else configs.get(ReplicationConfig)
        return current.min_in_sync_replicas

    def check(self) -> None:
        """Check combinations.

        Raises:
            ConfigError: two settings contradict each other; the key is named.
        """
        if not self.replication.config.allows_slaves:
            reason = (
                "needs replicationSecretFile, haTlsEnable or haAllowedPeers, by which the replicas "
                "know each other"
            )
            raise ConfigError(reason, key="enableControllerMode")
        names = {
            "brokerClusterName": self.broker.broker_cluster_name,
            "brokerName": self.broker.broker_name,
        }
        for key, name in names.items():
            if "#" in name:
                reason = "must not contain # with a controller: brokerIdentity has it between names"
                raise ConfigError(reason, key=key)
        if not self.broker.listen_port:
            reason = "must not be 0 with a controller: other replicas know this one by its address"
            raise ConfigError(reason, key="listenPort")
        if self.broker.enable_slave_acting_master:
            reason = "excludes enableControllerMode: a controller replaces a lost master"
            raise ConfigError(reason, key="enableSlaveActingMaster")
