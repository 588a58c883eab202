"""Table of processors, and the responses of a batch of requests on their way to one write.

Source: NettyRemotingAbstract.processRequestCommand, processorTable (5.4.0).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from rocketpy.errors import RocketPyError
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_response
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.slow_requests import SlowRequests
from rocketpy.remoting.connection.transport import Buffer

_log = logging.getLogger(__name__)

Response: TypeAlias = (
    RemotingCommand
    | bytes
    | list[Buffer]
    | DeferredResponse
    | Awaitable["RemotingCommand | bytes | None"]
    | None
)
Processor: TypeAlias = Callable[[Channel, RemotingCommand], Response]

ByteHandler: TypeAlias = Callable[[Channel, bytes], tuple[int, bytes]]
"""Takes received bytes, from a frame's first byte on, before frames are cut; returns how many it
served (complete frames, from the start) and the bytes of their responses. May serve nothing."""

LookAhead: TypeAlias = Callable[[bytes], int]
"""Takes received bytes whose first frame was not served; returns where the next frame begins that
would be served, 0 when there is none or the first one is such a frame."""

_ONEWAY = 2
# Peers up to this version do not know GO_AWAY (V5_3_1).
_LAST_VERSION_WITHOUT_GO_AWAY = 475


class Route(NamedTuple):
    """Processor and pool of one request code.

    Attributes:
        processor: answers them.
        pool: where they are answered; None inline.
        queue_wait_ms: requests that wait longer are refused; 0 is no limit.
    """

    processor: Processor
    pool: BusinessPool | None
    queue_wait_ms: int = 0


class ProcessorTable:
    """Request code -> processor and pool.

    Attributes:
        routes: the table itself; the hot loop reads it without a call.
        default: route of every other code; answers "not supported" unless set.
        byte_handler: is offered received bytes before frames are cut; None for none.
        look_ahead: finds later frames that it would serve; None for none.
        slow: limit of slow requests, and their log lines.
    """

    # Public attributes: the serving loop reads them without a call.
    __slots__ = ("byte_handler", "default", "look_ahead", "routes", "slow")

    def __init__(self, slow: SlowRequests | None = None) -> None:
        self.routes: dict[int, Route] = {}
        self.default: Route = Route(_unsupported, None)
        self.byte_handler: ByteHandler | None = None
        self.look_ahead: LookAhead | None = None
        self.slow: SlowRequests = slow or SlowRequests()

    def register(
        self, codes: Iterable[int] | int, processor: Processor, pool: BusinessPool | None
    ) -> None:
        """Send these request codes to a processor; a later registration replaces an earlier one.

        Args:
            codes: one or more.
            processor: answers each request.
            pool: where; None inline.
        """
        route = _route(processor, pool)
        for code in (codes,) if isinstance(codes, int) else codes:
            self.routes[int(code)] = route

    def set_default(self, processor: Processor, pool: BusinessPool | None) -> None:
        """Send every code without a registration to a processor."""
        self.default = _route(processor, pool)

    def pools(self) -> list[BusinessPool]:
        """Return each pool with threads once."""
        routes = [*self.routes.values(), self.default]
        return list(dict.fromkeys(r.pool for r in routes if r.pool is not None))


class Responses:
    """Responses of one batch of requests, on their way to one write.

    Attributes:
        frames: finished frames, in order.
        size_bytes: of all frames.
        coroutines: processors that are still to run, on the selector's loop.
        later_count: requests whose responses come later, by coroutine or `DeferredResponse`.
        is_slow: a response was a command: its request may have been expensive.
    """

    __slots__ = (
        "_channel",
        "coroutines",
        "frames",
        "is_slow",
        "later_count",
        "size_bytes",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.frames: list[Buffer] = []
        self.size_bytes: int = 0
        self.later_count: int = 0
        self.is_slow: bool = False
        self.coroutines: list[
            tuple[RemotingCommand, Awaitable[RemotingCommand | bytes | None]]
        ] = []

    def process(self, processor: Processor, command: RemotingCommand) -> None:
        """Run a processor and add what it returns or raises."""
        try:
            response = processor(self._channel, command)
            # Fast paths and templates return frames; `isinstance` checks would cost each request.
            if response.__class__ is bytes and not command.flag & _ONEWAY:  # the common case
                self.frames.append(response)
                self.size_bytes += len(response)
            elif response is not None:
                self.add(command, response)
        except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
            self.add_error(command, error)

    def add(self, command: RemotingCommand, response: Response) -> None:
        """Add the response to a request; dropped when the request was one-way."""
        # Classes are compared first: `isinstance` with `Awaitable` is slow.
        kind = response.__class__
        if kind is DeferredResponse:
            self.later_count += 1
        elif kind is not bytes and kind is not RemotingCommand and isinstance(response, Awaitable):
            self.coroutines.append((command, response))
            self.later_count += 1
        elif command.flag & _ONEWAY or response is None:
            return
        elif isinstance(response, bytes):
            self.frames.append(response)
            self.size_bytes += len(response)
        elif isinstance(response, list):
            self.frames += response
            self.size_bytes += sum(map(len, response))
        elif isinstance(response, RemotingCommand):
            self.is_slow = True
            # The offer is a field of a response, so it needs one that is still a command.
            if self._channel.offers_msgpack:
                self._channel.offer_msgpack(response)
            frame = encode_command(response)
            self.frames.append(frame)
            self.size_bytes += len(frame)
        else:
            raise TypeError(f"a processor returned {type(response).__name__}")

    def add_error(self, command: RemotingCommand, error: Exception) -> None:
        """Add a response with code 1 for an exception of a processor, and log it."""
        self.add(command, failed(self._channel, command, error))

    def refuse(self, commands: Sequence[RemotingCommand], remark: str) -> None:
        """Answer requests with flow control."""
        for command in commands:
            self.add(command, flow_control(self._channel, command, remark))


def failed(channel: Channel, command: RemotingCommand, error: Exception) -> RemotingCommand:
    """Log an exception of a processor, and return the response with code 1."""
    # A stack trace for faults of the server only, not for those of the request.
    is_expected = isinstance(error, RocketPyError)
    _log.warning(
        "request failed: peer=%s code=%d opaque=%d error=%s reason=%s",
        channel.remote_address,
        command.code,
        command.opaque,
        type(error).__name__,
        error,
        exc_info=None if is_expected else error,
    )
    remark = f"{type(error).__name__}: {error}"
    return make_response(command, ResponseCode.SYSTEM_ERROR, remark)


def overloaded() -> str:
    """Return Apache's words for a full queue."""
    return "[OVERLOAD]system busy, start flow control for a while"


