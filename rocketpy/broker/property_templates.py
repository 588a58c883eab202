"""Cache of property templates: properties that differ only in their UNIQ_KEY are parsed once.

Most messages of a producer have the same properties except for the id that the client gives each of
them. The cache replaces the id by a placeholder and stores a value made of the rest: a summary for
a send (`PropertyScanner`), the message after put transforms (`RewriteCache`), or the real topic and
properties of a half (`EndTransactions`) or of a delayed message (`delay.delivery`).

Invariant: the result equals the bytes that parsing, changing and encoding the properties of the
message itself would give. It holds because only well-formed properties are cached in which the id
is the complete value of UNIQ_KEY and of the transaction id, and appears nowhere else.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from rocketpy.proto.record.properties import (
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.tags import tags_code

SPECIAL_PROPERTIES: Final = frozenset(
    {
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_POP_CK,
        PROPERTY_CLUSTER,
        PROPERTY_MSG_REGION,
        PROPERTY_TRACE_SWITCH,
    }
)
"""Properties with a meaning to the broker; a message without them is stored with its own bytes."""

HOLE: Final = "\0"
"""Placeholder of the id; properties that contain it are not cached."""

_HOLE: Final = HOLE.encode()
_END: Final = PAIR_SEPARATOR.encode()
_NAME: Final = (PROPERTY_UNIQ_KEY + NAME_SEPARATOR).encode()
_NAME_BYTES: Final = len(_NAME)
_SHORTEST_ID: Final = 16
"""A shorter id may appear by chance in another value; its properties would be cached in vain."""
_LONGEST_ID: Final = 64
_LONGEST_BYTES: Final = 1_024
_MOST: Final = 2_048
"""Bounds of the cache: with the values made of the properties, 6 MiB in the worst case."""

_KEYS: Final = (PROPERTY_KEYS + NAME_SEPARATOR).encode()

T = TypeVar("T")


class PropertyTemplate(NamedTuple):
    """Properties to store, with the parts that the index and the queue entry need.

    Attributes:
        pieces: the encoded properties, split at the places of the id.
        uniq_key: UNIQ_KEY; `HOLE` stands for the id.
        keys: KEYS.
        tags: TAGS.
        tags_code: hash of the tags, 0 without tags.
    """

    pieces: tuple[bytes, ...]
    uniq_key: str | None
    keys: str | None
    tags: str | None
    tags_code: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the template of properties that may have `HOLE` as UNIQ_KEY."""
        tags = properties.get(PROPERTY_TAGS)
        return cls(
            tuple(encode_properties(properties).split(_HOLE)),
            properties.get(PROPERTY_UNIQ_KEY),
            properties.get(PROPERTY_KEYS),
            tags,
            tags_code(tags) if tags else 0,
        )

    def fill(self, uniq_key: bytes) -> tuple[bytes, str | None]:
        """Insert an id; returns the encoded properties and UNIQ_KEY."""
        own = self.uniq_key
        return uniq_key.join(self.pieces), uniq_key.decode() if own == HOLE else own


