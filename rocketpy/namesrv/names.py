"""Checks of names before they enter the tables of the name server.

Brokers register more than the names that clients may choose: a topic named as their cluster, one
named as themselves, and one for each consumer group. So most printable text is valid, and a
limit of the length bounds the tables. No name ever becomes a path.
"""

from typing import Final

MAX_NAME_CHARS: Final = 300


def is_name(text: str) -> bool:
    """Return whether a text is a valid cluster or broker name: 1 to 300 printable, no blanks."""
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable() and " " not in text


def is_topic(text: str) -> bool:
    """Return whether a text is a valid topic name in the routes."""
    return is_name(text)


def is_address(text: str) -> bool:
    """Return whether a text is `host:port`; an IPv6 host may have brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not is_name(host) or "," in host:
        return False
    return port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
