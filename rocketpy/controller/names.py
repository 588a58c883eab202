"""Checks of names and addresses before they enter the state of a controller."""

from typing import Final

MAX_NAME_CHARS: Final = 255
_MAX_ADDRESS_CHARS: Final = 261


def is_name(text: str) -> bool:
    """Return whether a text can be a cluster or broker name."""
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable() and " " not in text


def is_address(text: str) -> bool:
    """Return whether a text is `host:port`; an IPv6 host may have brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not is_name(host) or len(text) > _MAX_ADDRESS_CHARS or "," in host:
        return False
    return port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65_535
