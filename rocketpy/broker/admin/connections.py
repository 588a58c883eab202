"""Connected clients, and the groups and topics they use.

Source: `AdminBrokerProcessor` (getConsumerConnectionList, getProducerConnectionList,
getAllProducerInfo, queryTopicConsumeByWho, queryTopicsByConsumer, querySubscriptionByConsumer)
(5.4.0).
"""

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable, ProducerTable
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.proto.bodies.heartbeat import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from rocketpy.proto.bodies.topic import TopicList
from rocketpy.proto.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketpy.proto.headers.topic import (
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from rocketpy.proto.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor


class ConnectionAdmin:
    """Admin requests about connected clients."""

    def __init__(
        self,
        *,
        consumers: ConsumerTable,
        identity: BrokerIdentity,
        offsets: ConsumerOffsets,
        producers: ProducerTable,
    ) -> None:
        self._consumers = consumers
        self._identity = identity
        self._offsets = offsets
        self._producers = producers

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def consumers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the members of a consumer group (203)."""
        header = GetConsumerConnectionListRequestHeader.from_ext(request.ext_fields)
        name = header.consumer_group
        group = self._consumers.group(name)
        if group is None:
            remark = f"the consumer group[{name}] not online"
            return refuse(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return ok(
            request,
            ConsumerConnection(
                [_connection(client) for client in group.clients()],
                group.subscriptions,
                group.consume_type,
                group.message_model,
                group.consume_from_where,
            ),
        )

    def producers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the members of a producer group (204)."""
        header = GetProducerConnectionListRequestHeader.from_ext(request.ext_fields)
        name = header.producer_group
        clients = self._producers.clients(name)
        if not clients:
            remark = f"the producer group[{name}] not exist"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        return ok(request, ProducerConnection([_connection(client) for client in clients]))

    def all_producers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return all producer groups with their members (328)."""
        data = {
            group: [
                ProducerInfo(
                    client_id=client.client_id,
                    # Java prints an address with the slash of an unresolved host name.
                    remote_ip=f"/{client.channel.remote_address}",
                    language=language_name(client.language),
                    version=client.version,
                    last_update_timestamp=client.last_update_ms,
                )
                for client in clients
            ]
            for group, clients in self._producers.groups().items()
        }
        return ok(request, ProducerTableInfo(data))

    def groups_of_topic(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the groups that subscribe to a topic or have an offset in it (300)."""
        topic = QueryTopicConsumeByWhoRequestHeader.from_ext(request.ext_fields).topic
        online = self._consumers.groups_of_topic(topic)
        return ok(request, GroupList(online | self._offsets.groups_of_topic(topic)))

    def topics_of_group(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the topics that a group has an offset in (343)."""
        group = QueryTopicsByConsumerRequestHeader.from_ext(request.ext_fields).group
        topics = self._offsets.topics_of_group(group)
        return ok(request, TopicList(topics, self._identity.address))

    def subscription(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the subscription of a group to a topic (345)."""
        header = QuerySubscriptionByConsumerRequestHeader.from_ext(request.ext_fields)
        found = self._consumers.subscription(header.group, header.topic)
        return ok(request, QuerySubscriptionResponseBody(found, header.group, header.topic))


def language_name(language: int) -> str:
    """Return the name of a language code; OTHER for an unknown one."""
    try:
        return LanguageCode(language).name
    except ValueError:
        return LanguageCode.OTHER.name


def _connection(client: ClientChannel) -> Connection:
    return Connection(
        client_id=client.client_id,
        client_addr=client.channel.remote_address,
        language=language_name(client.language),
        version=client.version,
    )
