"""Fixed fields of many records at once, and the positions of their other parts.

The 88 bytes of each record are gathered and seen through a structured type with the layout of
`proto.record`. That serves records of version 1 with IPv4 hosts and consistent lengths, which
nearly all are; `RecordHeaders.regular` is their mask. Callers read the others one by one.
"""

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketpy.arrow.gather import Int64s
from rocketpy.proto.record.record import (
    FIXED_BYTES,
    FIXED_NAMES,
    HOST_FLAGS,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    fixed_format,
)

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_KINDS: Final = {"i": ">i4", "q": ">i8"}


def _layout() -> np.dtype[Any]:
    fields = re.findall(r"\d+s|[iq]", fixed_format())
    kinds = [_KINDS.get(each, f"V{each[:-1]}") for each in fields]
    return np.dtype(list(zip(FIXED_NAMES, kinds, strict=True)))


LAYOUT: Final = _layout()
"""The fixed part with IPv4 hosts, as a numpy type of 88 bytes."""
_OPAQUE: Final = np.dtype(f"V{LAYOUT.itemsize}")
_TOPIC_LENGTH_BYTES: Final = 1
_PROPERTIES_LENGTH_BYTES: Final = 2
assert LAYOUT.itemsize + _PROPERTIES_LENGTH_BYTES == FIXED_BYTES


class RecordHeaders:
    """Fixed fields of records, and the positions of their bodies, topics and properties.

    Attributes:
        regular: one bool per record: version 1, IPv4 hosts, and consistent lengths. The positions
            of other records' parts are undefined.
        positions: int64, where each record begins in the data.
        body_at: int64, where each body begins.
        body_end: int64, where it ends.
        topic_at: int64, where each topic begins.
        topic_end: int64, where it ends.
        properties_at: int64, where the properties begin.
        end: int64, where the record ends.
    """

    positions: Int64s
    regular: Mask
    body_at: Int64s
    body_end: Int64s
    topic_at: Int64s
    topic_end: Int64s
    properties_at: Int64s
    end: Int64s
    _fixed: npt.NDArray[Any]

    def __init__(self, data: Bytes, positions: Int64s) -> None:
        """Read the fixed parts of the records at these positions, which need not be valid."""
        size = len(data)
        self.positions = positions
        inside = (positions >= 0) & (positions + LAYOUT.itemsize <= size)
        self._fixed = _fixed_parts(data, positions, inside)
        regular = inside & (self.field("magic") == MAGIC_V1)
        regular &= (self.field("sys_flag") & HOST_FLAGS) == 0
        total = self.field("size_bytes").astype(np.int64)
        body_bytes = self.field("body_bytes").astype(np.int64)
        self.end = positions + total
        regular &= (total >= MIN_RECORD_BYTES) & (self.end <= size)
        regular &= (body_bytes >= 0) & (body_bytes <= total - MIN_RECORD_BYTES)
        self.body_at = positions + LAYOUT.itemsize
        self.body_end = self.body_at + body_bytes
        length_at = _where(regular, self.body_end, 0)
        self.topic_at = length_at + _TOPIC_LENGTH_BYTES
        # Without a regular record the data may be empty: there is no byte to read.
        self.topic_end = self.topic_at + (data[length_at] if size else 0)
        regular &= self.topic_end + _PROPERTIES_LENGTH_BYTES <= self.end
        self.properties_at = self.topic_end + _PROPERTIES_LENGTH_BYTES
        if size >= _PROPERTIES_LENGTH_BYTES:
            lengths = np.ndarray((size - 1,), ">u2", data, strides=(1,))
            regular &= self.properties_at + lengths[_where(regular, self.topic_end, 0)] == self.end
        self.regular = regular

    def field(self, name: str) -> npt.NDArray[Any]:
        """Return a fixed field of every record, big-endian, by its name in the layout."""
        found: npt.NDArray[Any] = self._fixed[name]
        return found

    def select(self, wanted: Mask | Int64s) -> "RecordHeaders":
        """Return the headers of some of the records, by a mask or by indices."""
        chosen = object.__new__(RecordHeaders)
        chosen._fixed = self._fixed[wanted]
        for name in _ARRAYS:
            setattr(chosen, name, getattr(self, name)[wanted])
        return chosen


_ARRAYS: Final = (
    "positions",
    "regular",
    "body_at",
    "body_end",
    "topic_at",
    "topic_end",
    "properties_at",
    "end",
)


def _where(mask: Mask, values: Int64s, other: int) -> Int64s:
    """Return the values where the mask is set, else `other`; no copy when all are set."""
    return values if mask.all() else np.where(mask, values, other)


def _fixed_parts(data: Bytes, positions: Int64s, inside: Mask) -> npt.NDArray[Any]:
    """Return the fixed part at each position; zeros where the data ends within it."""
    if len(data) < LAYOUT.itemsize:
        return np.zeros(len(positions), LAYOUT)
    # One opaque element begins at each byte: numpy then copies 88 bytes at once, not field by
    # field.
    windows = np.ndarray((len(data) - LAYOUT.itemsize + 1,), _OPAQUE, data, strides=(1,))
    if inside.all():
        return windows[positions].view(LAYOUT)
    parts = windows[np.where(inside, positions, 0)].view(LAYOUT)
    parts[~inside] = np.zeros((), LAYOUT)
    return parts
