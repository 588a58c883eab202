"""Adapter of HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG (34, 35, 46).

A heartbeat names all groups of a client. For each consumer group the broker creates the group and
its %RETRY% topic if necessary, stores its subscriptions, and notifies the members of changes (40).

Heartbeat V2: a client with a fingerprint may leave its subscriptions out while the broker knows
them. A broker that does not, as after a restart, answers with IS_SUB_CHANGE.

Source: ClientManageProcessor.java, DefaultConsumerIdsChangeListener.java (5.4.0).
"""

from dataclasses import replace
from typing import Final

import structlog

from rocketpy.broker.clients.client_registry import (
    SCAN_INTERVAL_MS,
    ClientChannel,
    ConsumerGroup,
    ConsumerTable,
    ProducerTable,
    subscription_bytes,
)
from rocketpy.broker.clients.member_notifications import MemberNotifier
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.filters.message_filters import check_expression
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import BadBodyError, ExpressionError
from rocketpy.proto.bodies.heartbeat import (
    CONSUME_ACTIVELY,
    EXT_DIVIDED_GROUPS,
    MODEL_CLUSTERING,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
)
from rocketpy.proto.headers.client import UnregisterClientRequestHeader
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    SUB_ALL,
    SubscriptionData,
    build_subscription,
    is_tag_type,
)
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.proto.wire.fastjson import loads_plain
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import Processor, failed
from rocketpy.runtime.clock import Clock
from rocketpy.sql92.condition import Condition

_log = structlog.get_logger(__name__)

MAX_CLIENT_ID_CHARS: Final = 1_024
MAX_GROUP_CHARS: Final = 255

_UNIT_SUB: Final = 2
_MAX_KIND_CHARS: Final = 64