class PropertyTemplates(Generic[T]):
    """Caches values made of properties; bounded, safe from any thread.

    Args:
        make: makes a value of parsed properties with `HOLE` as UNIQ_KEY, and of the place passed
            to `find` or `of`. It must treat UNIQ_KEY as an opaque text, and must depend on nothing
            else that changes without a call of `clear`.
    """

    __slots__ = ("_last", "_made", "_make")

    def __init__(self, make: Callable[[dict[str, str], Hashable], T]) -> None:
        self._make = make
        self._made: dict[tuple[Hashable, bytes], T | None] = {}
        # The last hit: the cache it belongs to (another thread may have cleared that), the place,
        # the bytes before and after the id, and the value. Consecutive messages usually share it.
        self._last: tuple[object, Hashable, bytes, bytes, T] | None = None

    def clear(self) -> None:
        """Drop all values, because something that `make` depends on has changed."""
        # Replaced, not cleared: another thread may be adding a value made from the old state, which
        # then goes into the old dictionary.
        self._made = {}

    def find(self, properties: bytes, place: Hashable = None) -> tuple[bytes, T] | None:
        """Return the id and the value of the rest; None when the id cannot be isolated.

        Args:
            properties: property bytes from a client or a record.
            place: further input of `make`.
        """
        last, made = self._last, self._made
        if last is not None and last[0] is made and last[1] == place:
            _, _, head, tail, found = last
            if properties.startswith(head) and properties.endswith(tail):
                uniq_key = properties[len(head) : -len(tail)]
                if uniq_key.isalnum():
                    return uniq_key, found
        at = properties.find(_NAME)
        start = at + _NAME_BYTES
        end = properties.find(_END, start)
        if at < 0 or not _SHORTEST_ID <= end - start <= _LONGEST_ID:
            return None
        uniq_key = properties[start:end]
        if not uniq_key.isalnum() or _HOLE in properties:
            return None
        rest = properties.replace(uniq_key, _HOLE)
        key = (place, rest)
        value = made.get(key)
        if value is None:
            if key in made or len(rest) > _LONGEST_BYTES:
                return None
            value = self._learn(rest, place)
            if len(made) < _MOST:
                made[key] = value
            elif self._made is made:  # the cache is full, and was not cleared meanwhile
                self._made = {}
            if value is None:
                return None
        head, _, tail = rest.partition(_HOLE)
        if _HOLE not in tail:
            self._last = made, place, head, tail, value
        return uniq_key, value

    def of(self, properties: bytes, place: Hashable = None) -> tuple[bytes, T]:
        """Return the id and the value; if the id cannot be isolated, `HOLE` and a fresh value."""
        return self.find(properties, place) or (
            _HOLE,
            self._make(parse_properties(properties), place),
        )

    def _learn(self, rest: bytes, place: Hashable) -> T | None:
        try:
            parsed = parse_properties(rest.decode())
        except UnicodeDecodeError:
            return None
        holes = sum(
            parsed.get(name) == HOLE for name in (PROPERTY_UNIQ_KEY, PROPERTY_TRANSACTION_ID)
        )
        is_regular = rest.endswith(_END) and rest.count(_END) == len(parsed)
        if not is_regular or parsed.get(PROPERTY_UNIQ_KEY) != HOLE or rest.count(_HOLE) != holes:
            return None
        return self._make(parsed, place)


class PropertySummary(NamedTuple):
    """Summary of a message's properties, without UNIQ_KEY and KEYS.

    Attributes:
        is_plain: whether they are well-formed and contain none of `SPECIAL_PROPERTIES`.
        waits: whether the sender waits for the disk (WAIT is not false).
        tags: the tag, or None.
        tags_code: hash of the tag, 0 without a tag.
    """

    is_plain: bool
    waits: bool
    tags: str | None
    tags_code: int


ScannedProperties: TypeAlias = tuple[str, PropertySummary, str | None]
"""UNIQ_KEY, the summary of the other properties, and KEYS."""


def summary_of(properties: dict[str, str], *, is_well_formed: bool = True) -> PropertySummary:
    """Summarize parsed properties.

    Args:
        properties: the properties.
        is_well_formed: whether the bytes they were parsed from can be stored unchanged.
    """
    tags = properties.get(PROPERTY_TAGS)
    return PropertySummary(
        is_well_formed and SPECIAL_PROPERTIES.isdisjoint(properties),
        properties.get(PROPERTY_WAIT_STORE_MSG_OK) != "false",
        tags,
        tags_code(tags) if tags else 0,
    )


class PropertyScanner:
    """Scans property bytes with a bounded cache; safe from any thread."""

    __slots__ = ("_summaries",)

    def __init__(self) -> None:
        self._summaries = PropertyTemplates(lambda properties, _place: summary_of(properties))

    def scan(self, properties: bytes) -> ScannedProperties | None:
        """Return UNIQ_KEY, the summary of the rest, and KEYS; None without a UNIQ_KEY.

        Args:
            properties: property bytes from a client.
        """
        # KEYS differ in each message, so that a template with them would be used once.
        found = None if _KEYS in properties else self._summaries.find(properties)
        if found is None:
            return _parse(properties)
        return found[0].decode(), found[1], None


def _parse(properties: bytes) -> ScannedProperties | None:
    try:
        text = properties.decode()
    except UnicodeDecodeError:
        return None
    found = parse_properties(text)
    uniq_key = found.get(PROPERTY_UNIQ_KEY)
    if uniq_key is None:
        return None
    pairs = [pair for pair in text.split(PAIR_SEPARATOR) if pair]
    # No pair was dropped, and the last one is terminated: the bytes can be stored unchanged.
    is_well_formed = len(found) == len(pairs) and text.endswith(PAIR_SEPARATOR)
    return uniq_key, summary_of(found, is_well_formed=is_well_formed), found.get(PROPERTY_KEYS)
