"""Queue of a topic on a broker, as producers and consumers name it.

Source: MessageQueue (org.apache.rocketmq.common.message) of 5.4.0.
"""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """Queue of a topic; ordered by topic, broker name and queue id, as in Java."""

    topic: str
    broker_name: str
    queue_id: int
