"""Fast path of a connection: offers received bytes to a compiled handler before frames are cut.

A handler serves the leading frames of what it is given and returns how many bytes they were. The
other frames take the general path. With a look-ahead, frames behind those are offered again.
"""

import logging

from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget

_log = logging.getLogger(__name__)


_LONG_READ_BYTES = 16 * 1024
"""Reads of this size may take long to serve, as a loop may read 32 times from a socket in one
iteration. Smaller reads are not timed: each check costs the loop one more iteration."""


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
        turn: time budget of the loop; checked before and after long reads.
        data: received bytes.
        offers_left: whether the rest may be offered again.

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
    # Starts the clock; the check after the read then measures its cost.
    if is_long and look_ahead is not None:
        turn.check_time()
    try:
        served_bytes, response = table.byte_handler(channel, data)
    except Exception:  # noqa: BLE001 - a handler's fault costs this connection only
        # It is unknown which requests it has served: only closing is safe.
        _log.exception("byte handler failed peer=%s", channel.remote_address)
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
