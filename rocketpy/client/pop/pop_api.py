"""Requests of a popping client to brokers, and their responses.

Source: MQClientAPIImpl.popMessageAsync, processPopResponse, ackMessageAsync (5.4.0).
"""

from enum import Enum
from typing import Final, NamedTuple

from rocketpy.client.cluster.remoting import Remoting
from rocketpy.client.consumer.pulling.pull_loop import decode_pulled
from rocketpy.errors import BadBodyError, BrokerError, HeaderFieldError
from rocketpy.proto.bodies.group import MODE_POP
from rocketpy.proto.bodies.lock import QueryAssignmentRequestBody, QueryAssignmentResponseBody
from rocketpy.proto.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.pop import MARK_NORMAL, PopHandle, parse_handle, parse_queue_values, real_topic
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import PROPERTY_FIRST_POP_TIME, PROPERTY_POP_CK
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request

ACK_TIMEOUT_MS: Final = 3_000
POLL_GRACE_MS: Final = 10_000
"""How much longer than the broker waits the client waits for its response."""


class PopStatus(Enum):
    """Outcome of a pop."""

    FOUND = "FOUND"
    NOTHING = "NOTHING"
    FULL = "FULL"


_STATUSES: Final = {
    int(ResponseCode.SUCCESS): PopStatus.FOUND,
    int(ResponseCode.POLLING_FULL): PopStatus.FULL,
    int(ResponseCode.POLLING_TIMEOUT): PopStatus.NOTHING,
    int(ResponseCode.PULL_NOT_FOUND): PopStatus.NOTHING,
}


class PopResult(NamedTuple):
    """A broker's response to a pop.

    Attributes:
        status: how it ended.
        messages: with their handles (property `POP_CK`).
        bad: those whose body cannot be inflated, with the reason.
        invisible_ms: time in which other consumers do not get them.
    """

    status: PopStatus
    messages: list[MessageExt]
    bad: list[tuple[MessageExt, Exception]]
    invisible_ms: int


def pop_result(response: RemotingCommand, broker_name: str) -> PopResult:
    """Read the response to a pop.

    Args:
        response: of a broker.
        broker_name: its name, which stands in handles.

    Raises:
        BrokerError: a code that no pop ends with.
        BadBodyError: messages without what their handles are made of.
        CorruptRecordError: the records do not add up.
    """
    status = _STATUSES.get(response.code)
    if status is None:
        raise BrokerError.from_code(response.code, response.remark)
    if status is not PopStatus.FOUND:
        return PopResult(status, [], [], 0)
    good, bad, _ = decode_pulled(response.body)  # what is left out comes back by itself
    try:
        header = PopMessageResponseHeader.from_ext(response.ext_fields)
        _give_handles([*good, *(message for message, _ in bad)], header, broker_name)
    except (HeaderFieldError, ValueError, KeyError) as error:
        raise BadBodyError(f"a pop's response without what handles need: {error!r}") from error
    return PopResult(status, good, bad, header.invisible_time)


def _give_handles(
    messages: list[MessageExt], header: PopMessageResponseHeader, broker_name: str
) -> None:
    starts = parse_queue_values(header.start_offset_info)
    counts = parse_queue_values(header.order_count_info)
    for message in messages:
        queue = str(message.queue_id)
        if PROPERTY_POP_CK not in message.properties:  # retried ones bring theirs
            message.properties[PROPERTY_POP_CK] = PopHandle(
                starts[MARK_NORMAL, queue][0],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                MARK_NORMAL,
                broker_name,
                message.queue_id,
                message.queue_offset,
            ).text()
            own = counts.get((MARK_NORMAL, f"qo{queue}%{message.queue_offset}"))
            count = own or counts.get((MARK_NORMAL, queue))
            if count and count[0] > 0:
                message.reconsume_times = count[0]
        message.properties.setdefault(PROPERTY_FIRST_POP_TIME, str(header.pop_time))


