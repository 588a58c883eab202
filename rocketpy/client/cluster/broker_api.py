"""The requests a client sends to brokers, one method each.

Source: MQClientAPIImpl (5.4.0).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from rocketpy.client.cluster.remoting import Remoting
from rocketpy.errors import BadBodyError, BrokerError, HeaderFieldError
from rocketpy.proto.bodies.heartbeat import GetConsumerListByGroupResponseBody
from rocketpy.proto.bodies.lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketpy.proto.headers.base import Header
from rocketpy.proto.headers.client import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketpy.proto.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.proto.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketpy.proto.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from rocketpy.proto.headers.transaction import EndTransactionRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request

SEND_BACK_TIMEOUT_MS = 5_000
OFFSET_TIMEOUT_MS = 5_000
LOCK_TIMEOUT_MS = 1_000


class PullStatus(IntEnum):
    """Outcome of a pull; the values are the response codes."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21


_PULL_STATUSES = {int(status): status for status in PullStatus}


class PullResult(NamedTuple):
    """A broker's response to a pull; `body` holds stored messages back to back."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    offset_delta: int
    body: bytes


def _checked(response: RemotingCommand) -> RemotingCommand:
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError.from_code(response.code, response.remark)
    return response


def pull_result(response: RemotingCommand) -> PullResult:
    """Read the response to a pull; raises as `BrokerApi.pull`."""
    status = _PULL_STATUSES.get(response.code)
    if status is None:
        raise BrokerError.from_code(response.code, response.remark)
    try:
        header = PullMessageResponseHeader.from_ext(response.ext_fields)
    except HeaderFieldError as error:
        raise BadBodyError(f"the response to a pull has no offsets: {error}") from error
    return PullResult(
        status,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        header.offset_delta or 0,
        response.body,
    )


class BrokerApi:
    """Requests to brokers.

    Args:
        remoting: how they travel.
        timeout_ms: limit of the administrative ones.
    """

    def __init__(self, remoting: Remoting, timeout_ms: int) -> None:
        self.remoting = remoting
        self._timeout_ms = timeout_ms

    async def _call(
        self,
        address: str,
        code: int,
        header: Header | None,
        body: bytes = b"",
        timeout_ms: int = 0,
    ) -> RemotingCommand:
        request = make_request(code, {} if header is None else header.to_ext(), body)
        return _checked(
            await self.remoting.invoke(address, request, timeout_ms or self._timeout_ms)
        )

    async def heartbeat(self, address: str, body: bytes) -> RemotingCommand:
        """Send a heartbeat with the client's groups and subscriptions."""
        return await self._call(address, RequestCode.HEART_BEAT, None, body)

    async def unregister(
        self, address: str, client_id: str, *, producer_group: str = "", consumer_group: str = ""
    ) -> None:
        """Leave a group at one broker."""
        header = UnregisterClientRequestHeader(
            client_id=client_id,
            producer_group=producer_group or None,
            consumer_group=consumer_group or None,
        )
        await self._call(address, RequestCode.UNREGISTER_CLIENT, header)

    async def check_client_config(self, address: str, body: bytes) -> None:
        """Ask whether a subscription may be used there."""
        await self._call(address, RequestCode.CHECK_CLIENT_CONFIG, None, body)

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group's members, as this broker knows them."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        response = await self._call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list

    async def query_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return the group's stored offset, None when there is none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            # Without this, a broker answers 0 for a young queue of which no offset is stored.
            set_zero_if_not_found=False,
            bname=queue.broker_name,
        )
        request = make_request(RequestCode.QUERY_CONSUMER_OFFSET, header.to_ext())
        response = await self.remoting.invoke(address, request, OFFSET_TIMEOUT_MS)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = _offset_of(_checked(response))
        return offset if offset >= 0 else None

    async def update_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool
    ) -> None:
        """Store the group's offset: the next message to read."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        if oneway:
            request = make_request(code, header.to_ext(), oneway=True)
            await self.remoting.invoke_oneway(address, request, OFFSET_TIMEOUT_MS)
        else:
            await self._call(address, code, header)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset the next message will get."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, committed=True, bname=queue.broker_name
        )
        return _offset_of(await self._call(address, RequestCode.GET_MAX_OFFSET, header))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset of the oldest message."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        return _offset_of(await self._call(address, RequestCode.GET_MIN_OFFSET, header))

    async def earliest_store_time_ms(self, address: str, queue: MessageQueue) -> int:
        """Return when the broker stored the oldest message of a queue; below 0 if it has none."""
        header = GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        response = await self._call(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return GetEarliestMsgStoretimeResponseHeader.from_ext(response.ext_fields).timestamp

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type="lower",
            bname=queue.broker_name,
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return _offset_of(await self._call(address, code, header))

    async def recall(self, address: str, header: RecallMessageRequestHeader) -> str:
        """Call a timed message back; return its id."""
        response = await self._call(address, RequestCode.RECALL_MESSAGE, header)
        return RecallMessageResponseHeader.from_ext(response.ext_fields).msg_id or ""

    async def send_back(self, address: str, header: ConsumerSendMsgBackRequestHeader) -> None:
        """Give a message back, so that the broker delivers it again later."""
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._call(address, code, header, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def end_transaction(
        self,
        address: str,
        header: EndTransactionRequestHeader,
        timeout_ms: int,
        remark: str | None = None,
        *,
        oneway: bool = False,
    ) -> None:
        """Send the outcome of a transaction, which may be unknown."""
        request = make_request(RequestCode.END_TRANSACTION, header.to_ext(), oneway=oneway)
        request.remark = remark
        if oneway:
            await self.remoting.invoke_oneway(address, request, timeout_ms)
        else:
            _checked(await self.remoting.invoke(address, request, timeout_ms))

    async def lock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Take or renew the locks of queues; returns those that are ours now."""
        body = LockBatchRequestBody(
            consumer_group=group, client_id=client_id, mq_set=set(queues)
        ).encode()
        code = RequestCode.LOCK_BATCH_MQ
        response = await self._call(address, code, None, body, timeout_ms=LOCK_TIMEOUT_MS)
        return LockBatchResponseBody.decode(response.body).lock_ok_mq_set

    async def unlock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Give the locks of queues back."""
        body = UnlockBatchRequestBody(
            consumer_group=group, client_id=client_id, mq_set=set(queues)
        ).encode()
        code = RequestCode.UNLOCK_BATCH_MQ
        await self._call(address, code, None, body, timeout_ms=LOCK_TIMEOUT_MS)

    async def pull(
        self, address: str, header: PullMessageRequestHeader, timeout_ms: int
    ) -> PullResult:
        """Read messages of a queue; a broker may hold the request until there are some.

        Raises:
            BrokerError: a code that no pull ends with.
            BadBodyError: a response without offsets.
        """
        request = make_request(RequestCode.PULL_MESSAGE, header.to_ext())
        return pull_result(await self.remoting.invoke_future(address, request, timeout_ms))


def _offset_of(response: RemotingCommand) -> int:
    try:
        return OffsetResponseHeader.from_ext(response.ext_fields).offset
    except HeaderFieldError as error:
        raise BadBodyError(f"a response without an offset: {error}") from error
