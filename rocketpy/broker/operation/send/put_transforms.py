"""Transforms that may change or refuse a message between admission and store.

They are a sequence, applied in order. A plain message (ordinary topic, no property with a meaning
to the broker) skips them. Everything that redirects a message to another topic is a transform:
delay levels, the timer, half messages, and retries that become dead letters.

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
"""Changes a message in place, or refuses it; called with its properties and the request.

A transform that changes properties changes the dictionary, which the next transform receives, and
encodes it into the message.
"""

DLQ_QUEUE_NUMS: Final = 1


def refuse_in_batch(properties: Mapping[str, str]) -> Refusal | None:
    """Refuse properties that are not allowed for a batch or a message of it.

    Args:
        properties: properties of the batch, or of one of its messages.
    """
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be transactional")
    return refuse_later_in_batch(properties)


class RetryRedirect:
    """Redirects a retried message to the dead letters of its group after the last attempt.

    Messages of a group that consumes in order become dead letters at once: its members retry
    locally, and send a message to the retry topic only after the last attempt.

    Args:
        topics: topic table, in which the topic of dead letters is created.
        groups: group table, with the number of attempts.
        is_ordered: returns whether a group consumes in order now.
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
        # Retried messages arrive here when a client sends to the retry topic itself: ordered
        # consumers, and clients whose send-back failed.
        if not topic.startswith(RETRY_PREFIX):
            return None
        group_name = self._group_of(topic[len(RETRY_PREFIX) :])
        try:
            group = self._groups.get_or_create(group_name)
            if group is None:
                remark = f"subscription group not exist, {group_name}"
                return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            # The consumer's own limit wins over that of the group, as in Apache.
            limit = request.max_reconsume_times
            if limit is None:
                limit = group.retry_max_times
            if message.reconsume_times > limit or self._is_ordered(group_name):
                dead_letters = DLQ_PREFIX + group_name
                self._topics.create_on_send_back(dead_letters, DLQ_QUEUE_NUMS)
                message.topic, message.queue_id = dead_letters, 0
                # A dead letter must not be delayed again by the transforms that follow.
                properties[PROPERTY_DELAY_TIME_LEVEL] = "-1"
                message.properties = encode_properties(properties)
        except (StoreError, OSError) as error:
            remark = f"service not available now. {error}"
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        return None

    def _group_of(self, name: str) -> str:
        """Return the group of a retry topic: that of a pop has the topic's name after it."""
        if self._groups.get(name) is not None:
            return name
        for end, mark in enumerate(name):
            group, topic = name[:end], name[end + 1 :]
            if (
                mark in "_+"
                and self._groups.get(group) is not None
                and self._topics.get(topic) is not None
            ):
                return group
        return name
