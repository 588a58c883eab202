"""HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG (34, 35, 46), and what follows from them.

A heartbeat names every group of a client. For each consumer group the broker makes sure that
the group and its %RETRY% topic exist, keeps its subscriptions, and tells the other members
when something changed (40).

Heartbeat V2: a client with a fingerprint may leave its subscriptions out while the broker knows
them; a broker which does not (it restarted) says so with IS_SUB_CHANGE.

Source: ClientManageProcessor.java, DefaultConsumerIdsChangeListener.java (5.4.0).
"""

from typing import Any, Final

from rocketpy.broker.config_holder import ConfigHolder
from rocketpy.broker.document import as_int, as_table
from rocketpy.broker.registry import (
    SCAN_INTERVAL_MS,
    ClientChannel,
    ConsumerGroup,
    ConsumerTable,
    ProducerTable,
)
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topics import TopicTable
from rocketpy.errors import BadBodyError
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_request, make_response
from rocketpy.proto.fastjson import loads_plain
from rocketpy.proto.headers.client import UnregisterClientRequestHeader
from rocketpy.proto.subscription import (
    EXPRESSION_TAG,
    SubscriptionData,
    build_subscription,
    is_tag_type,
)
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor
from rocketpy.runtime.clock import Clock

__all__ = ["ClientManageProcessor", "read_subscription"]

_UNIT_SUB: Final = 2


class ClientManageProcessor:
    """Keeps the tables of connected clients. Also a background service: see `step`."""

    name = "ClientHousekeeping"

    def __init__(
        self,
        *,
        configs: ConfigHolder,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        producers: ProducerTable,
        consumers: ConsumerTable,
        clock: Clock,
    ) -> None:
        self._configs = configs
        self._topics = topics
        self._groups = groups
        self._producers = producers
        self._consumers = consumers
        self._clock = clock
        self._fingerprints: dict[str, int] = {}
        consumers.on_change = self._notify_members

    @property
    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """34: a client is there, with these groups.

        Raises:
            BadBodyError: the body is no heartbeat.
        """
        table = as_table(loads_plain(request.body))
        client_id = table.get("clientID")
        if not isinstance(client_id, str) or not client_id:
            raise BadBodyError("heartbeat without clientID")
        client = ClientChannel(
            channel, client_id, request.language, request.version, self._clock.time_ms()
        )
        fingerprint = as_int(table.get("heartbeatFingerprint"), 0)
        without_sub = table.get("withoutSub") is True
        sub_changed = False
        # A client with many new groups costs one write of each file, not one a group.
        with self._topics.one_write(), self._groups.one_write():
            for entry in _list(table.get("consumerDataSet")):
                group = as_table(entry)
                if self._take_consumer(client, group, fingerprint, without_sub=without_sub):
                    sub_changed = True
        for entry in _list(table.get("producerDataSet")):
            name = as_table(entry).get("groupName")
            if isinstance(name, str) and name:
                self._producers.register(name, client)
        return make_response(
            request,
            ext_fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if sub_changed else "false",
            },
        )

    def unregister(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """35: a client says good-bye for one producer or consumer group."""
        header = UnregisterClientRequestHeader.from_ext(request.ext_fields)
        if header.producer_group:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, channel)
        return make_response(request)

    def check_config(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """46: may this subscription be used here."""
        body = as_table(loads_plain(request.body)) if request.body else {}
        kind = as_table(body.get("subscriptionData")).get("expressionType")
        if kind is None or is_tag_type(str(kind)):
            return make_response(request)
        return make_response(
            request,
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}",
        )

    def on_open(self, channel: Channel) -> None:
        """Nothing to do: a client counts from its first heartbeat."""

    def on_idle(self, channel: Channel) -> None:
        """Nothing to do: the close that follows is reported too."""

    def on_close(self, channel: Channel) -> None:
        """Forget the clients of a closed connection."""
        self._producers.forget_channel(channel)
        self._consumers.forget_channel(channel)

    def step(self, now_ms: int) -> int:
        """Forget silent clients; see `rocketpy.runtime.service.Service.step`."""
        oldest_ms = self._clock.time_ms() - self._configs.broker.channel_expired_timeout
        dead = self._producers.expire(oldest_ms) + self._consumers.expire(oldest_ms)
        for channel in dict.fromkeys(dead):
            channel.close("no heartbeat for too long")
        known = {one.name for one in self._consumers.groups()}
        for name in list(self._fingerprints):
            if name not in known:
                self._fingerprints.pop(name, None)
        return now_ms + SCAN_INTERVAL_MS

    def _take_consumer(
        self, client: ClientChannel, entry: dict[str, Any], fingerprint: int, *, without_sub: bool
    ) -> bool:
        name = entry.get("groupName")
        group = self._groups.get_or_create(name) if isinstance(name, str) else None
        if group is None:
            return False
        name = group.group_name
        config = self._configs.broker
        if config.reject_pull_consumer_enable and entry.get("consumeType") == "CONSUME_ACTIVELY":
            return False
        if group.retry_queue_nums > 0:
            sys_flag = _UNIT_SUB if entry.get("unitMode") is True else 0
            self._topics.create_on_send_back(
                RETRY_PREFIX + name, group.retry_queue_nums, topic_sys_flag=sys_flag
            )
        members = self._consumers.group(name)
        subscriptions = None
        if not without_sub:
            listed = _list(entry.get("subscriptionDataSet"))
            subscriptions = [read_subscription(as_table(one)) for one in listed]
        self._consumers.register(
            name,
            client,
            subscriptions,
            consume_type=str(entry.get("consumeType") or ""),
            message_model=str(entry.get("messageModel") or "CLUSTERING"),
            consume_from_where=str(entry.get("consumeFromWhere") or ""),
        )
        if not fingerprint:
            return False
        known = self._fingerprints.get(name)
        self._fingerprints[name] = fingerprint
        if without_sub:
            return members is None or not members.subscriptions or known != fingerprint
        return known is not None and known != fingerprint

    def _notify_members(self, group: ConsumerGroup) -> None:
        config = self._configs.broker
        if group.is_broadcast or not config.notify_consumer_ids_changed_enable:
            return
        settings = self._groups.get(group.name)
        if settings is not None and not settings.notify_consumer_ids_changed_enable:
            return
        for client in group.clients():
            client.channel.invoke_oneway(
                make_request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    {"consumerGroup": group.name},
                    oneway=True,
                )
            )


def read_subscription(table: dict[str, Any]) -> SubscriptionData:
    """Read one subscription of a heartbeat.

    Raises:
        BadBodyError: it has no topic.
    """
    topic = table.get("topic")
    if not isinstance(topic, str) or not topic:
        raise BadBodyError("subscription without topic")
    expression = str(table.get("subString") or "*")
    kind = str(table.get("expressionType") or EXPRESSION_TAG)
    version = as_int(table.get("subVersion"), 0)
    codes = {one for one in _list(table.get("codeSet")) if isinstance(one, int)}
    tags = {str(one) for one in _list(table.get("tagsSet"))}
    if is_tag_type(kind) and not codes and not tags:
        try:
            return build_subscription(topic, expression, kind, sub_version=version)
        except ValueError as error:
            raise BadBodyError(f"subscription of {topic}: {error}") from None
    return SubscriptionData(
        topic,
        expression,
        tags,
        codes,
        version,
        kind,
        class_filter_mode=table.get("classFilterMode") is True,
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
