"""Offering received bytes to a handler before frames are cut, for a compiled path of plain sends.

A handler serves leading frames of what it is given and says how many bytes that was; the others
take the ordinary way. Where one knows which of the others it would serve, it gets these after that.
"""

import logging

from rocketpy.proto.frame import CommandReader
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import ByteHandler, ProcessorTable

_log = logging.getLogger(__name__)


def offer(
    table: ProcessorTable, channel: Channel, reader: CommandReader, data: bytes, offers_left: int
) -> tuple[bool, bytes, bytes]:
    """Offer what was received.

    Args:
        table: has the handler.
        channel: whose bytes they are.
        reader: holds what came before.
        data: what came now.
        offers_left: whether the rest may be offered anew.

    Returns:
        Whether any of it was served, what the reader gets, and what is to be offered after that.
    """
    if reader.pending_bytes:
        data = reader.take(data)
    if not data or table.byte_handler is None:
        return False, data, b""
    served_bytes = serve_bytes(table.byte_handler, channel, data)
    data = data[served_bytes:]
    if not data or not offers_left or table.look_ahead is None:
        return served_bytes > 0, data, b""
    following = table.look_ahead(data)
    if not following:
        return served_bytes > 0, data, b""
    return served_bytes > 0, data[:following], data[following:]


def serve_bytes(handler: ByteHandler, channel: Channel, data: bytes) -> int:
    """Let a handler serve what it can, and write its responses; return how many bytes it served.

    When it fails nobody knows what it has served: only closing the connection is safe.
    """
    try:
        served_bytes, response = handler(channel, data)
    except Exception:  # noqa: BLE001 - whatever it is costs this connection only
        _log.exception("byte handler failed peer=%s", channel.remote_address)
        channel.abort("byte handler failed")
        return len(data)
    if response:
        channel.write(response)
    return served_bytes
