"""Settings of a replica in a group with a controller, and the rules that they have to obey."""

from dataclasses import dataclass, field

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
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
