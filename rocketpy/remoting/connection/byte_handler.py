"""Offering received bytes to a handler before frames are cut, for a compiled path of plain sends.

A handler serves leading frames of what it is given and says how many bytes that was; the others
take the ordinary way. Where one knows which of the others it would serve, it gets these after that.
"""

import logging

from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget

_log = logging.getLogger(__name__)


_LONG_READ_BYTES = 16 * 1024
"""So much may take long to serve: a loop reads up to 32 times from a socket before it turns. To
look at less, as at one batch, costs more than it is worth: the loop turns once more each time."""


def offer(
    table: ProcessorTable,
    channel: Channel,
    reader: CommandReader,
    turn: TurnBudget,
    data: bytes,
    offers_left: int,
) -> tuple[bool, bytes, bytes]:
    """Offer what was received, and write the responses.

    Args:
        table: has the handler.
        channel: whose bytes they are.
        reader: holds what came before.
        turn: of the loop; told before and after what may take long.
        data: what came now.
        offers_left: whether the rest may be offered anew.

    Returns:
        Whether any of it was served, what the reader gets, and what is to be offered after that.
    """
    if reader.pending_bytes:
        data = reader.take(data)
    if not data or table.byte_handler is None:
        return False, data, b""
    is_long = len(data) >= _LONG_READ_BYTES
    look_ahead = table.look_ahead
    if is_long and look_ahead is not None:
        turn.look()
    try:
        served_bytes, response = table.byte_handler(channel, data)
    except Exception:  # noqa: BLE001 - whatever it is costs this connection only
        # Nobody knows what it has served: only closing is safe.
        _log.exception("byte handler failed peer=%s", channel.remote_address)
        channel.abort("byte handler failed")
        return True, b"", b""
    if not served_bytes and look_ahead is None:  # a look at the first frame takes no time
        return False, data, b""
    if response:
        channel.write(response)
    if is_long or served_bytes < len(data):
        turn.look()
    if served_bytes == len(data):  # as mostly
        return True, b"", b""
    data = data[served_bytes:]
    if not offers_left or look_ahead is None:
        return served_bytes > 0, data, b""
    following = look_ahead(data)
    if not following:
        return served_bytes > 0, data, b""
    return served_bytes > 0, data[:following], data[following:]
