"""Topic and properties of records that differ in nothing but the values, cut as columns of bytes.

Most batches come from one producer of one topic: what follows the body has the same length, the
same names and values as long as each other in every record. Laid side by side, such tails are a
table of bytes, and the least and the largest byte of each of its columns say all there is to check:
where both are equal all records have that byte, and a value whose least byte is above both
separators holds none of them. The values are then slices of the table.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rocketpy.arrow.gather import gather, gathered_bytes
from rocketpy.arrow.record_headers import Bytes, Heads, Mask
from rocketpy.arrow.schema import PROPERTIES
from rocketpy.proto.record.properties import NAME_SEPARATOR, PAIR_SEPARATOR

_NAME_END = ord(NAME_SEPARATOR)
_PAIR_END = ord(PAIR_SEPARATOR)


class _Pair(NamedTuple):
    """A property of all records: its name, and which columns of the table hold the values."""

    name: bytes
    start: int
    end: int


class EvenTails:
    """The same as `properties.Pairs` for such records, and their topic.

    Attributes:
        topic: the one of all records, ASCII.
    """

    def __init__(self, table: Bytes, topic: bytes, pairs: list[_Pair]) -> None:
        """Take what `even_tails` found; use that."""
        self.topic = topic
        self._table = table
        self._pairs = pairs

    def values_of(self, name: str) -> tuple[pa.Array, Mask]:
        """Return one property of every record.

        Returns:
            An array of strings, empty where a record has it not, and which have it (one bool a
            record).
        """
        raw = name.encode()
        for pair in self._pairs:
            if pair.name == raw:
                return self._strings([pair]), np.ones(len(self._table), np.bool_)
        return self._strings([_Pair(raw, 0, 0)]), np.zeros(len(self._table), np.bool_)

    def maps(self) -> pa.Array:
        """Return all pairs as an array of maps, one a record, in the order of the text."""
        count, each = len(self._table), len(self._pairs)
        names = b"".join([pair.name for pair in self._pairs])
        keys = _strings(
            [len(pair.name) for pair in self._pairs], count, pa.py_buffer(names * count)
        )
        entries = pa.StructArray.from_arrays(
            [keys, self._strings(self._pairs)], fields=[PROPERTIES.key_field, PROPERTIES.item_field]
        )
        first = np.arange(count + 1, dtype=np.int32) * np.int32(each)
        return pa.Array.from_buffers(
            PROPERTIES, count, [None, pa.py_buffer(first)], children=[entries]
        )

    def _strings(self, pairs: list[_Pair]) -> pa.Array:
        """Return the values of some pairs, those of a record together."""
        count = len(self._table)
        widths = [pair.end - pair.start for pair in pairs]
        text = np.empty((count, sum(widths)), np.uint8)
        at = 0
        for pair, width in zip(pairs, widths, strict=True):
            text[:, at : at + width] = self._table[:, pair.start : pair.end]
            at += width
        return _strings(widths, count, pa.py_buffer(text))


def even_tails(data: pa.Buffer, heads: Heads) -> EvenTails | None:
    """Return what follows the bodies of plain records when it is even; None when it is not.

    Args:
        data: `pyarrow.Buffer` with the records.
        heads: of plain records only.
    """
    lengths = heads.end - heads.body_end
    count = len(lengths)
    if not count or int(lengths.min()) != int(lengths.max()):
        return None
    width = int(lengths[0])
    first = bytes(memoryview(data)[int(heads.body_end[0]) : int(heads.end[0])])
    properties_at = int(heads.properties_at[0] - heads.body_end[0])
    pairs = _pairs(first, properties_at)
    if pairs is None:
        return None
    text, _ = gathered_bytes(gather(data, heads.body_end, heads.end, pa.binary()))
    table = text.reshape(count, width)
    low, high = table.min(axis=0), table.max(axis=0)
    is_value = np.zeros(width, np.bool_)
    for pair in pairs:
        is_value[pair.start : pair.end] = True
    same = bool((low == high)[~is_value].all())
    whole = bool((low[is_value] > _PAIR_END).all())
    length_at = properties_at - 2
    ascii_only = int(high[1:length_at].max(initial=0)) | int(high[properties_at:].max(initial=0))
    if not (same and whole and ascii_only < 0x80):
        return None
    return EvenTails(table, first[1:length_at], pairs)


def _pairs(tail: bytes, properties_at: int) -> list[_Pair] | None:
    """Cut the properties of one record; None when they are not regular."""
    if not tail.endswith(bytes([_PAIR_END])) or len(tail) == properties_at:
        return None
    pairs = []
    at = properties_at
    for text in tail[properties_at:-1].split(bytes([_PAIR_END])):
        name, separator, value = text.partition(bytes([_NAME_END]))
        if not (name and separator and value) or _NAME_END in value:
            return None
        start = at + len(name) + 1
        at = start + len(value) + 1
        pairs.append(_Pair(name, start, at - 1))
    return pairs if len({pair.name for pair in pairs}) == len(pairs) else None


def _strings(widths: list[int], count: int, data: pa.Buffer) -> pa.Array:
    """Return strings whose lengths repeat every record."""
    ends = np.cumsum(widths, dtype=np.int32)
    offsets = np.zeros(count * len(widths) + 1, np.int32)
    rows = np.arange(count, dtype=np.int32) * ends[-1]
    np.add.outer(rows, ends, out=offsets[1:].reshape(count, len(widths)))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])
