"""Check whether a broker whose name and id another broker wants is still connected.

A machine that vanishes leaves its connection open at the name server. Without another broker its
routes stay for the timeout of its registration (120 s), as with Apache. A second broker with the
name and id, such as the same one at another address, must not wait that long: the name server asks
the first one for a sign of life. Any answer is one; a broker of Apache answers that it does not
know the request. Without an answer the connection is closed, so that the second broker takes over.
"""

import asyncio
from typing import Final

import structlog

from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.ordered_set import OrderedSet

_logger = structlog.get_logger(__name__)

ANSWER_TIMEOUT_MS: Final = 15_000
"""More than the pauses of a garbage collector: a live broker must keep its routes."""


class HolderCheck:
    """Asks brokers for a sign of life, one request at a time for each connection."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: set[Channel] = set()
        self._asking: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def start(self) -> None:
        """Use the running loop for the requests."""
        self._loop = asyncio.get_running_loop()

    def begin(self, holder: object) -> None:
        """Ask the broker of a connection, without waiting; on any thread.

        Args:
            holder: connection of the broker that has the routes.
        """
        if self._loop is not None and isinstance(holder, Channel):
            self._loop.call_soon_threadsafe(self._begin, holder)

    async def stop(self) -> None:
        """Cancel the requests in flight."""
        self._loop = None
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _begin(self, holder: Channel) -> None:
        if self._loop is None or holder in self._asked:
            return
        self._asked.add(holder)
        task = asyncio.ensure_future(self._ask(holder))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, holder: Channel) -> None:
        try:
            await holder.invoke(make_request(RequestCode.BROKER_HEARTBEAT), ANSWER_TIMEOUT_MS)
        except RequestTimeoutError:
            _logger.warning(
                "connection closed: its broker does not answer, and another one has its name",
                peer=holder.remote_address,
                timeout_ms=ANSWER_TIMEOUT_MS,
            )
            holder.abort("no sign of life, and another broker has the name")
        except ConnectionLostError:
            _logger.debug("connection lost meanwhile", peer=holder.remote_address)
        finally:
            self._asked.discard(holder)
