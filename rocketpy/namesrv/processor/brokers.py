"""Requests of brokers: registration, heartbeat, version query, leaving (103, 104, 322, 904, 217).

Source: DefaultRequestProcessor (5.4.0)
"""

from collections.abc import Callable

import structlog

from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.cooperative_work import LongWork
from rocketpy.namesrv.holder_check import HolderCheck
from rocketpy.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from rocketpy.namesrv.names import is_topic
from rocketpy.namesrv.notifier import MinBrokerNotifier
from rocketpy.namesrv.registration import (
    RegisteredTopics,
    Registration,
    body_matches,
    is_compressed,
    read_topics,
)
from rocketpy.namesrv.repeated_bodies import RepeatedBodies
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.namesrv.route_types import BrokerKey, RegisterOutcome, RegisterResult
from rocketpy.proto.bodies.route import MASTER_ID, TopicRouteData
from rocketpy.proto.bodies.topic import DataVersion, KVTable
from rocketpy.proto.headers.namesrv import (
    NO_ROUTES_REMARK,
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Response
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.service import Steps

_logger = structlog.get_logger(__name__)

_DEFAULT_TIMEOUT_MS = 120_000
_MIN_TIMEOUT_MS, _MAX_TIMEOUT_MS = 1_000, 3_600_000
_LONG_BODY_BYTES = 64 * 1024
_FAILED = frozenset(
    {RegisterOutcome.NOT_YET_REGISTERED, RegisterOutcome.FULL, RegisterOutcome.OVERTAKEN}
)


class BrokerProcessor:
    """Processor of requests of brokers.

    Args:
        routes: the tables.
        kv: order configuration for responses to registrations.
        settings: the current settings.
        notifier: notifies brokers of changes of the lowest id of their set.
        clock: time of the last request of a broker.
        holders: asks the first of two brokers with one name and id for a sign of life.
        repeats: recognises registrations that say nothing new.
    """

    def __init__(
        self,
        routes: RouteTable,
        kv: KvConfig,
        settings: LiveConfig[NamesrvConfig],
        notifier: MinBrokerNotifier,
        clock: Clock,
        holders: HolderCheck,
        *,
        repeats: RepeatedBodies,
    ) -> None:
        self._repeats = repeats
        self._routes = routes
        self._kv = kv
        self._holders = holders
        self._settings = settings
        self._notifier = notifier
        self._clock = clock
        self._work = LongWork()

    def register(self, channel: Channel, request: RemotingCommand) -> Response:
        """REGISTER_BROKER (103); long ones are applied in steps."""
        is_long = len(request.body) > _LONG_BODY_BYTES or is_compressed(request.body)
        return self._work.do(channel, self._register(channel, request), is_long=is_long)

    def _register(self, channel: Channel, request: RemotingCommand) -> Steps[RemotingCommand]:
        header = RegisterBrokerRequestHeader.from_ext(request.ext_fields)
        if not body_matches(request.body, header.body_crc32 or 0):
            return make_response(request, ResponseCode.SYSTEM_ERROR, "crc32 not match")
        key, body, version = _key_of(header), request.body, request.version
        known = self._routes.data_version(key) if _may_repeat(header) else None
        repeated = self._repeats.find(key, channel, body, version, known)
        topics = repeated
        if topics is None:
            topics = yield from read_topics(body, version)
        registration = _registration(header, topics)
        problem = registration.problem()
        if problem is not None:
            _logger.warning("registration rejected", peer=channel.remote_address, reason=problem)
            return make_response(request, ResponseCode.SYSTEM_ERROR, problem)
        result = yield from self._routes.register_in_steps(
            registration,
            channel,
            self._clock.monotonic_ms(),
            delete_missing=(
                repeated is None and self._settings.current.delete_topic_with_broker_registration
            ),
        )
        if repeated is None:
            self._note_applied(key, channel, request, topics, result)
        if not channel.is_open:  # the connection has closed, so its broker would never be removed
            self._routes.connection_closed(channel)
            take_over(self._routes, self._notifier)
        _log(registration, result)
        if result.outcome is RegisterOutcome.WAITING:
            self._holders.begin(result.holder)
        if result.outcome in _FAILED:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "register broker failed")
        if result.min_change is not None:
            self._notifier.notify(result.min_change)
        response = RegisterBrokerResponseHeader(
            ha_server_addr=result.ha_address or None, master_addr=result.master_address or None
        )
        # Apache's brokers ignore the remark of a successful response.
        return make_response(
            request,
            remark=_rival_remark(registration, result),
            ext_fields=response.to_ext(),
            body=self._order_configuration(),
        )

    def _note_applied(
        self,
        key: BrokerKey,
        channel: Channel,
        request: RemotingCommand,
        topics: RegisteredTopics,
        result: RegisterResult,
    ) -> None:
        if result.outcome is RegisterOutcome.OK and not result.dropped_topics:
            self._repeats.note(key, channel, request.body, request.version, topics)
        else:
            self._repeats.forget(key)

    def _order_configuration(self) -> bytes:
        if not self._settings.current.return_order_topic_config_to_broker:
            return b""
        values = self._kv.namespace(ORDER_TOPIC_NAMESPACE)
        return b"" if values is None else KVTable(table=values).encode()

    def unregister(self, channel: Channel, request: RemotingCommand) -> Response:
        """UNREGISTER_BROKER (104)."""
        return self._work.do(channel, _at_once(self._unregister, request))

    def _unregister(self, request: RemotingCommand) -> RemotingCommand:
        header = UnRegisterBrokerRequestHeader.from_ext(request.ext_fields)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        change = self._routes.unregister(key, header.broker_name)
        _logger.info("broker left", broker=header.broker_name[:300], address=key.address[:300])
        if change is not None:
            self._notifier.notify(change)
        take_over(self._routes, self._notifier)
        return make_response(request)

    def query_data_version(self, channel: Channel, request: RemotingCommand) -> Response:
        """QUERY_DATA_VERSION (322): whether the broker has to register again."""
        return self._work.do(channel, _at_once(self._query_data_version, request))

    def _query_data_version(self, request: RemotingCommand) -> RemotingCommand:
        header = QueryDataVersionRequestHeader.from_ext(request.ext_fields)
        theirs = DataVersion.decode_request(request.body)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        ours = self._routes.data_version(key)
        self._routes.touch(key, self._clock.monotonic_ms())
        return make_response(
            request,
            ext_fields=QueryDataVersionResponseHeader(changed=ours != theirs).to_ext(),
            body=b"" if ours is None else ours.encode(),
        )

    def heartbeat(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """BROKER_HEARTBEAT (904)."""
        header = BrokerHeartbeatRequestHeader.from_ext(request.ext_fields)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        self._routes.touch(key, self._clock.monotonic_ms())
        return make_response(request)

    def register_topic(self, channel: Channel, request: RemotingCommand) -> Response:
        """REGISTER_TOPIC_IN_NAMESRV (217): one new topic of a broker."""
        return self._work.do(channel, _at_once(self._register_topic, request))

    def _register_topic(self, request: RemotingCommand) -> RemotingCommand:
        topic = RegisterTopicRequestHeader.from_ext(request.ext_fields).topic
        route = TopicRouteData.decode_request(request.body)
        if not is_topic(topic):
            return make_response(request, ResponseCode.SYSTEM_ERROR, "topic is not a name")
        if not self._routes.register_topic(topic, route.queue_datas):
            _logger.warning("topic registration rejected", topic=topic)
        return make_response(request)


def _at_once(
    work: Callable[[RemotingCommand], RemotingCommand], request: RemotingCommand
) -> Steps[RemotingCommand]:
    """Run a short request after earlier ones of the same connection."""
    yield from ()
    return work(request)


def _key_of(header: RegisterBrokerRequestHeader) -> BrokerKey:
    return BrokerKey(header.cluster_name, header.broker_addr)


def _may_repeat(header: RegisterBrokerRequestHeader) -> bool:
    """Return whether a registration has no effect on routes when its body has not changed.

    That of a slave has one when its master has left: it may act as master from then on.
    """
    return header.broker_id == MASTER_ID and not header.enable_acting_master


def _registration(header: RegisterBrokerRequestHeader, topics: RegisteredTopics) -> Registration:
    timeout_ms = header.heartbeat_timeout_millis or _DEFAULT_TIMEOUT_MS
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        zone_name=(header.zone_name or "")[:300] or None,
        timeout_ms=max(_MIN_TIMEOUT_MS, min(timeout_ms, _MAX_TIMEOUT_MS)),
        enable_acting_master=header.enable_acting_master,
        data_version=topics.data_version,
        topics=topics.topics,
        filter_servers=topics.filter_servers,
        mappings=topics.mappings,
        refused=topics.refused,
    )


