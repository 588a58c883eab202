"""Results of sends, read from responses.

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
    """Durability of a stored message; the values are the response codes.

    After any other than SEND_OK the outcome is unknown: the master has the message, consumers will
    probably receive it, and a master that is lost now may take it along. To send it again may store
    it twice.
    """

    SEND_OK = 0
    """As durable as the broker's settings promise."""
    FLUSH_DISK_TIMEOUT = 10
    """Not flushed to the disk within `syncFlushTimeout` (flushDiskType=SYNC_FLUSH)."""
    SLAVE_NOT_AVAILABLE = 11
    """No slave is connected; of older brokers."""
    FLUSH_SLAVE_TIMEOUT = 12
    """Not confirmed by `inSyncReplicas` replicas within `slaveTimeout` (SYNC_MASTER)."""

    def __str__(self) -> str:
        return self.name


_STATUSES = {int(status): status for status in SendStatus}
STORED_CODES = frozenset(_STATUSES)
"""Response codes of stored messages."""


class SendResult(NamedTuple):
    """Place of a stored message.

    Attributes:
        status: SEND_OK; with the other three it is unknown whether the message outlives a failure
            of the master.
        msg_id: the id the message carries through all deliveries.
        offset_msg_id: the broker's id; it holds the broker's address.
        queue: which queue.
        offset: position in the queue.
        transaction_id: of a half message.
        region_id: the broker's region.
        recall_handle: recalls a delayed message; None for others.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    recall_handle: str | None = None


# Makes a result of a tuple in C: it is on the path of every send.
_result: Final[Callable[[tuple[Any, ...]], SendResult]] = partial(tuple.__new__, SendResult)
_QUEUE_ID, _OFFSET, _MSG_ID, _TRANSACTION_ID, _REGION, _RECALL_HANDLE = (
    SendMessageResponseHeader.wire_name(name)
    for name in (
        "queue_id", "queue_offset", "msg_id", "transaction_id", "region_id", "recall_handle",
    )
)  # fmt: skip


class SendStats(NamedTuple):
    """Counters of a producer since it was created.

    Attributes:
        begun: sends started: messages, and requests of `send_batch`.
        in_flight: sends without a result.
        in_flight_bytes: bytes of their bodies.
        failed: sends that ended with an error.
        retried: failed attempts that were followed by another one.
        lost_oneway: one-way sends known to be lost; `failed` does not count them.
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
        BadBodyError: the response of a stored message names no queue or offset.
    """
    status = _STATUSES.get(response.code)
    if status is None:
        return None
    fields = response.ext_fields
    number, offset = fields.get(_QUEUE_ID, ""), fields.get(_OFFSET, "")
    # Longer numbers go to `_read_carefully`, which refuses what does not fit the wire's types.
    is_plain = number.isdecimal() and len(number) < 10 and offset.isdecimal() and len(offset) < 19
    if not is_plain or _MSG_ID not in fields:
        return _read_carefully(status, fields, queue, msg_id)
    # Brokers store in another queue if the chosen one was removed meanwhile.
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
    """Return the result of a response that the compiled reader has decoded."""
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