def waited_too_long(waited_ms: int, queued_count: int) -> str:
    """Return Apache's words for a request that waited too long."""
    return (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {waited_ms}ms, size of queue: {queued_count}"
    )


def reject_going_away(
    commands: Sequence[RemotingCommand], responses: Responses
) -> list[RemotingCommand]:
    """Answer GO_AWAY to requests of peers that know it; return the requests to serve."""
    kept = []
    for command in commands:
        if command.flag & 3 or command.version <= _LAST_VERSION_WITHOUT_GO_AWAY:
            kept.append(command)
        else:
            responses.add(command, go_away(command))
    return kept


def go_away(command: RemotingCommand) -> RemotingCommand:
    """Return the response of a server that is shutting down."""
    return make_response(command, ResponseCode.GO_AWAY, "please go away")


def flow_control(channel: Channel, command: RemotingCommand, remark: str) -> RemotingCommand:
    """Return code 530 for RocketPy peers, 2 marked as flow control for all others."""
    if channel.is_rocketpy:
        return make_response(command, ResponseCode.TOO_MANY_REQUESTS, remark)
    return make_response(command, ResponseCode.SYSTEM_BUSY, f"[TOO_MANY_REQUESTS]{remark}")


def _unsupported(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
    """Answer an unknown code in Apache's words, leading blank included."""
    remark = f" request type {command.code} not supported"
    return make_response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def _route(processor: Processor, pool: BusinessPool | None) -> Route:
    if pool is None:
        return Route(processor, None)
    return Route(processor, None if pool.runs_inline else pool, pool.queue_wait_ms)