def take_over(routes: RouteTable, notifier: MinBrokerNotifier) -> None:
    """Apply the registrations that waited for a broker that has left."""
    for registration, result in routes.take_over():
        _logger.warning(
            "second broker took over",
            broker=registration.broker_name,
            id=registration.broker_id,
            address=registration.address,
            topics=len(registration.topics),
        )
        if result.min_change is not None:
            notifier.notify(result.min_change)


def _rival_remark(registration: Registration, result: RegisterResult) -> str | None:
    """Return the text for a broker that shares its name and id with another live one."""
    if not result.rival:
        return None
    if result.rival == registration.address:
        return (
            f"another process registers with the address {result.rival} as well: check brokerIP1 "
            "and listenPort of both"
        )
    effect = NO_ROUTES_REMARK
    if result.outcome is RegisterOutcome.OK:
        effect = "this broker keeps its routes, and the other one has none"
    return (
        f"brokerName {registration.broker_name} with brokerId {registration.broker_id} "
        f"is also registered by {result.rival}: {effect}"
    )


def _log(registration: Registration, result: RegisterResult) -> None:
    """Log new or invalid registrations, but not the repetitions every 30 s."""
    names = {
        "broker": registration.broker_name,
        "id": registration.broker_id,
        "address": registration.address,
    }
    if result.outcome is RegisterOutcome.WAITING:
        if result.is_new:
            _logger.warning(
                "broker name conflict: a second live broker has the same name and id, and no "
                "routes until the first one leaves",
                **names,
                first=result.rival,
                cluster=registration.cluster,
            )
    elif result.outcome is not RegisterOutcome.OK:
        _logger.warning("registration rejected", **names, reason=result.outcome.value)
    elif result.is_new:
        _logger.info(
            "broker registered",
            **names,
            cluster=registration.cluster,
            topics=len(registration.topics),
        )
    if result.rival == registration.address:
        _logger.warning("broker name conflict: two processes register one address", **names)
    if registration.refused or result.dropped_topics:
        _logger.warning(
            "topics rejected",
            **names,
            bad_names=registration.refused,
            no_room=result.dropped_topics,
        )
