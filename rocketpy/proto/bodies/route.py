"""Bodies for routes of topics and members of clusters.

Source: TopicRouteData, BrokerData, QueueData, ClusterInfo, BrokerMemberGroup of 5.4.0.
"""

from dataclasses import field

from rocketpy.proto.wire.json_body import Body, body

MASTER_ID = 0
"""The broker id of a master."""


@body
class QueueData(Body):
    """Queues of a topic on one broker name.

    Attributes:
        perm: permission bits, see `rocketpy.proto.perm`.
    """

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


@body
class BrokerData(Body):
    """Brokers with the same name: a master (id 0) and its slaves.

    Attributes:
        broker_addrs: broker id to `ip:port`.
    """

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_addr(self) -> str | None:
        """Address of the master, or None."""
        return self.broker_addrs.get(MASTER_ID)


@body
class TopicRouteData(Body):
    """Response to 105: route of a topic.

    Attributes:
        order_topic_conf: `broker-a:4;broker-b:4` for a globally ordered topic.
        topic_queue_mapping_by_broker: of static topics, passed through.
    """

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, object] | None = None


@body
class ClusterInfo(Body):
    """Response to 106: all brokers, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, set[str]] = field(default_factory=dict)


@body
class BrokerMemberGroup(Body):
    """Brokers with the same name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


@body
class GetBrokerMemberGroupResponseBody(Body):
    """Response to 901."""

    broker_member_group: BrokerMemberGroup | None = None
