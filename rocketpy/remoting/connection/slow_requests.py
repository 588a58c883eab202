"""Log lines about requests that took long, and about loops that were held.

A request is timed from its arrival (a socket read, or the queue of a pool) to its response or
hand-over. What it waits for afterwards, such as a message or a flush, does not count.

Source: the slow request log of NettyRemotingAbstract (5.4.0).
"""

import logging
from typing import Final

from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

_TOPIC_FIELDS: Final = ("topic", "b")
"""Names in headers; `b` is that of SEND_MESSAGE_V2."""
_GROUP_FIELDS: Final = ("consumerGroup", "group", "producerGroup", "a")
_NAME_CHARS_MAX: Final = 300


class SlowRequests:
    """Limit of a server, and the lines.

    Attributes:
        limit_ms: time from which a request is slow; 0 logs none. May change at any time.
        clock: for the times.
    """

    __slots__ = ("clock", "limit_ms")

    def __init__(self, clock: Clock | None = None) -> None:
        self.limit_ms: int = 0
        self.clock: Clock = clock or SystemClock()

    def report(
        self, channel: Channel, command: RemotingCommand, wait_ms: int, work_ms: int
    ) -> None:
        """Log a slow request.

        Args:
            channel: of its peer.
            command: the request.
            wait_ms: time from its arrival to its turn.
            work_ms: time from its turn to its response.
        """
        fields = command.ext_fields
        _log.warning(
            "slow request: peer=%s code=%s topic=%s group=%s wait_ms=%d work_ms=%d",
            channel.remote_address,
            _code_name(command.code),
            _first(fields, _TOPIC_FIELDS),
            _first(fields, _GROUP_FIELDS),
            wait_ms,
            work_ms,
        )

    def check_loop(self, held_ms: int) -> None:
        """Log that a loop was held for too long, such as by compiled code or a page fault."""
        if held_ms >= self.limit_ms > 0:
            _log.warning("event loop held: held_ms=%d", held_ms)


def _code_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _first(fields: dict[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if name in fields:
            return fields[name][:_NAME_CHARS_MAX]
    return ""
