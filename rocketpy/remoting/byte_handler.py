"""Offering received bytes to a handler before frames are cut, for a compiled path of plain sends.

A handler serves leading frames of what it is given and says how many bytes that was; the others
take the ordinary way.
"""

import logging

from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import ByteHandler

_log = logging.getLogger(__name__)


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
