"""Arrow columns of common records by the compiled decoder, where it is installed.

`reference_rows` is the reference for the same columns, and replaces this module where RocketPy is
pure (docs/decisions/0009-a-compiled-decoder-for-arrow.md).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.arrow.gather import Int64s, repeated
from rocketpy.arrow.record_headers import LAYOUT, Bytes, Mask
from rocketpy.arrow.schema import PROPERTIES, TIMESTAMP, RowSchema
from rocketpy.compiled_module import load_compiled
from rocketpy.proto.record.message import bytes_to_host
from rocketpy.proto.record.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY

_MODULE: Final = "rocketpy.arrow._rows"
_SLOTS: Final = {"keys": 0, "tags": 1, "msgId": 2}
_NAMES: Final = tuple(name.encode() for name in (PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY))
_SPARE_BYTES: Final = 16
"""`SPARE` of `_rows.pyx`: it writes up to so many bytes behind the last text."""
_OFFSET_BYTES: Final = 4
_PLACES: Final[dict[str, Any]] = dict(LAYOUT.fields or {})

NEED_PROPERTIES: Final = frozenset({*_SLOTS, "properties"})
"""Columns that are made from properties."""
_TIMES: Final = {"bornTimestamp": "born_timestamp_ms", "storeTimestamp": "store_timestamp_ms"}
_HOSTS: Final = {"bornHost": "born_host", "storeHost": "store_host"}
_FIXED: Final = {
    "queueId": ("queue_id", "int"),
    "queueOffset": ("queue_offset", "long"),
    "sysFlag": ("sys_flag", "int"),
    "flag": ("flag", "int"),
    "reconsumeTimes": ("reconsume_times", "int"),
    **{name: (field, "time") for name, field in _TIMES.items()},
    **{name: (field, "host") for name, field in _HOSTS.items()},
}
"""By column of fixed width: its field in the layout of a record, and how it is written."""


_Fixed: TypeAlias = Sequence[tuple[int, str, pa.Buffer]]


class Rows(Protocol):
    """Interface of the compiled class `Rows`; `_rows.pyx` documents each method."""

    body_room: int
    count: int
    body_bytes: int
    topic_bytes: int
    pair_count: int
    name_bytes: int
    value_bytes: int

    def odd(self) -> bytes | None:
        """Return which records were left out."""
        ...

    def read(self, fixed: _Fixed, offsets: pa.Buffer | None, bodies: pa.Buffer | None) -> None:
        """Read the records; write fixed fields and bodies."""
        ...

    def topics(self, offsets: pa.Buffer, values: pa.Buffer) -> None:
        """Write the topics."""
        ...

    def slot_size(self, slot: int) -> tuple[int, int]:
        """Return how many rows have a property, and the bytes of its values."""
        ...

    def values(
        self,
        slot: int,
        valid: bytearray | None,
        offsets: pa.Buffer,
        values: pa.Buffer,
        or_place: bool,
    ) -> None:
        """Write the values of a property."""
        ...

    def maps(
        self,
        first: pa.Buffer,
        name_offsets: pa.Buffer,
        names: pa.Buffer,
        value_offsets: pa.Buffer,
        values: pa.Buffer,
    ) -> None:
        """Write all properties."""
        ...


MakeRows: TypeAlias = Callable[
    [pa.Buffer, Int64s, int | None, tuple[bytes, ...] | None, bool, bool], Rows
]


def compiled_rows() -> MakeRows | None:
    """Return the compiled class `Rows`; None when it is not installed or is disabled.

    Raises:
        ImportError: it is not installed, and ROCKETPY_COMPILED=1 requires it.
    """
    module = load_compiled(_MODULE)
    if module is None:
        return None
    make: MakeRows = module.Rows
    return make


class CompiledRows:
    """Rows of those records that the compiled decoder can read.

    Attributes:
        fast: which records these are, one bool per position; None: all.
        count: rows.
    """

    def __init__(
        self,
        make: MakeRows,
        data: pa.Buffer,
        positions: Int64s,
        schema: RowSchema,
        *,
        base_offset: int | None,
        needs_pairs: bool,
        check_crc: bool,
    ) -> None:
        """Read the records.

        Args:
            make: from `compiled_rows`.
            data: `pyarrow.Buffer` with the records.
            positions: int64, where they begin; positions outside the data are left out.
            schema: the columns to make.
            base_offset: physical offset of the first byte of `data`; None: not compared.
            needs_pairs: whether a column, or the filter by tags, needs properties.
            check_crc: compare bodies with their checksums.
        """
        self._fields: dict[str, pa.Buffer] = {}
        for name in schema.names:
            if name in _FIXED:
                width = _OFFSET_BYTES if _FIXED[name][1] == "int" else 8
                self._fields[name] = pa.allocate_buffer(len(positions) * width)
        fixed = [
            (_PLACES[_FIXED[name][0]][1], _FIXED[name][1], buffer)
            for name, buffer in self._fields.items()
        ]
        body = schema.arrow.field(schema.names.index("body")) if "body" in schema.names else None
        is_text = body is not None and body.type == pa.string()
        names = _NAMES if needs_pairs else None
        places = np.ascontiguousarray(positions, np.int64)
        rows = make(data, places, base_offset, names, is_text, check_crc)
        self._body: tuple[pa.Buffer, pa.Buffer] | None = None
        if body is not None:
            self._body = _offsets(len(positions)), pa.allocate_buffer(rows.body_room)
        rows.read(fixed, *(self._body or (None, None)))
        odd = rows.odd()
        self.fast: Mask | None = None if odd is None else np.frombuffer(odd, np.bool_) ^ True
        self.count: int = rows.count
        self._rows = rows

    def column(self, name: str, kind: pa.DataType, broker_name: str) -> pa.Array:
        """Return a column by its name inside RocketPy (`Column.name`)."""
        rows, count = self._rows, self.count
        if name in _HOSTS:
            stored = np.frombuffer(self._fields[name], np.uint8, count * 8)
            return _host_texts(stored.reshape(count, 8))
        if name in _FIXED:
            kind = TIMESTAMP if name in _TIMES else kind
            return pa.Array.from_buffers(kind, count, [None, self._fields[name]])
        if name == "brokerName":
            return repeated(broker_name.encode(), count, kind)
        if name == "properties":
            return self._maps()
        if name == "body":
            assert self._body is not None
            return pa.Array.from_buffers(kind, count, [None, *self._body])
        offsets = _offsets(count)
        valid: pa.Buffer | None = None
        if name == "topic":
            values = _room(rows.topic_bytes)
            rows.topics(offsets, values)
        else:
            slot, is_id = _SLOTS[name], name == "msgId"
            there, size = rows.slot_size(slot)
            bits = None if is_id or there == count else bytearray((count + 7) // 8)
            values = _room(size + (32 * (count - there) if is_id else 0))
            rows.values(slot, bits, offsets, values, is_id)
            valid = None if bits is None else pa.py_buffer(bits)
        return pa.Array.from_buffers(kind, count, [valid, offsets, values])

    def _maps(self) -> pa.Array:
        """Return all pairs as an array of maps, one per record, in the order of the text."""
        rows = self._rows
        first, of_names = _offsets(self.count), _offsets(rows.pair_count)
        of_values = _offsets(rows.pair_count)
        names, values = _room(rows.name_bytes), _room(rows.value_bytes)
        rows.maps(first, of_names, names, of_values, values)
        texts = [
            pa.Array.from_buffers(pa.string(), rows.pair_count, [None, offsets, text])
            for offsets, text in ((of_names, names), (of_values, values))
        ]
        entries = pa.StructArray.from_arrays(
            texts, fields=[PROPERTIES.key_field, PROPERTIES.item_field]
        )
        return pa.Array.from_buffers(PROPERTIES, self.count, [None, first], children=[entries])


def _offsets(count: int) -> pa.Buffer:
    return pa.allocate_buffer((count + 1) * _OFFSET_BYTES)


def _room(size: int) -> pa.Buffer:
    return pa.allocate_buffer(size + _SPARE_BYTES)


def _host_texts(stored: Bytes) -> pa.Array:
    """Return `ip:port` of each row; each distinct host is formatted once."""
    distinct, of_row = np.unique(stored.view(np.uint64).reshape(-1), return_inverse=True)
    texts = [bytes_to_host(host.tobytes()) for host in distinct]
    return pc.take(pa.array(texts, pa.string()), pa.array(of_row.reshape(-1)))
