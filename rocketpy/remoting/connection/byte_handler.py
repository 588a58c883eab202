"""Fast path of a connection: offers received bytes to a compiled handler before frames are cut.

A handler serves frames from the start of the bytes up to the first frame that it cannot serve, and
returns the number of bytes served. The frames from there on take the general path. If the table has
a look-ahead, it finds the next frame that the handler may serve, and the bytes from that frame on
are offered again after the frames before it.
"""

import logging

from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget

_log = logging.getLogger(__name__)


_LONG_READ_BYTES = 16 * 1024
"""Reads of this size may take long to serve, as a loop may read 32 times from a socket in one
iteration. Smaller reads that a handler serves completely are not timed: a check costs the loop one
more iteration."""


def try_byte_handler(
    table: ProcessorTable,
    channel: Channel,
    reader: CommandReader,
    turn: TurnBudget,
    data: bytes,
    offers_left: int,
) -> tuple[bool, bytes, bytes]:
    """Offer received bytes to the table's handler, and write the responses.

    Args:
        table: has the handler.
        channel: whose bytes they are.
        reader: holds earlier bytes.
        turn: time budget of the loop. Checked after a long read, and after a read that the handler
            served in part. With a look-ahead, it is also checked before a long read, and after a
            read of which the handler served nothing.
        data: received bytes.
        offers_left: how many times the rest may be offered again.

    Returns:
        Whether any of it was served, the bytes for the reader, and the bytes to offer after that.
    """
    # The handler needs complete frames: join the start of one with the bytes that complete it.
    if reader.pending_bytes:
        data = reader.take(data)
    if not data or table.byte_handler is None:
        return False, data, b""
    is_long = len(data) >= _LONG_READ_BYTES
    look_ahead = table.look_ahead
    # Starts the clock; the check after the read then measures the time of the handler.
    if is_long and look_ahead is not None:
        turn.check_time()
    try:
        served_bytes, response = table.byte_handler(channel, data)
    except Exception:  # noqa: BLE001 - a handler's fault costs this connection only
        # It is unknown which requests it has served: only closing is safe.
        _log.exception("byte handler failed: peer=%s", channel.remote_address)
        channel.abort("byte handler failed")
        return True, b"", b""
    if not served_bytes and look_ahead is None:  # it read one header, which takes no time
        return False, data, b""
    if response:
        channel.write(response)
    if is_long or served_bytes < len(data):
        turn.check_time()
    if served_bytes == len(data):  # the common case
        return True, b"", b""
    data = data[served_bytes:]
    # Bounded: alternating frames would otherwise be searched again after each one.
    if not offers_left or look_ahead is None:
        return served_bytes > 0, data, b""
    following = look_ahead(data)
    if not following:
        return served_bytes > 0, data, b""
    return served_bytes > 0, data[:following], data[following:]
