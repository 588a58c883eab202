"""The requests a client sends to brokers, one method each.

Header fields are written here under their wire names: the data path cannot afford header objects.

Source: MQClientAPIImpl (5.4.0).
"""

import asyncio
from enum import IntEnum
from typing import NamedTuple

import orjson

from rocketpy.client.seams import Remoting
from rocketpy.errors import BadBodyError, BrokerError
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_request
from rocketpy.proto.message_queue import MessageQueue

SEND_BACK_TIMEOUT_MS = 5_000
OFFSET_TIMEOUT_MS = 5_000


class PullStatus(IntEnum):
    """How a pull ended; the values are the response codes."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21


_PULL_STATUSES = {int(status): status for status in PullStatus}


class PullResult(NamedTuple):
    """A broker's response to a pull; ``body`` holds stored messages back to back."""

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
    """Read a pull's answer; raises BrokerError for any other code."""
    status = _PULL_STATUSES.get(response.code)
    if status is None:
        raise BrokerError.from_code(response.code, response.remark)
    ext = response.ext_fields
    try:
        return PullResult(
            status,
            int(ext["nextBeginOffset"]),
            int(ext["minOffset"]),
            int(ext["maxOffset"]),
            int(ext.get("suggestWhichBrokerId", "0")),
            int(ext.get("offsetDelta") or "0"),
            response.body,
        )
    except (KeyError, ValueError) as error:
        raise BadBodyError(f"pull answer without usable offsets: {ext}") from error


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
        ext_fields: dict[str, str],
        body: bytes = b"",
        timeout_ms: int = 0,
    ) -> RemotingCommand:
        request = make_request(code, ext_fields, body)
        return _checked(
            await self.remoting.invoke(address, request, timeout_ms or self._timeout_ms)
        )

    async def heartbeat(self, address: str, body: bytes) -> RemotingCommand:
        """Tell a broker who we are and what our groups subscribe to."""
        return await self._call(address, RequestCode.HEART_BEAT, {}, body)

    async def unregister(
        self, address: str, client_id: str, *, producer_group: str = "", consumer_group: str = ""
    ) -> None:
        """Leave a group at one broker."""
        ext_fields = {"clientID": client_id}
        if producer_group:
            ext_fields["producerGroup"] = producer_group
        if consumer_group:
            ext_fields["consumerGroup"] = consumer_group
        await self._call(address, RequestCode.UNREGISTER_CLIENT, ext_fields)

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group's members, as this broker knows them."""
        response = await self._call(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
        )
        try:
            ids = orjson.loads(response.body)["consumerIdList"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadBodyError("member list cannot be read") from error
        return [str(client_id) for client_id in ids]

    async def query_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return the group's stored offset, None when there is none."""
        request = make_request(
            RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, **_queue_fields(queue)}
        )
        response = await self.remoting.invoke(address, request, OFFSET_TIMEOUT_MS)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = _offset_of(_checked(response))
        return offset if offset >= 0 else None

    async def update_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool
    ) -> None:
        """Store the group's offset: the next message to read."""
        ext_fields = {
            "consumerGroup": group,
            **_queue_fields(queue),
            "commitOffset": str(offset),
        }
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        if oneway:
            request = make_request(code, ext_fields, oneway=True)
            await self.remoting.invoke_oneway(address, request, OFFSET_TIMEOUT_MS)
        else:
            await self._call(address, code, ext_fields)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset the next message will get."""
        ext_fields = {**_queue_fields(queue), "committed": "true"}
        return _offset_of(await self._call(address, RequestCode.GET_MAX_OFFSET, ext_fields))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset of the oldest message."""
        return _offset_of(
            await self._call(address, RequestCode.GET_MIN_OFFSET, _queue_fields(queue))
        )

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time."""
        ext_fields = {
            **_queue_fields(queue),
            "timestamp": str(timestamp_ms),
            "boundaryType": "lower",
        }
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return _offset_of(await self._call(address, code, ext_fields))

    async def send_back(self, address: str, ext_fields: dict[str, str]) -> None:
        """Give a message back, so that the broker delivers it again later."""
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._call(address, code, ext_fields, timeout_ms=SEND_BACK_TIMEOUT_MS)

    def pull(
        self, address: str, ext_fields: dict[str, str], timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """Ask for messages; read the response with :func:`pull_result`."""
        request = make_request(RequestCode.PULL_MESSAGE, ext_fields)
        return self.remoting.invoke_future(address, request, timeout_ms)


def _queue_fields(queue: MessageQueue) -> dict[str, str]:
    return {
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
    }


def _offset_of(response: RemotingCommand) -> int:
    try:
        return int(response.ext_fields["offset"])
    except (KeyError, ValueError) as error:
        raise BadBodyError("answer without an offset") from error