class PoppedPlace(NamedTuple):
    """Place of a popped message, as an ack names it.

    Attributes:
        group: the consumer group.
        topic: its topic, the retry topic of a retried one.
        handle: as it was handed out or changed last.
    """

    group: str
    topic: str
    handle: PopHandle


def place_of(group: str, message: MessageExt) -> PoppedPlace:
    """Return where a popped message lies.

    Raises:
        BadBodyError: its handle is none.
    """
    try:
        handle = parse_handle(message.properties.get(PROPERTY_POP_CK, ""))
        topic = real_topic(message.topic, group, handle.mark)
    except ValueError as error:
        raise BadBodyError(f"a popped message without a handle: {error}") from error
    return PoppedPlace(group, topic, handle)


class PopRequests:
    """Requests of clients that pop.

    Args:
        remoting: how they travel.
    """

    def __init__(self, remoting: Remoting) -> None:
        self._remoting = remoting

    async def assignment(
        self, address: str, body: QueryAssignmentRequestBody, timeout_ms: int
    ) -> list[MessageQueue] | None:
        """Return the queues to pop, id -1 for all of a broker; None to keep the assignment.

        Empty: the broker does not deal out this group's messages, or not to us yet.
        """
        request = make_request(RequestCode.QUERY_ASSIGNMENT, {}, body.encode())
        response = _checked(await self._remoting.invoke(address, request, timeout_ms))
        listed = QueryAssignmentResponseBody.decode(response.body).message_queue_assignments
        if listed is None:
            return None
        queues = [each.message_queue for each in listed if each.mode == MODE_POP]
        return list(dict.fromkeys(queue for queue in queues if queue is not None))

    async def pop(self, address: str, header: PopMessageRequestHeader) -> PopResult:
        """Pop messages, or wait for some.

        Raises:
            ClientError: no response in time, or no connection.
            BrokerError: the broker refuses.
            BadBodyError: it cannot be read.
        """
        request = make_request(RequestCode.POP_MESSAGE, header.to_ext())
        timeout_ms = header.poll_time + POLL_GRACE_MS
        response = await self._remoting.invoke(address, request, timeout_ms)
        return pop_result(response, header.bname or "")

    async def ack(self, address: str, place: PoppedPlace) -> None:
        """Ack a message; raises BrokerError or ClientError when the broker did not take it."""
        handle = place.handle
        header = AckMessageRequestHeader(
            consumer_group=place.group,
            topic=place.topic,
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.queue_offset or 0,
            bname=handle.broker_name,
        )
        request = make_request(RequestCode.ACK_MESSAGE, header.to_ext())
        _checked(await self._remoting.invoke(address, request, ACK_TIMEOUT_MS))

    async def change_invisible(
        self, address: str, place: PoppedPlace, invisible_ms: int
    ) -> PoppedPlace:
        """Have a message come back at another time; returns it with its new handle.

        Raises:
            ClientError: no response in time, or no connection.
            BrokerError: the broker refuses.
            BadBodyError: the response has no new handle.
        """
        handle = place.handle
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=place.group,
            topic=place.topic,
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.queue_offset or 0,
            invisible_time=invisible_ms,
            bname=handle.broker_name,
        )
        request = make_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.to_ext())
        response = _checked(await self._remoting.invoke(address, request, ACK_TIMEOUT_MS))
        try:
            changed = ChangeInvisibleTimeResponseHeader.from_ext(response.ext_fields)
        except HeaderFieldError as error:
            raise BadBodyError(f"a changed message without its new handle: {error}") from error
        # In order it stays in its pop; otherwise it gets a separate check point.
        start = handle.check_point_offset if handle.is_ordered else handle.queue_offset or 0
        return place._replace(
            handle=handle._replace(
                check_point_offset=start,
                pop_time_ms=changed.pop_time,
                invisible_ms=changed.invisible_time,
                revive_queue_id=changed.revive_qid,
            )
        )


def _checked(response: RemotingCommand) -> RemotingCommand:
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError.from_code(response.code, response.remark)
    return response