class ClientManageProcessor:
    """Maintains the tables of connected clients; also the background service that expires them."""

    name = "ClientHousekeeping"

    def __init__(
        self,
        *,
        configs: LiveBrokerConfig,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        producers: ProducerTable,
        consumers: ConsumerTable,
        filters: ConsumerFilters,
        clock: Clock,
    ) -> None:
        self._configs = configs
        self._topics = topics
        self._groups = groups
        self._producers = producers
        self._consumers = consumers
        self._filters = filters
        self._clock = clock
        self._fingerprints: dict[str, int] = {}
        self._notices = MemberNotifier(_tell_member)
        consumers.on_change = self._notify_members

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code, without the heartbeat, which has a separate pool."""
        return {
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | DeferredResponse:
        """Process HEART_BEAT (34); answered when groups and retry topics are on disk.

        Raises:
            BadBodyError: the body is not a heartbeat.
        """
        limit_bytes = self._configs.broker.max_heartbeat_bytes
        if len(request.body) > limit_bytes:
            remark = f"the heartbeat is longer than {limit_bytes} bytes (maxHeartbeatBytes)"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        data = read_heartbeat(request.body)
        client = ClientChannel(
            channel,
            data.client_id,
            request.language,
            request.version,
            self._clock.time_ms(),
            self._clock.monotonic_ms(),
        )
        refusal = self._refusal(client, data)
        if refusal is not None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, refusal)
        sub_changed = False
        names = [entry.group_name for entry in data.consumer_data_set]
        # One write of each file for all new groups of a client, instead of one for each group.
        with self._topics.write_soon(), self._groups.write_soon():
            for entry in data.consumer_data_set:
                if self._take_consumer(client, entry, data):
                    sub_changed = True
            groups = [name for name in names if self._groups.current(name) is not None]
            topics = [RETRY_PREFIX + name for name in groups]
            topics = [topic for topic in topics if self._topics.current(topic) is not None]
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, client)
        response = make_response(
            request,
            ext_fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if sub_changed else "false",
            },
        )
        divided = [
            entry.group_name
            for entry in data.consumer_data_set
            if (found := self._consumers.group(entry.group_name)) is not None and found.is_divided
        ]
        if divided and channel.is_rocketpy:
            response.ext_fields[EXT_DIVIDED_GROUPS] = ",".join(divided)
        return self._when_written(channel, request, response, groups, topics)

    def _when_written(
        self,
        channel: Channel,
        request: RemotingCommand,
        response: RemotingCommand,
        groups: list[str],
        topics: list[str],
    ) -> RemotingCommand | DeferredResponse:
        """Return the response, now or once groups and their retry topics are on disk."""
        if all(map(self._groups.is_written, groups)) and all(map(self._topics.is_written, topics)):
            return response
        deferred = channel.defer(request)

        def answer(failure: Exception | None) -> None:
            if failure is None:
                deferred.set(response)
            else:
                deferred.set(failed(channel, deferred.request, failure))

        def topics_settled(failure: Exception | None) -> None:
            if failure is None:
                self._groups.when_settled(groups, answer)
            else:
                answer(failure)

        self._topics.when_created(topics, topics_settled)
        return deferred

    def unregister(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process UNREGISTER_CLIENT (35): remove a client from one group."""
        header = UnregisterClientRequestHeader.from_ext(request.ext_fields)
        if header.producer_group:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, channel, header.client_id or "")
        return make_response(request)

    def check_config(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process CHECK_CLIENT_CONFIG (46): check whether a subscription is permitted."""
        limit_bytes = self._configs.broker.max_heartbeat_bytes
        if len(request.body) > limit_bytes:
            remark = f"the request is longer than {limit_bytes} bytes (maxHeartbeatBytes)"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        body = CheckClientRequestBody.from_json(loads_plain(request.body or b"{}"))
        subscription = body.subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return make_response(request)
        kind = subscription.expression_type
        if kind != EXPRESSION_SQL92 or not self._configs.broker.enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        try:
            Condition(subscription.sub_string)
        except ExpressionError as error:
            return make_response(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return make_response(request)

    def on_open(self, channel: Channel) -> None:
        """Do nothing: a client is registered by its first heartbeat."""

    def on_idle(self, channel: Channel) -> None:
        """Do nothing: the close that follows is reported as well."""

    def on_close(self, channel: Channel) -> None:
        """Remove the clients of a closed connection."""
        self._producers.forget_channel(channel)
        self._consumers.forget_channel(channel)

    def step(self, now_ms: int) -> int:
        """Remove silent clients; see `rocketpy.runtime.service.Service.step`."""
        oldest_ms = self._clock.monotonic_ms() - self._configs.broker.channel_expired_timeout
        dead = self._producers.expire(oldest_ms) + self._consumers.expire(oldest_ms)
        for channel in dict.fromkeys(dead):
            channel.close("no heartbeat for too long")
        self._consumers.expire_expected(self._clock.monotonic_ms())
        known = {one.name for one in self._consumers.groups()}
        for name in list(self._fingerprints):
            if name not in known:
                self._fingerprints.pop(name, None)
        return now_ms + SCAN_INTERVAL_MS

    def _refusal(self, client: ClientChannel, data: HeartbeatData) -> str | None:
        """Return why the tables have no room for the groups of a client; None when they have."""
        own_bytes = client.size_bytes
        producers = {one.group_name: own_bytes for one in data.producer_data_set}
        consumers = {
            one.group_name: own_bytes + sum(map(subscription_bytes, one.subscription_data_set))
            for one in data.consumer_data_set
        }
        tables: tuple[tuple[ProducerTable | ConsumerTable, dict[str, int]], ...] = (
            (self._producers, producers),
            (self._consumers, consumers),
        )
        for table, sizes in tables:
            if not table.make_room(client.channel, sizes):
                _log.warning(
                    "client rejected: table full", client=client.client_id, groups=len(sizes)
                )
                return (
                    f"too many groups or subscriptions: at most {table.max_per_channel} groups on "
                    f"one connection, {table.max_members} members in all"
                )
        return None

    def _take_consumer(
        self, client: ClientChannel, entry: ConsumerData, data: HeartbeatData
    ) -> bool:
        group = self._groups.get_or_create(entry.group_name)
        if group is None:
            return False
        name = group.group_name
        config = self._configs.broker
        if config.reject_pull_consumer_enable and entry.consume_type == CONSUME_ACTIVELY:
            return False
        if group.retry_queue_nums > 0:
            self._topics.create_on_send_back(
                RETRY_PREFIX + name,
                group.retry_queue_nums,
                topic_sys_flag=_UNIT_SUB if entry.unit_mode else 0,
            )
        members = self._consumers.group(name)
        self._consumers.register(
            name,
            client,
            None if data.without_sub else entry.subscription_data_set,
            consume_type=entry.consume_type or "",
            message_model=entry.message_model or MODEL_CLUSTERING,
            consume_from_where=entry.consume_from_where or "",
        )
        if not data.without_sub:
            self._filters.register(name, entry.subscription_data_set)
        fingerprint = data.heartbeat_fingerprint
        if not fingerprint:
            return False
        known = self._fingerprints.get(name)
        self._fingerprints[name] = fingerprint
        if data.without_sub:
            return members is None or not members.subscriptions or known != fingerprint
        return known is not None and known != fingerprint

    def _notify_members(self, group: ConsumerGroup) -> None:
        if not group.clients():
            self._filters.unregister(group.name)
        config = self._configs.broker
        if group.is_broadcast or not config.notify_consumer_ids_changed_enable:
            return
        settings = self._groups.get(group.name)
        if settings is not None and not settings.notify_consumer_ids_changed_enable:
            return
        self._notices.add(group)


def _tell_member(channel: Channel, group: str) -> None:
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    channel.invoke_oneway(make_request(code, {"consumerGroup": group}, oneway=True))


def read_heartbeat(body: bytes) -> HeartbeatData:
    """Parse a heartbeat, and bound the texts that are kept of it.

    Groups with names that are too long are left out; so are unknown kinds that are too long.

    Raises:
        BadBodyError: it is not a heartbeat, or a client id or an expression is too long.
    """
    data = HeartbeatData.from_json(loads_plain(body))
    if not data.client_id:
        raise BadBodyError("heartbeat without clientID")
    if len(data.client_id) > MAX_CLIENT_ID_CHARS:
        raise BadBodyError(f"the clientID has more than {MAX_CLIENT_ID_CHARS} characters")
    data.producer_data_set = [one for one in data.producer_data_set if _is_name(one.group_name)]
    data.consumer_data_set = [one for one in data.consumer_data_set if _is_name(one.group_name)]
    for entry in data.consumer_data_set:
        entry.consume_type = _kind(entry.consume_type)
        entry.message_model = _kind(entry.message_model)
        entry.consume_from_where = _kind(entry.consume_from_where)
        entry.subscription_data_set = [
            complete_subscription(one) for one in entry.subscription_data_set
        ]
    return data


def complete_subscription(sent: SubscriptionData) -> SubscriptionData:
    """Complete a subscription with the tags and codes of its expression, if the client sent none.

    Raises:
        BadBodyError: it has no topic, or its expression is too long or has no tag.
    """
    if not sent.topic:
        raise BadBodyError("subscription without topic")
    try:
        check_expression(sent.sub_string)
        if is_tag_type(sent.expression_type) and not sent.code_set and not sent.tags_set:
            return build_subscription(sent.topic, sent.sub_string, sub_version=sent.sub_version)
    except ValueError as error:
        raise BadBodyError(f"subscription of {sent.topic[:255]}: {error}") from None
    # An unknown kind is as unknown when it is truncated.
    kind = sent.expression_type and sent.expression_type[:_MAX_KIND_CHARS]
    return replace(sent, sub_string=sent.sub_string or SUB_ALL, expression_type=kind)


def _is_name(group: str) -> bool:
    return 0 < len(group) <= MAX_GROUP_CHARS


def _kind(text: str | None) -> str | None:
    return text if text is not None and len(text) <= _MAX_KIND_CHARS else None
