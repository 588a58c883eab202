"""Columns of plain records: each is made at once for all rows."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.arrow.gather import Int64s, gather, repeated
from rocketpy.arrow.properties import Pairs
from rocketpy.arrow.record_headers import Bytes, Heads, Mask
from rocketpy.arrow.schema import TIMESTAMP
from rocketpy.arrow.uniform_properties import EvenTails
from rocketpy.proto.record.message import bytes_to_host
from rocketpy.proto.record.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY

FIELDS: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "reconsumeTimes": "reconsume_times",
}
"""Columns of numbers, and their fields in the layout."""
TIMES: Final = {"bornTimestamp": "born_timestamp_ms", "storeTimestamp": "store_timestamp_ms"}
"""The same for timestamps, which are milliseconds."""
HOSTS: Final = {"bornHost": "born_host", "storeHost": "store_host"}
"""The same for addresses."""
_FROM_PROPERTIES: Final = {"keys": PROPERTY_KEYS, "tags": PROPERTY_TAGS}
NEED_PROPERTIES: Final = frozenset({*_FROM_PROPERTIES, "msgId", "properties"})
"""Columns that are made from properties."""

MAX_TIME_MS: Final = ((1 << 63) - 1) // 1000
"""Times beyond this (either way) are no timestamps: the row has null."""

_HEX: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)


class FastRows:
    """Rows of plain records, made column by column."""

    def __init__(
        self, data: pa.Buffer, heads: Heads, pairs: Pairs | EvenTails | None, broker_name: str
    ) -> None:
        """Take what the columns are made from.

        Args:
            data: `pyarrow.Buffer` with the records.
            heads: of plain records only.
            pairs: their properties; None when no column needs them.
            broker_name: for the column `brokerName`.
        """
        self._data = data
        self._heads = heads
        self._pairs = pairs
        self._broker_name = broker_name
        self._count = len(heads.positions)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column by its name inside RocketPy (`Column.name`)."""
        heads = self._heads
        if name in FIELDS:
            return pa.array(heads.field(FIELDS[name]).astype(kind.to_pandas_dtype()))
        if name in TIMES:
            return timestamps(heads.field(TIMES[name]).astype(np.int64))
        if name == "body":
            return gather(self._data, heads.body_at, heads.body_end, kind)
        if name == "topic":
            if isinstance(self._pairs, EvenTails):
                return repeated(self._pairs.topic, self._count, kind)
            return gather(self._data, heads.topic_at, heads.topic_end, kind)
        if name == "brokerName":
            return repeated(self._broker_name.encode(), self._count, kind)
        if name in HOSTS:
            return host_texts(heads.fixed_bytes(HOSTS[name]))
        assert self._pairs is not None
        if name == "properties":
            return self._pairs.maps()
        if name == "msgId":
            return self._message_ids(self._pairs)
        values, has = self._pairs.values_of(_FROM_PROPERTIES[name])
        return _with_nulls(values, has, kind)

    def tags(self) -> pa.Array:
        """Return the tag of each row, or null."""
        return self.column("tags", pa.string())

    def _message_ids(self, pairs: Pairs | EvenTails) -> pa.Array:
        """Return the producers' ids; the offset id where there is none."""
        values, has = pairs.values_of(PROPERTY_UNIQ_KEY)
        if has.all():
            return values
        host = self._heads.fixed_bytes("store_host")
        stored = np.concatenate((host, self._heads.fixed_bytes("phy_offset")), axis=1)
        text = _HEX[stored].view(np.uint8)
        offsets = np.arange(self._count + 1, dtype=np.int32) * np.int32(text.shape[1])
        ids = pa.Array.from_buffers(
            pa.string(), self._count, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        )
        return pc.if_else(pa.array(has), values, ids)


def timestamps(times_ms: Int64s) -> pa.Array:
    """Return milliseconds since the epoch as timestamps; null where that is out of their range."""
    if not len(times_ms) or (times_ms.max() <= MAX_TIME_MS and times_ms.min() >= -MAX_TIME_MS):
        micros = pa.py_buffer(times_ms * 1000)
        return pa.Array.from_buffers(TIMESTAMP, len(times_ms), [None, micros])
    out_of_range = (times_ms > MAX_TIME_MS) | (times_ms < -MAX_TIME_MS)
    return pa.array(np.where(out_of_range, 0, times_ms) * 1000, mask=out_of_range).cast(TIMESTAMP)


def _with_nulls(values: pa.Array, has: Mask, kind: pa.DataType) -> pa.Array:
    """Return an array of strings with null where a row has it not."""
    _, offsets, data = values.buffers()
    valid = None if has.all() else pa.py_buffer(np.packbits(has, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, offsets, data])


def host_texts(stored: Bytes) -> pa.Array:
    """Return `ip:port` of each row; each distinct host is written once."""
    distinct, of_row = np.unique(stored.view(np.uint64).reshape(-1), return_inverse=True)
    texts = [bytes_to_host(host.tobytes()) for host in distinct]
    return pc.take(pa.array(texts, pa.string()), pa.array(of_row.reshape(-1)))
