"""Administrative requests for topics: lists, deletion, write permission.

(205, 206, 216, 224, 304, 311, 312, 313, 327.)

Source: DefaultRequestProcessor (5.4.0)
"""

from collections.abc import Callable
from typing import Final

import structlog

from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.cooperative_work import LongWork
from rocketpy.namesrv.repeated_bodies import RepeatedBodies
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.proto.bodies.topic import TopicList
from rocketpy.proto.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Response
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.service import Steps

_logger = structlog.get_logger(__name__)

# TopicSysFlag
_UNIT: Final = 1
_UNIT_SUB: Final = 2


class TopicProcessor:
    """Processor of requests that list and change topics in the routes.

    Args:
        routes: the tables.
        settings: the current settings.
        repeats: forgets bodies of registrations when a topic is deleted.
    """

    def __init__(
        self, routes: RouteTable, settings: LiveConfig[NamesrvConfig], repeats: RepeatedBodies
    ) -> None:
        self._repeats = repeats
        self._routes = routes
        self._settings = settings
        self._work = LongWork()

    def list_all(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        if not self._settings.current.enable_all_topic_list:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "disable")
        return _response(request, self._routes.topics())

    def list_of_cluster(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER (224)."""
        cluster = GetTopicsByClusterRequestHeader.from_ext(request.ext_fields).cluster
        return self._listed(request, lambda: self._routes.topics_of_cluster(cluster))

    def list_system(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS (304): names of clusters and brokers, and one address."""
        names: list[str] = []
        for cluster, brokers in self._routes.clusters().items():
            names += [cluster, *brokers]
        addresses = [
            address
            for broker in self._routes.brokers().values()
            for _, address in sorted(broker.broker_addrs.items())
        ]
        return _response(request, names, addresses[0] if addresses else None)

    def list_unit(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST (311)."""
        return self._by_flag(request, lambda flag: bool(flag & _UNIT))

    def list_unit_sub(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_TOPIC_LIST (312)."""
        return self._by_flag(request, lambda flag: bool(flag & _UNIT_SUB))

    def list_unit_sub_ununit(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""
        return self._by_flag(request, lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)

    def _by_flag(self, request: RemotingCommand, matches: Callable[[int], bool]) -> RemotingCommand:
        return self._listed(request, lambda: self._routes.topics_by_flag(matches))

    def _listed(self, request: RemotingCommand, names: Callable[[], list[str]]) -> RemotingCommand:
        if not self._settings.current.enable_topic_list:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "disable")
        return _response(request, names())

    def delete(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV (216): it is removed until a broker registers it again."""
        header = DeleteTopicFromNamesrvRequestHeader.from_ext(request.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        self._repeats.forget_all()
        _logger.info("topic deleted", topic=header.topic[:300], cluster=header.cluster_name)
        return make_response(request)

    def wipe_write_perm(self, channel: Channel, request: RemotingCommand) -> Response:
        """WIPE_WRITE_PERM_OF_BROKER (205); many topics change in steps."""
        name = WipeWritePermOfBrokerRequestHeader.from_ext(request.ext_fields).broker_name
        is_long = self._routes.serves_many(name)
        return self._work.do(channel, self._wipe(name, request), is_long=is_long)

    def _wipe(self, name: str, request: RemotingCommand) -> Steps[RemotingCommand]:
        count = yield from self._routes.wipe_write_perm(name)
        _logger.info("write permission wiped", broker=name[:300], topics=count)
        response = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return make_response(request, ext_fields=response.to_ext())

    def add_write_perm(self, channel: Channel, request: RemotingCommand) -> Response:
        """ADD_WRITE_PERM_OF_BROKER (327); many topics change in steps."""
        name = AddWritePermOfBrokerRequestHeader.from_ext(request.ext_fields).broker_name
        is_long = self._routes.serves_many(name)
        return self._work.do(channel, self._add(name, request), is_long=is_long)

    def _add(self, name: str, request: RemotingCommand) -> Steps[RemotingCommand]:
        count = yield from self._routes.add_write_perm(name)
        _logger.info("write permission added", broker=name[:300], topics=count)
        response = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return make_response(request, ext_fields=response.to_ext())


def _response(
    request: RemotingCommand, names: list[str], broker_addr: str | None = None
) -> RemotingCommand:
    body = TopicList(topic_list=set(names), broker_addr=broker_addr).encode()
    return make_response(request, body=body)
