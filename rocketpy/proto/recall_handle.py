"""Handles to recall delayed messages.

URL-safe Base64 of `v1 <topic> <broker name> <time ms> <message id>`, separated by blanks.

Source: RecallMessageHandle.HandleV1 (5.4.0).
"""

import base64
import binascii
from typing import Final, NamedTuple

from rocketpy.errors import BadBodyError

_VERSION: Final = "v1"
_PARTS: Final = 5
_MOST_CHARS: Final = 4_096


class RecallHandle(NamedTuple):
    """Contents of a handle.

    Attributes:
        topic: target of the message.
        broker_name: broker that stores it.
        timestamp: decimal text: a time in its slot of the timer wheel, ms.
        message_id: UNIQ_KEY of the message.
    """

    topic: str
    broker_name: str
    timestamp: str
    message_id: str

    def encode(self) -> str:
        """Encode the handle for clients."""
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a handle.

    Raises:
        BadBodyError: the handle is invalid.
    """
    if len(text) > _MOST_CHARS:
        raise BadBodyError("recall handle is invalid")
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (ValueError, binascii.Error):
        raise BadBodyError("recall handle is invalid") from None
    if parts[0] != _VERSION or len(parts) < _PARTS:
        raise BadBodyError("recall handle is invalid")
    return RecallHandle(*parts[1:_PARTS])
