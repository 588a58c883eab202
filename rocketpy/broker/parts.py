"""What a broker is made of, for those who need many of its parts (the admin requests)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.config_holder import ConfigHolder
from rocketpy.broker.consumer_offsets import ConsumerOffsets
from rocketpy.broker.identity import BrokerIdentity
from rocketpy.broker.long_polling import PullRequestHold
from rocketpy.broker.name_server import NameServerLink
from rocketpy.broker.queue_locks import QueueLocks
from rocketpy.broker.registry import ConsumerTable, ProducerTable
from rocketpy.broker.stats import BrokerStats
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topics import TopicTable
from rocketpy.remoting.business import BusinessPool
from rocketpy.runtime.clock import Clock
from rocketpy.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of one running broker.

    Attributes:
        configs: the settings in force; `ConfigHolder.update` changes live ones.
        identity: names and addresses of this broker.
        start_ms: wall time of the start.
        store: the message store.
        topics: topic table.
        groups: subscription group table.
        offsets: consumer offsets.
        producers: connected producers.
        consumers: connected consumers.
        locks: queue locks of orderly consumers.
        stats: counters.
        name_servers: registration with the name servers.
        holds: parked pulls.
        clock: time.
        pools: business pools by kind of request, as Apache's keys begin: send, pull, litePull,
            query, ack, endTransaction; kinds that run inline may be missing.
    """

    configs: ConfigHolder
    identity: BrokerIdentity
    start_ms: int
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    producers: ProducerTable
    consumers: ConsumerTable
    locks: QueueLocks
    stats: BrokerStats
    name_servers: NameServerLink
    holds: PullRequestHold
    clock: Clock
    pools: Mapping[str, BusinessPool] = field(default_factory=dict)

    @property
    def config(self) -> BrokerConfig:
        """The broker's own settings in force."""
        return self.configs.broker

    @property
    def address(self) -> str:
        """``host:port`` as told to clients; empty until the broker listens."""
        return self.identity.address
