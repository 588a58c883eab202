"""Which names the name server takes into its tables.

More than clients may choose: brokers also register a topic named as their cluster, their own
name and each consumer group. So nearly everything printable is fine; it is the length that keeps
the tables bounded. No name ever becomes a path.
"""

from typing import Final

MAX_NAME_CHARS: Final = 300


def is_name(text: str) -> bool:
    """Whether a text can name a cluster or a broker: 1 to 300 printable characters, no blanks."""
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable() and " " not in text


def is_topic(text: str) -> bool:
    """Whether a text can name a topic in the routes."""
    return is_name(text)


def is_address(text: str) -> bool:
    """Whether a text is `host:port`; an IPv6 host may stand in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not is_name(host) or "," in host:
        return False
    return port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
