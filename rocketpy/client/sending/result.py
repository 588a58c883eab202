"""What a send returns.

Source: SendResult, SendStatus, MQClientAPIImpl.processSendResponse (5.4.0).
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

from rocketpy.errors import BadBodyError, HeaderFieldError
from rocketpy.proto.headers.send import SendMessageResponseHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.compiled_requests import StoredAnswer


class SendStatus(IntEnum):
    """How safely the message is stored; the values are the response codes."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12

    def __str__(self) -> str:
        return self.name


_STATUSES = {int(status): status for status in SendStatus}
STORED_CODES = frozenset(_STATUSES)
"""Response codes that say that a message is stored."""


class SendResult(NamedTuple):
    """Where a message was stored.

    Attributes:
        status: SEND_OK; the other three are stored too, but less safely than the broker promises.
        msg_id: the id the message carries through all deliveries.
        offset_msg_id: the broker's id; it holds the broker's address.
        queue: which queue.
        offset: its place in the queue.
        transaction_id: of a half message.
        region_id: the broker's region.
        recall_handle: with which a delayed message can be called back, or None.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    recall_handle: str | None = None


# A result of its fields, without a call of Python code.
_result: Final[Callable[[tuple[Any, ...]], SendResult]] = partial(tuple.__new__, SendResult)
_QUEUE_ID, _OFFSET, _MSG_ID, _TRANSACTION_ID, _REGION, _RECALL_HANDLE = (
    SendMessageResponseHeader.wire_name(name)
    for name in (
        "queue_id", "queue_offset", "msg_id", "transaction_id", "region_id", "recall_handle",
    )
)  # fmt: skip


class SendStats(NamedTuple):
    """What a producer has sent since it was made.

    Attributes:
        begun: sends: messages, and requests of `send_batch`.
        in_flight: those that have not ended.
        in_flight_bytes: bytes of their bodies.
        failed: those that ended with an error.
        retried: attempts that failed and were followed by another one.
        lost_oneway: one-way sends that are known to be lost; they are not in `failed`.
    """

    begun: int
    in_flight: int
    in_flight_bytes: int
    failed: int
    retried: int
    lost_oneway: int


def read_send_response(
    response: RemotingCommand, queue: MessageQueue, msg_id: str
) -> SendResult | None:
    """Return the result of a stored message, None when the broker did not store it.

    Raises:
        BadBodyError: the broker says it is stored but not where.
    """
    status = _STATUSES.get(response.code)
    if status is None:
        return None
    fields = response.ext_fields
    number, offset = fields.get(_QUEUE_ID, ""), fields.get(_OFFSET, "")
    is_plain = number.isdecimal() and len(number) < 10 and offset.isdecimal() and len(offset) < 19
    if not is_plain or _MSG_ID not in fields:
        return _read_carefully(status, fields, queue, msg_id)
    queue_id = int(number)
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    get = fields.get
    return _result(
        (
            status,
            msg_id,
            fields[_MSG_ID],
            queue,
            int(offset),
            get(_TRANSACTION_ID),
            get(_REGION) or "DefaultRegion",
            get(_RECALL_HANDLE),
        )
    )


def result_of(answer: StoredAnswer, queue: MessageQueue, msg_id: str) -> SendResult:
    """Return what `read_send_response` makes of the same answer."""
    _, _, queue_id, offset, offset_id, transaction_id, region, recall_handle = answer
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return _result(
        (
            SendStatus.SEND_OK,
            msg_id,
            offset_id,
            queue,
            offset,
            transaction_id,
            region,
            recall_handle,
        )
    )


def _read_carefully(
    status: SendStatus, fields: dict[str, str], queue: MessageQueue, msg_id: str
) -> SendResult:
    try:
        header = SendMessageResponseHeader.from_ext(fields)
    except HeaderFieldError as error:
        raise BadBodyError(f"the response to a send: {error}") from error
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    return SendResult(
        status,
        msg_id,
        header.msg_id,
        queue,
        header.queue_offset,
        header.transaction_id,
        header.region_id or "DefaultRegion",
        header.recall_handle,
    )
