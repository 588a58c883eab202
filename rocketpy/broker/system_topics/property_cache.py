"""Property bytes that differ in their UNIQ_KEY only are taken apart once.

The messages of one producer mostly have the same properties, but for the id that its client gives
each of them. So the id is cut out, what is made of the rest is remembered, and the id is put back:
what else would be parsed and encoded for each message is looked up.

Invariant: what comes out are the bytes that parsing, changing and encoding the properties of this
very message would give. It holds because only well-formed properties are remembered, whose id
stands as the whole value of UNIQ_KEY and of the transaction's id, and nowhere else.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from rocketpy.proto.record.properties import (
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_UNIQ_KEY,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.tags import tags_code

HOLE: Final = "\0"
"""Stands where the id was."""

_HOLE: Final = HOLE.encode()
_END: Final = PAIR_SEPARATOR.encode()
_NAME: Final = (PROPERTY_UNIQ_KEY + NAME_SEPARATOR).encode()
_NAME_BYTES: Final = len(_NAME)
_SHORTEST_ID: Final = 16
"""A shorter one may be a part of something else by chance, which would be remembered in vain."""
_LONGEST_ID: Final = 64
_LONGEST_BYTES: Final = 1_024
_MOST: Final = 2_048
"""With what is made of them, some 6 MiB at the worst."""

T = TypeVar("T")


class PropertyTemplate(NamedTuple):
    """Properties to store, and what the index and the queue entry take of them.

    Attributes:
        pieces: the encoded properties, cut where the id goes.
        uniq_key: UNIQ_KEY; `HOLE` where the id goes.
        keys: KEYS.
        tags: TAGS.
        tags_code: hash of the tags, 0 without.
    """

    pieces: tuple[bytes, ...]
    uniq_key: str | None
    keys: str | None
    tags: str | None
    tags_code: int


def outline_of(properties: Mapping[str, str]) -> PropertyTemplate:
    """Return the outline of properties with a hole, or without one."""
    tags = properties.get(PROPERTY_TAGS)
    return PropertyTemplate(
        tuple(encode_properties(properties).split(_HOLE)),
        properties.get(PROPERTY_UNIQ_KEY),
        properties.get(PROPERTY_KEYS),
        tags,
        tags_code(tags) if tags else 0,
    )


class PropertyTemplates(Generic[T]):
    """Remembers what is made of properties; bounded, safe from any thread.

    Args:
        make: makes it of parsed properties, whose UNIQ_KEY is `HOLE`, and of the place given to
            `find` or `of`. It must treat UNIQ_KEY as a text that means nothing, and depend on
            nothing else that changes; see `clear`.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[dict[str, str], Hashable], T]) -> None:
        self._make = make
        self._made: dict[tuple[Hashable, bytes], T | None] = {}

    def clear(self) -> None:
        """Forget everything: something changed that what is made depends on."""
        self._made = {}

    def find(self, properties: bytes, place: Hashable = None) -> tuple[bytes, T] | None:
        """Return the id and what is made of the rest; None when it cannot be told apart.

        Args:
            properties: as a client sent them or a record has them.
            place: what else it is made of.
        """
        at = properties.find(_NAME)
        start = at + _NAME_BYTES
        end = properties.find(_END, start)
        if at < 0 or not _SHORTEST_ID <= end - start <= _LONGEST_ID:
            return None
        uniq_key = properties[start:end]
        if not uniq_key.isalnum() or _HOLE in properties:
            return None
        rest = properties.replace(uniq_key, _HOLE)
        made = self._made
        key = (place, rest)
        found = made.get(key)
        if found is None:
            if key in made or len(rest) > _LONGEST_BYTES:
                return None
            found = self._learn(rest, place)
            if len(made) < _MOST:
                made[key] = found
            elif self._made is made:  # not cleared meanwhile
                self._made = {}
            if found is None:
                return None
        return uniq_key, found

    def of(self, properties: bytes, place: Hashable = None) -> tuple[bytes, T]:
        """Return the id and what is made of the rest; of the whole, and `HOLE`, if need be."""
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


def filled(outline: PropertyTemplate, uniq_key: bytes) -> tuple[bytes, str | None]:
    """Put the id back; return the encoded properties and UNIQ_KEY."""
    own = outline.uniq_key
    return uniq_key.join(outline.pieces), uniq_key.decode() if own == HOLE else own
