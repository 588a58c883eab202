"""The properties of many records at once: separators found, pairs cut, without a loop.

The text is `name 0x01 value 0x02` for each pair. Both separators are ASCII, so bytes can be cut
before they are decoded. A record is *regular* when its pairs are whole, nothing is empty, no name
comes twice and everything is UTF-8; the last 0x02 may be missing, as clients before 5.0 leave it.
Others (`Pairs.odd`) are the slow path's, which knows what Java makes of them.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketpy.arrow.gather import Int64s, gather, gathered_bytes, is_utf8, not_utf8
from rocketpy.arrow.record_headers import Bytes, Mask
from rocketpy.arrow.schema import PROPERTIES
from rocketpy.proto.record.properties import NAME_SEPARATOR, PAIR_SEPARATOR

_NAME_END: Final = ord(NAME_SEPARATOR)
_PAIR_END: Final = ord(PAIR_SEPARATOR)
assert (_NAME_END, _PAIR_END) == (1, 2)


class Pairs:
    """The pairs of regular records.

    Attributes:
        odd: one bool a record given: not regular. When there is one, there are no pairs: ask
            again without those records.
        first: int32, shape (records + 1,): the first pair of each record, and the end.
    """

    def __init__(self, data: pa.Buffer, starts: Int64s, ends: Int64s) -> None:
        """Cut the properties that lie from `starts` to `ends` (int64) of a `pyarrow.Buffer`."""
        texts = gather(data, starts, ends, pa.binary())
        self._text, places = gathered_bytes(texts)
        self._source = texts.buffers()[2] or pa.py_buffer(b"")
        self.odd: npt.NDArray[np.bool_] = np.zeros(len(starts), np.bool_)
        separators: Int64s = np.flatnonzero(self._text <= _PAIR_END)
        kinds = self._text[separators]
        if _alternate(kinds):
            each = _same_in_all(separators, places)
            if each:
                self._per_row = np.full(len(starts), each, np.int64)
                self._cut(separators, places.astype(np.int64), np.empty(0, np.int64))
                self._find_bad_text(texts)
                return
        else:  # there may be bytes of 0 among them, which are text
            separators = separators[kinds != 0]
            kinds = kinds[kinds != 0]
        rows = places.astype(np.int64)
        lacking = _without_last(self._text, rows)
        if len(lacking):
            order = np.argsort(np.concatenate((separators, rows[lacking + 1])), kind="stable")
            separators = np.concatenate((separators, rows[lacking + 1]))[order]
            kinds = np.concatenate((kinds, np.full(len(lacking), _PAIR_END, np.uint8)))[order]
        # A virtual separator lies on the first byte of the next record, so it counts to its own.
        self._mark_odd(separators, kinds, rows, lacking)
        if self.odd.any():
            return
        self._cut(separators, rows, lacking)
        self._find_bad_text(texts)

    def _find_bad_text(self, texts: pa.Array) -> None:
        if not self.odd.any() and not is_utf8(texts):
            self.odd = not_utf8(texts)

    def _mark_odd(self, separators: Int64s, kinds: Bytes, rows: Int64s, lacking: Int64s) -> None:
        """Find records whose separators do not alternate, beginning with that of a name."""
        self._per_row = _count_in_rows(separators, rows, lacking)
        if _alternate(kinds) and not (self._per_row & 1).any():
            return
        first = np.cumsum(self._per_row) - self._per_row
        row_of = np.repeat(np.arange(len(self.odd)), self._per_row)
        expected = _NAME_END + ((np.arange(len(separators)) - first[row_of]) & 1)
        self.odd[row_of[kinds != expected]] = True
        self.odd |= (self._per_row & 1).astype(np.bool_)

    def _cut(self, separators: Int64s, rows: Int64s, lacking: Int64s) -> None:
        """Set names and values, and find empty ones and names that come twice."""
        name_end, value_end = separators[::2], separators[1::2]
        name_at = np.empty_like(name_end)
        if len(name_at):
            name_at[0] = 0
            name_at[1:] = value_end[:-1] + 1
        self.first: npt.NDArray[np.int32] = np.zeros(len(rows), np.int32)
        np.cumsum(self._per_row >> 1, out=self.first[1:])
        if len(lacking):
            begins = self.first[:-1][self._per_row > 0]
            name_at[begins] = rows[:-1][self._per_row > 0]
        empty = (name_end == name_at) | (value_end == name_end + 1)
        if empty.any():
            self.odd[self._row_of(np.flatnonzero(empty))] = True
            return
        self.names: pa.Array = gather(self._source, name_at, name_end, pa.string())
        self._value_at, self._value_end = name_end + 1, value_end
        self._index_names()

    def _row_of(self, pairs: Int64s) -> Int64s:
        return np.searchsorted(self.first, pairs, side="right") - 1

    def _index_names(self) -> None:
        """Give each distinct name a number; find records in which one comes twice."""
        count = len(self.odd)
        pairs = len(self.names)
        each = pairs // count if count else 0
        self._shape: list[bytes] | None = None
        if each and each * count == pairs and bool((np.diff(self.first) == each).all()):
            head = self.names[:each]
            text, places = gathered_bytes(self.names)
            width = int(places[each])
            tile = text[:width]
            lengths = np.diff(places).reshape(count, each)
            if bool((lengths == lengths[0]).all()) and bool(
                (text.reshape(count, width) == tile).all()
            ):
                shape = [each.as_buffer().to_pybytes() for each in head]
                if len(set(shape)) == each:
                    self._shape = shape
                    return
        coded = self.names.dictionary_encode()
        self._codes = coded.indices.to_numpy()
        self._distinct = [name.as_buffer().to_pybytes() for name in coded.dictionary]
        row_of = np.repeat(np.arange(count), np.diff(self.first))
        keys = np.sort(row_of * (len(self._distinct) or 1) + self._codes)
        twice = keys[1:][keys[1:] == keys[:-1]]
        if len(twice):
            self.odd[twice // len(self._distinct)] = True

    def values_of(self, name: str) -> tuple[pa.Array, Mask]:
        """Return one property of every record.

        Returns:
            An array of strings, empty where a record has it not, and which have it (one bool a
            record).
        """
        count = len(self.odd)
        raw = name.encode()
        if self._shape is not None and raw in self._shape:
            at, step = self._shape.index(raw), len(self._shape)
            starts, ends = self._value_at[at::step], self._value_end[at::step]
            return gather(self._source, starts, ends, pa.string()), np.ones(count, np.bool_)
        pair_of = np.full(count, -1, np.int64)
        if self._shape is None and raw in self._distinct:
            pairs = np.flatnonzero(self._codes == self._distinct.index(raw))
            pair_of[self._row_of(pairs)] = pairs
        has = pair_of >= 0
        starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        starts[has] = self._value_at[pair_of[has]]
        ends[has] = self._value_end[pair_of[has]]
        return gather(self._source, starts, ends, pa.string()), has

    def maps(self) -> pa.Array:
        """Return all pairs as an array of maps, one a record, in the order of the text."""
        values = gather(self._source, self._value_at, self._value_end, pa.string())
        entries = pa.StructArray.from_arrays(
            [self.names, values], fields=[PROPERTIES.key_field, PROPERTIES.item_field]
        )
        return pa.Array.from_buffers(
            PROPERTIES, len(self.odd), [None, pa.py_buffer(self.first)], children=[entries]
        )


def _alternate(kinds: Bytes) -> bool:
    """Whether separators of names and of pairs take turns."""
    names, pairs = kinds[::2], kinds[1::2]
    return bool(
        len(names) == len(pairs) and (names == _NAME_END).all() and (pairs == _PAIR_END).all()
    )


def _same_in_all(separators: Int64s, places: npt.NDArray[np.int32]) -> int:
    """Return how many separators each row has, when all have as many and end with one; else 0."""
    each, rest = divmod(len(separators), max(1, len(places) - 1))
    if rest or not each or each % 2:
        return 0
    return each if bool((separators[each - 1 :: each] == places[1:] - 1).all()) else 0


def _without_last(text: Bytes, rows: Int64s) -> Int64s:
    """Return the rows that are not empty and do not end with the separator of pairs."""
    last = np.maximum(rows[1:] - 1, 0)
    if not len(text):
        return np.empty(0, np.int64)
    return np.flatnonzero((text[last] != _PAIR_END) & (rows[1:] > rows[:-1]))


def _count_in_rows(separators: Int64s, rows: Int64s, lacking: Int64s) -> Int64s:
    """Return how many separators each row has, the virtual ones at its end included."""
    if not len(lacking):
        return np.diff(np.searchsorted(separators, rows))
    real = np.ones(len(separators), np.bool_)
    real[np.searchsorted(separators, rows[lacking + 1])] = False
    per_row = np.diff(np.searchsorted(separators[real], rows))
    per_row[lacking] += 1
    return per_row
