"""Locks on queues, and queues assigned by the broker.

Source: LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody,
QueryAssignmentRequestBody, QueryAssignmentResponseBody of 5.4.0.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.json_body import Body, body


@body
class LockBatchRequestBody(Body):
    """Request 41: queues that a client locks."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: set[MessageQueue] = field(default_factory=set)


@body
class LockBatchResponseBody(Body):
    """Response to 41: the queues that the client has locked."""

    wire_names: ClassVar[Mapping[str, str]] = {"lock_ok_mq_set": "lockOKMQSet"}

    lock_ok_mq_set: set[MessageQueue] = field(default_factory=set)


@body
class UnlockBatchRequestBody(LockBatchRequestBody):
    """Request 42: queues that a client unlocks."""


@body
class QueryAssignmentRequestBody(Body):
    """Request 400: ask for the queues assigned to a client."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = None
    message_model: str = "CLUSTERING"


@body
class MessageQueueAssignment(Body):
    """Assigned queue; queue id -1 means all queues of the broker (pop). `mode` is PULL or POP."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@body
class QueryAssignmentResponseBody(Body):
    """Response to 400; None keeps the current queues, an empty list drops all."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None
