"""Calling a delayed message back before it is delivered.

Source: DefaultMQProducerImpl.recallMessage (5.4.0).
"""

import contextlib

from rocketpy.client.instance import Instance
from rocketpy.errors import (
    BadBodyError,
    IllegalMessageError,
    NoRouteError,
    TopicNotWritableError,
)
from rocketpy.proto.headers.send import RecallMessageRequestHeader
from rocketpy.proto.recall_handle import decode_recall_handle


async def recall_message(instance: Instance, group: str, topic: str, handle: str) -> str:
    """Ask the broker that has a delayed message to drop it; see `Producer.recall`."""
    if not handle:
        raise IllegalMessageError(
            "there is no recall handle: only a message sent with delay= or deliver_at= has one"
        )
    try:
        wanted = decode_recall_handle(handle)
    except BadBodyError as error:
        raise IllegalMessageError(str(error)) from None
    if wanted.topic != topic:
        raise IllegalMessageError(f"the handle is of topic {wanted.topic}, not {topic}")
    with contextlib.suppress(TopicNotWritableError):  # what a topic has may be taken back
        await instance.routes.publish_queues(topic)
    address = instance.routes.master_address(wanted.broker_name)
    if address is None:
        raise NoRouteError(f"broker {wanted.broker_name} has no master")
    header = RecallMessageRequestHeader(
        producer_group=group, topic=topic, recall_handle=handle, bname=wanted.broker_name
    )
    return await instance.api.recall(address, header)
