"""Requests of a client that wait for their answers, which brokers forward.

Source: RequestFutureHolder, ClientRemotingProcessor.receiveReplyMessage (5.4.0).
"""

import asyncio
import logging
import uuid
from typing import Final

from rocketpy.errors import (
    TooManyInFlightError,
)
from rocketpy.proto.headers.send import ReplyMessageRequestHeader
from rocketpy.proto.record.compression import inflate
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TAKES_ERRORS,
    PROPERTY_TTL,
    parse_properties,
)
from rocketpy.proto.record.sys_flag import COMPRESSED, clear_compressed, compression_type

logger: logging.Logger = logging.getLogger(__name__)


MAX_REQUESTS: Final = 10_000
"""Requests of one client that wait for their answer."""


_MAX_REPLY_BYTES: Final = 64 * 1024 * 1024


class PendingRequests:
    """Requests that wait for their answers, by correlation id.

    Attributes:
        unmatched: replies that came too late, or without a request.

    Args:
        client_id: this client, as brokers know it.
        max_requests: how many may wait.
    """

    def __init__(self, client_id: str, max_requests: int = MAX_REQUESTS) -> None:
        self.unmatched: int = 0
        self._client_id = client_id
        self._max_requests = max_requests
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, timeout_ms: int) -> tuple[dict[str, str], asyncio.Future[MessageExt]]:
        """Return the properties of a new request, and the future of its answer.

        Raises:
            TooManyInFlightError: so many wait already.
        """
        if len(self._waiting) >= self._max_requests:
            raise TooManyInFlightError(
                f"{len(self._waiting)} requests of this client wait for an answer; this one was "
                "not sent"
            )
        correlation_id = str(uuid.uuid4())
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        properties = {
            PROPERTY_CORRELATION_ID: correlation_id,
            PROPERTY_REPLY_TO_CLIENT: self._client_id,
            PROPERTY_TTL: str(timeout_ms),
            PROPERTY_TAKES_ERRORS: "1",
        }
        return properties, future

    def answered(self, header: ReplyMessageRequestHeader, body: bytes) -> None:
        """Take a reply that a broker forwards; count it when its request has ended.

        Raises:
            BadBodyError: a compressed body that cannot be read.
        """
        properties = parse_properties(header.properties or "")
        correlation_id = properties.get(PROPERTY_CORRELATION_ID, "")
        future = self._waiting.get(correlation_id)
        if future is None or future.done():
            self.unmatched += 1
            logger.info(
                "reply discarded, its request has ended: correlation_id=%(correlation_id)s",
                {"correlation_id": correlation_id},
            )
            return
        sys_flag = header.sys_flag
        if sys_flag & COMPRESSED:
            body = inflate(body, compression_type(sys_flag), max_output_bytes=_MAX_REPLY_BYTES)
            sys_flag = clear_compressed(sys_flag)
        future.set_result(
            MessageExt(
                topic=header.topic,
                queue_id=header.queue_id,
                flag=header.flag,
                sys_flag=sys_flag,
                born_timestamp_ms=header.born_timestamp,
                born_host=header.born_host,
                store_timestamp_ms=header.store_timestamp,
                store_host=header.store_host,
                reconsume_times=header.reconsume_times or 0,
                body=body,
                properties=properties,
            )
        )
