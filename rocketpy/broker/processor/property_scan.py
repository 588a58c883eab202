"""What a send needs of a message's property bytes, without taking them apart each time.

Messages of one producer differ in their UNIQ_KEY and hardly in anything else. So the id is cut
out, and what is left is looked up: its tag, whether the sender waits, whether anything in it
needs the long way. KEYS differ from message to message, so messages with keys are parsed.
"""

from typing import Final, NamedTuple

from rocketpy.proto.properties import parse_properties
from rocketpy.proto.tags import tags_code

SPECIAL_PROPERTIES: Final = frozenset(
    {
        "DELAY",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TRAN_MSG",
        "POP_CK",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
    }
)
"""A message with none of these is an ordinary one whose property bytes stay as they are."""

_MOST_SHAPES: Final = 4_096
_LONGEST_SHAPE_BYTES: Final = 512
_SEPARATOR: Final = 2


class PropertyFacts(NamedTuple):
    """What messages of one shape have in common.

    Attributes:
        is_plain: well-formed, and none of `SPECIAL_PROPERTIES`.
        waits: the sender waits for the disk (WAIT is not false).
        tags: the tag, or None.
        tags_code: its hash, 0 without.
    """

    is_plain: bool
    waits: bool
    tags: str | None
    tags_code: int


class PropertyScanner:
    """Remembers the shapes it has seen; the memory is bounded.

    Not synchronised: concurrent use returns right values, only the bound may be overshot.
    """

    __slots__ = ("_last", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[bytes, PropertyFacts] = {}
        self._last: tuple[bytes, bytes, PropertyFacts] | None = None

    def scan(self, properties: bytes) -> tuple[str, PropertyFacts] | None:
        """Return the UNIQ_KEY and the facts of the rest; None: parse this one.

        Args:
            properties: as the client sent them.
        """
        last = self._last
        if last is not None:
            head, tail, facts = last
            if properties.startswith(head) and properties.endswith(tail):
                key = properties[len(head) : -len(tail)]
                if key.isalnum():
                    return key.decode(), facts
        at = properties.find(b"UNIQ_KEY\x01")
        if at and (at < 0 or properties[at - 1] != _SEPARATOR):
            return None
        end = properties.find(b"\x02", at)
        if end < 0 or b"KEYS\x01" in properties:
            return None
        key = properties[at + 9 : end]
        shape = properties[:at] + properties[end:]
        facts = self._shapes.get(shape) or self._learn(shape)
        if not key.isalnum():
            return None
        self._last = properties[: at + 9], properties[end:], facts
        return key.decode(), facts

    def _learn(self, shape: bytes) -> PropertyFacts:
        text = shape.decode("utf-8", "replace")
        pairs = [pair for pair in text.split("\x02") if pair]
        found = parse_properties(text)
        tags = found.get("TAGS")
        facts = PropertyFacts(
            text.endswith("\x02")
            and len(found) == len(pairs)
            and SPECIAL_PROPERTIES.isdisjoint(found),
            found.get("WAIT") != "false",
            tags,
            tags_code(tags) if tags else 0,
        )
        if len(shape) <= _LONGEST_SHAPE_BYTES:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = facts
        return facts
