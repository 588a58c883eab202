"""What may still change or refuse a message between its admission and the store.

A sequence, in the order in which it is applied. A plain message (an ordinary topic, no property
with a meaning to the broker) passes none of them. What gives a message another topic belongs here:
a delay, a timer, a half message, a retry that became a dead letter.

Source: HookUtils, SendMessageProcessor.handleRetryAndDLQ (5.4.0).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.scheduling import refuse_later_in_batch
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.errors import StoreError
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TRANSACTION_PREPARED,
    encode_properties,
)
from rocketpy.proto.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.results import PutMessage

PutTransform: TypeAlias = Callable[[PutMessage, dict[str, str], SendRequest], Refusal | None]
"""Changes a message in place, or refuses it; given its properties and what the sender asked.

One that changes the properties changes the dictionary, which the next one gets, and encodes it
into the message.
"""

DLQ_QUEUE_NUMS: Final = 1


def refuse_in_batch(properties: Mapping[str, str]) -> Refusal | None:
    """Refuse what a message of a batch, or the batch, must not ask for.

    Args:
        properties: of the batch, or of one of its messages.
    """
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be transactional")
    return refuse_later_in_batch(properties)


class RetryRedirect:
    """Sends a retried message to the dead letters of its group after the last try.

    A group that consumes in order sends nothing to its retry topic before the last try.

    Args:
        topics: where the dead letters' topic is made.
        groups: say how often a message is tried.
        is_ordered: whether a group consumes in order now.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        is_ordered: Callable[[str], bool],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._is_ordered = is_ordered

    def __call__(
        self, message: PutMessage, properties: dict[str, str], request: SendRequest
    ) -> Refusal | None:
        """See `PutTransform`."""
        topic = message.topic
        if not topic.startswith(RETRY_PREFIX):
            return None
        group_name = topic[len(RETRY_PREFIX) :]
        try:
            group = self._groups.get_or_create(group_name)
            if group is None:
                remark = f"subscription group not exist, {group_name}"
                return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            limit = request.max_reconsume_times
            if limit is None:
                limit = group.retry_max_times
            if message.reconsume_times > limit or self._is_ordered(group_name):
                dead_letters = DLQ_PREFIX + group_name
                self._topics.create_on_send_back(dead_letters, DLQ_QUEUE_NUMS)
                message.topic, message.queue_id = dead_letters, 0
                properties[PROPERTY_DELAY_TIME_LEVEL] = "-1"
                message.properties = encode_properties(properties)
        except (StoreError, OSError) as error:
            remark = f"service not available now. {error}"
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        return None
