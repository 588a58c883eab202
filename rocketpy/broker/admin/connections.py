"""Who is connected, and who consumes what.

Source: `AdminBrokerProcessor` (getConsumerConnectionList, getProducerConnectionList,
getAllProducerInfo, queryTopicConsumeByWho, queryTopicsByConsumer, querySubscriptionByConsumer)
(5.4.0).
"""

from typing import Any

from rocketpy.broker.admin.fields import ok, refuse, required
from rocketpy.broker.consumer_offsets import ConsumerOffsets
from rocketpy.broker.identity import BrokerIdentity
from rocketpy.broker.registry import ClientChannel, ConsumerTable, ProducerTable
from rocketpy.proto.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor


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
        """Request code to processor."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def consumers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """The members of a consumer group (203)."""
        name = required(request, "consumerGroup")
        group = self._consumers.group(name)
        if group is None:
            remark = f"the consumer group[{name}] not online"
            return refuse(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return ok(
            request,
            {
                "connectionSet": [_connection(client) for client in group.clients()],
                "consumeFromWhere": group.consume_from_where,
                "consumeType": group.consume_type,
                "messageModel": group.message_model,
                "subscriptionTable": {
                    topic: subscription_json(one) for topic, one in group.subscriptions.items()
                },
            },
        )

    def producers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """The members of a producer group (204)."""
        name = required(request, "producerGroup")
        clients = self._producers.clients(name)
        if not clients:
            remark = f"the producer group[{name}] not exist"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        return ok(request, {"connectionSet": [_connection(client) for client in clients]})

    def all_producers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Every producer group with its members (328)."""
        data = {
            group: [
                {
                    "clientId": client.client_id,
                    "language": language_name(client.language),
                    "lastUpdateTimestamp": client.last_update_ms,
                    # Java prints an address with the slash of an unresolved host name.
                    "remoteIP": f"/{client.channel.remote_address}",
                    "version": client.version,
                }
                for client in clients
            ]
            for group, clients in self._producers.groups().items()
        }
        return ok(request, {"data": data})

    def groups_of_topic(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Groups that subscribe to a topic now or have an offset in it (300)."""
        topic = required(request, "topic")
        online = self._consumers.groups_of_topic(topic)
        return ok(request, {"groupList": sorted(online | self._offsets.groups_of_topic(topic))})

    def topics_of_group(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Topics that a group has an offset in (343)."""
        topics = self._offsets.topics_of_group(required(request, "group"))
        return ok(request, {"brokerAddr": self._identity.address, "topicList": sorted(topics)})

    def subscription(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """What a group subscribes to in a topic (345)."""
        group, topic = required(request, "group"), required(request, "topic")
        value: dict[str, Any] = {"group": group, "topic": topic}
        found = self._consumers.subscription(group, topic)
        if found is not None:
            value["subscriptionData"] = subscription_json(found)
        return ok(request, value)


def subscription_json(subscription: SubscriptionData) -> dict[str, Any]:
    """A subscription as it stands in JSON bodies."""
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.code_set),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": sorted(subscription.tags_set),
        "topic": subscription.topic,
    }


def language_name(language: int) -> str:
    """The name of a language code; OTHER for one that nobody knows."""
    try:
        return LanguageCode(language).name
    except ValueError:
        return LanguageCode.OTHER.name


def _connection(client: ClientChannel) -> dict[str, Any]:
    return {
        "clientAddr": client.channel.remote_address,
        "clientId": client.client_id,
        "language": language_name(client.language),
        "version": client.version,
    }
