"""Extracts property values from many records with the same layout at once.

Most messages of a producer have the same properties, with values of equal lengths. Then topic,
names and separators are the same bytes at the same positions, counted from the end of the record.
So the positions of the values are determined from one record. For the others one call over all
records compares the layout, and another one extracts the values.

Invariant: the values are those that a search with `record.properties_of` finds in each record. The
lengths of body, topic and properties, all names and all separators are compared, and values must
not contain a separator of pairs; records that are equal in these are parsed equally.
"""

import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Final, Self

from rocketpy.proto.record.properties import (
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_CLUSTER,
    PROPERTY_INSTANCE_ID,
    PROPERTY_MSG_REGION,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocketpy.proto.record.record import HOST_FLAGS, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES

SHAPE_BYTES: Final = 4_096
"""Largest memory of a layout."""

_HEAD: Final = struct.Struct(">4xi28xi44xi")
"""Magic, system flags and the body's length of a record with IPv4 hosts."""
_BODY_AT: Final = _HEAD.size
_TOPIC_SIZES: Final = {MAGIC_V1: struct.Struct(">B"), MAGIC_V2: struct.Struct(">H")}
_PROPERTIES_SIZE_BYTES: Final = 2
_NAME_END: Final = NAME_SEPARATOR.encode()
_PAIR_END: Final = PAIR_SEPARATOR.encode()
_SHORTEST_TAIL_BYTES: Final = 4
_LONGEST_TAIL_BYTES: Final = 1_024
_MOST_PROPERTIES: Final = 24
_CONSTANT: Final = frozenset(
    name.encode()
    for name in (
        PROPERTY_CLUSTER,
        PROPERTY_INSTANCE_ID,
        PROPERTY_MSG_REGION,
        PROPERTY_PRODUCER_GROUP,
        PROPERTY_TRACE_SWITCH,
        PROPERTY_WAIT_STORE_MSG_OK,
    )
)
"""Properties with the same value in all messages of a producer: part of the layout."""


class RecordShape:
    """Layout of a record after its body, with the positions of some properties."""

    __slots__ = ("_around", "_before", "_columns", "_flags", "_magic", "_tail")

    def __init__(
        self, magic: int, flags: int, pieces: Sequence[bytes], columns: Sequence[int]
    ) -> None:
        """Create a layout; see `of`.

        Args:
            magic: of the record.
            flags: system flags of the record.
            pieces: the bytes after the body: alternately fixed ones and values, fixed at both ends.
            columns: indices of the wanted pieces; -1 for a missing property.
        """
        self._magic = magic
        self._flags = flags
        self._around = tuple(pieces[::2])
        self._columns = columns
        self._tail = struct.Struct("".join(f"{len(piece)}s" for piece in pieces))
        self._before = _BODY_AT + self._tail.size

    @classmethod
    def of(cls, record: memoryview, names: Sequence[bytes]) -> Self | None:
        """Determine the layout of a record.

        Args:
            record: the complete record.
            names: of the wanted properties; the last of duplicate properties counts.

        Returns:
            None for unsupported records: IPv6, long or many properties.
        """
        if len(record) < MIN_RECORD_BYTES:
            return None
        magic, flags, body_bytes = _HEAD.unpack_from(record)
        topic_size = _TOPIC_SIZES.get(magic)
        if flags & HOST_FLAGS or topic_size is None or body_bytes < 0:
            return None
        tail = bytes(record[_BODY_AT + body_bytes :])
        if not _SHORTEST_TAIL_BYTES <= len(tail) <= _LONGEST_TAIL_BYTES:
            return None
        at = topic_size.size + topic_size.unpack_from(tail)[0] + _PROPERTIES_SIZE_BYTES
        fixed_at, pieces, found = 0, list[bytes](), dict[bytes, int]()
        for item in tail[at:].split(_PAIR_END):
            name, separator, value = item.partition(_NAME_END)
            if separator and (name in names or name not in _CONSTANT):
                start = at + len(name) + 1
                pieces += (tail[fixed_at:start], value)
                fixed_at = start + len(value)
                if value:
                    found[name] = len(pieces) - 1
            at += len(item) + 1
        pieces.append(tail[fixed_at:])
        if len(pieces) > 2 * _MOST_PROPERTIES + 1:
            return None
        return cls(magic, flags, pieces, [found.get(name, -1) for name in names])

    def values(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[tuple[bytes, ...] | None]:
        """Extract the wanted values from records.

        Args:
            view: memory with all records.
            positions: of the records, bytes.
            sizes: of the records, bytes; all records end within `view`.

        Returns:
            For each record its values in the order of the names, empty for a missing property;
            None for a record with another layout.
        """
        before, tail_bytes = self._before, self._tail.size
        if min(sizes) < before:
            return self._one_by_one(view, positions, sizes)
        heads = list(map(_HEAD.unpack_from, repeat(view), positions))
        magic, flags, count = self._magic, self._flags, len(heads)
        if sizes.count(sizes[0]) == count:
            is_alike = heads.count((magic, flags, sizes[0] - before)) == count
        else:
            is_alike = heads == [(magic, flags, size - before) for size in sizes]
        if not is_alike:
            return self._one_by_one(view, positions, sizes)
        tails = [at + size - tail_bytes for at, size in zip(positions, sizes, strict=True)]
        rows = map(self._tail.unpack_from, repeat(view), tails)
        columns = list(zip(*rows, strict=True))
        for column, fixed in zip(columns[::2], self._around, strict=True):
            if column.count(fixed) != count:
                return self._one_by_one(view, positions, sizes)
        if _PAIR_END in b"".join(chain.from_iterable(columns[1::2])):
            return self._one_by_one(view, positions, sizes)
        columns.append((b"",) * count)  # for column -1
        return list(zip(*[columns[at] for at in self._columns], strict=True))

    def _one_by_one(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[tuple[bytes, ...] | None]:
        pairs = zip(positions, sizes, strict=True)
        return [self._values_of(view, at, size) for at, size in pairs]

    def _values_of(self, view: memoryview, at: int, size: int) -> tuple[bytes, ...] | None:
        body_bytes = size - self._before
        if body_bytes < 0 or _HEAD.unpack_from(view, at) != (self._magic, self._flags, body_bytes):
            return None
        row = self._tail.unpack_from(view, at + size - self._tail.size)
        if row[::2] != self._around or _PAIR_END in b"".join(row[1::2]):
            return None
        row += (b"",)
        return tuple([row[at] for at in self._columns])
