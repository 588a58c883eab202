"""Requests for routes (105) and for cluster members (106, 901).

Bodies are strict JSON with quoted integer keys and without blanks. Every client accepts that, and
old Go clients, which split the raw text, accept nothing else.

Source: ClientRequestProcessor, DefaultRequestProcessor (5.4.0)
"""

from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.proto.bodies.route import (
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
)
from rocketpy.proto.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
)
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig

_HELP = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class RouteProcessor:
    """Processor of requests for routes.

    Args:
        routes: the tables.
        kv: table with the order configuration of topics.
        settings: the current settings.
        clock: for the wait after the start.
    """

    def __init__(
        self, routes: RouteTable, kv: KvConfig, settings: LiveConfig[NamesrvConfig], clock: Clock
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._started_ms = clock.monotonic_ms()

    def get_route(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC (105)."""
        topic = GetRouteInfoRequestHeader.from_ext(request.ext_fields).topic
        config = self._settings.current
        if self.is_waiting:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.route(topic, acting_master=config.support_acting_master)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{_HELP}"
            return make_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        if config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_NAMESPACE, topic)
        return make_response(request, body=route.encode())

    @property
    def is_waiting(self) -> bool:
        """Whether routes are rejected, because brokers have not had time to register."""
        config = self._settings.current
        passed_ms = self._clock.monotonic_ms() - self._started_ms
        return config.need_wait_for_service and passed_ms < config.wait_seconds_for_service * 1_000

    def get_cluster(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO (106)."""
        clusters = {name: set(brokers) for name, brokers in self._routes.clusters().items()}
        info = ClusterInfo(broker_addr_table=self._routes.brokers(), cluster_addr_table=clusters)
        return make_response(request, body=info.encode())

    def get_members(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_MEMBER_GROUP (901)."""
        header = GetBrokerMemberGroupRequestHeader.from_ext(request.ext_fields)
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._routes.members(header.broker_name),
        )
        return make_response(request, body=GetBrokerMemberGroupResponseBody(group).encode())
