"""Who may pop what: names and permissions, in Apache's order.

Source: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor (5.4.0).
"""

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topics import TopicTable
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.perm import PERM_READ


class PopChecks:
    """Checks the names of a request.

    Args:
        topics: topic table.
        groups: group table; a group that does not exist yet is created as for a pull.
    """

    def __init__(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        self._topics = topics
        self._groups = groups

    def check(self, topic_name: str, queue_id: int, group_name: str) -> Refusal | None:
        """Return why a group may not pop a queue; None when it may.

        Args:
            topic_name: of the queue.
            queue_id: below 0 is any queue.
            group_name: consumer group.
        """
        topic = self._topics.get(topic_name)
        if topic is None:
            return no_topic(topic_name)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{topic_name}] peeking message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if queue_id >= topic.read_queue_nums:
            remark = bad_queue(topic_name, queue_id, topic.read_queue_nums)
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        group = self._groups.get_or_create(group_name)
        if group is None:
            remark = f"subscription group [{group_name[:255]}] does not exist"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {group_name}"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if topic.is_batch_cq:
            remark = "this broker version does not support topics with queue.type BatchCQ"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return None


def no_topic(topic_name: str) -> Refusal:
    """The refusal of a topic that does not exist."""
    remark = f"topic[{topic_name[:255]}] not exist, apply first please!"
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)


def bad_queue(topic_name: str, queue_id: int, read_queue_nums: int) -> str:
    """The remark on a queue that a topic does not have."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
        f"topicConfig.readQueueNums:[{read_queue_nums}]"
    )
