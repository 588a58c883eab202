"""What a check point and the acks of its messages have in common.

Source: PopCheckPoint.java, AckMsg.java, PopReviveService.consumeReviveMessage (5.4.0).
"""

from rocketpy.proto.bodies.pop import CheckPoint, PopAck

PopKey = tuple[str, str, int, int, int, str | None]
"""Topic, group, queue, offset and time of a pop, and the broker's name."""


def key_of(one: CheckPoint | PopAck) -> PopKey:
    """Which pop of which queue it belongs to."""
    return (
        one.topic,
        one.group,
        one.queue_id,
        one.start_offset,
        one.pop_time_ms,
        one.broker_name,
    )
