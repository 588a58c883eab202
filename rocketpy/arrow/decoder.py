"""Decodes records into record batches, with the compiled decoder where there is one.

`proto.record.message` is the reference: both ways give the same row for every record, and what it
calls corrupt is damaged here.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.arrow.compiled_rows import NEED_PROPERTIES, CompiledRows, compiled_rows
from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.record_headers import Mask
from rocketpy.arrow.reference_rows import reference_rows
from rocketpy.arrow.schema import Damaged, RowSchema
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.record import ReadBuffer

INFLATED_BYTES: Final = 16 << 20
"""`RecordDecoder.batches` ends a batch once its inflated bodies have this many bytes."""
_NO_LIMIT: Final = 1 << 62


class RecordDecoder:
    """Decoder of records into batches of one schema.

    It keeps no state between calls except the count of damaged records.

    Attributes:
        schema: of the batches.
        damaged_count: damaged records left out so far.
    """

    def __init__(
        self,
        schema: RowSchema,
        *,
        check_crc: bool = False,
        damaged: Damaged = "fail",
        on_damaged: Callable[[CorruptRecordError], None] | None = None,
        tags: Collection[str] = (),
    ) -> None:
        """Create a decoder.

        Args:
            schema: the columns.
            check_crc: compare each body with its checksum.
            damaged: `fail` raises at a damaged record, `skip` leaves its row out.
            on_damaged: called for each record left out.
            tags: only rows with one of these tags; empty: all.
        """
        self.schema = schema
        self.damaged_count: int = 0
        self._check_crc = check_crc
        self._damaged = damaged
        self._on_damaged = on_damaged
        self._tags = frozenset(tags)
        self._tag_set = pa.array(sorted(self._tags), pa.string())
        self._needs_pairs = bool(self._tags or NEED_PROPERTIES.intersection(schema.names))
        self._make_rows = compiled_rows()

    def decode(
        self,
        data: pa.Buffer | ReadBuffer,
        positions: Int64s,
        *,
        broker_name: str,
        base_offset: int | None = None,
    ) -> pa.RecordBatch:
        """Decode the records at some positions of a buffer.

        Args:
            data: anything with the buffer protocol, or a `pyarrow.Buffer`; at most 2 GiB. The
                batch keeps no reference to it.
            positions: int64, shape (n,): where records begin in `data`, in any order.
            broker_name: for the column `brokerName`.
            base_offset: physical offset of the first byte of `data`: a record that claims another
                offset is damaged. None: not checked.

        Returns:
            `pyarrow.RecordBatch` with the schema; a row for each position, in their order, without
            damaged records and those of other tags.

        Raises:
            CorruptRecordError: a record is damaged, and `damaged` is `fail`. Its `phy_offset` is
                the stored one, or `base_offset` and position; without either the position.
        """
        return self._decode(data, positions, broker_name, base_offset, _NO_LIMIT)[0]

    def batches(
        self,
        data: pa.Buffer | ReadBuffer,
        positions: Int64s,
        *,
        broker_name: str,
        base_offset: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Decode as `decode` does, in several batches when bodies inflate to many bytes.

        A compressed body may be a thousand times as long as its record. So a batch ends once its
        inflated bodies have `INFLATED_BYTES`; it exceeds that by one body at most.

        Yields:
            The rows of `decode`, in their order; no empty batches.

        Raises:
            CorruptRecordError: as `decode`, after the records before the damaged one.
        """
        while len(positions):
            batch, taken = self._decode(data, positions, broker_name, base_offset, INFLATED_BYTES)
            positions = positions[taken:]
            if not len(positions):
                data = b""  # not held while the last batch is used
            if batch.num_rows:
                yield batch

    def _decode(
        self,
        data: pa.Buffer | ReadBuffer,
        positions: Int64s,
        broker_name: str,
        base_offset: int | None,
        most_inflated: int,
    ) -> tuple[pa.RecordBatch, int]:
        """Decode the first records, up to a limit of inflated bytes; return how many."""
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        if self._make_rows is not None:
            return self._compiled(buffer, positions, broker_name, base_offset, most_inflated)
        everything = np.arange(len(positions))
        _, messages, taken = self._messages(
            buffer, positions, everything, base_offset, most_inflated
        )
        return reference_rows(messages, self.schema, broker_name), taken

    def _compiled(
        self,
        buffer: pa.Buffer,
        positions: Int64s,
        broker_name: str,
        base_offset: int | None,
        most_inflated: int,
    ) -> tuple[pa.RecordBatch, int]:
        """Decode with the compiled decoder; merge in the records that it leaves out."""
        rows = self._read(buffer, positions, base_offset)
        chosen: Int64s | None = None
        others, messages, taken = np.empty(0, np.int64), list[MessageExt](), len(positions)
        if rows.fast is not None:
            others, messages, taken = self._messages(
                buffer, positions, np.flatnonzero(~rows.fast), base_offset, most_inflated
            )
            if taken < len(positions):
                rows = self._read(buffer, positions[:taken], base_offset)
            if rows.fast is not None:
                chosen = np.flatnonzero(rows.fast)
        fields = zip(self.schema.names, self.schema.arrow, strict=True)
        columns = [rows.column(name, field.type, broker_name) for name, field in fields]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)
        if self._tags:
            kept = pc.is_in(rows.column("tags", pa.string(), ""), value_set=self._tag_set)
            batch, chosen = _with_tags(batch, np.arange(taken) if chosen is None else chosen, kept)
        if not messages:
            return batch, taken
        assert chosen is not None, "others are some of the rows"
        slow = reference_rows(messages, self.schema, broker_name)
        return _merged(batch, chosen, slow, others), taken

    def _read(self, buffer: pa.Buffer, positions: Int64s, base_offset: int | None) -> CompiledRows:
        assert self._make_rows is not None
        return CompiledRows(
            self._make_rows,
            buffer,
            positions,
            self.schema,
            base_offset=base_offset,
            needs_pairs=self._needs_pairs,
            check_crc=self._check_crc,
        )

    @property
    def skips_damaged(self) -> bool:
        """Whether damaged records are left out."""
        return self._damaged == "skip"

    def report(self, error: CorruptRecordError) -> None:
        """Count a damaged record and call `on_damaged`, or raise.

        Raises:
            CorruptRecordError: `damaged` is `fail`.
        """
        if self._damaged == "fail":
            raise error
        self.damaged_count += 1
        if self._on_damaged is not None:
            self._on_damaged(error)

    def _messages(
        self,
        buffer: pa.Buffer,
        positions: Int64s,
        wanted: Int64s,
        base_offset: int | None,
        most_inflated: int,
    ) -> tuple[Int64s, list[MessageExt], int]:
        """Decode some records one by one, until their inflated bodies reach a limit.

        Args:
            buffer: with the records.
            positions: of all records.
            wanted: which of `positions` are decoded, as ascending indices.
            base_offset: as in `decode`.
            most_inflated: the limit, bytes.

        Returns:
            Indices of the rows, their messages, and the index after the last position that was
            read.
        """
        view = memoryview(buffer)
        rows: list[int] = []
        messages: list[MessageExt] = []
        inflated_bytes = 0
        for row in wanted.tolist():
            position = int(positions[row])
            try:
                message = _decode_at(view, position, base_offset, check_crc=self._check_crc)
            except CorruptRecordError as error:
                self.report(error)
                continue
            if self._tags and message.tags not in self._tags:
                continue
            if "body" not in self.schema.names:
                message.body = b""
            rows.append(row)
            messages.append(message)
            # Only inflated bodies count: the caller's buffer bounds the others already.
            if len(message.body) > message.store_size_bytes:
                inflated_bytes += len(message.body)
            if inflated_bytes >= most_inflated:
                return np.array(rows, np.int64), messages, row + 1
        return np.array(rows, np.int64), messages, len(positions)


def _decode_at(
    view: memoryview, position: int, base_offset: int | None, *, check_crc: bool
) -> MessageExt:
    """Decode one record; an error names its physical offset, if `base_offset` is known."""
    place = position if base_offset is None else base_offset + position
    if not 0 <= position < len(view):
        raise CorruptRecordError(place, "the data ends before it")
    try:
        message = decode_message(view, position, check_crc=check_crc)
    except CorruptRecordError as error:
        if base_offset is None:
            raise
        reason = str(error).partition(": ")[2]
        raise CorruptRecordError(place, reason) from error
    if base_offset is not None and message.phy_offset != place:
        raise CorruptRecordError(place, f"it claims to lie at {message.phy_offset}")
    return message


def _with_tags(
    batch: pa.RecordBatch, chosen: Int64s, kept: pa.BooleanArray
) -> tuple[pa.RecordBatch, Int64s]:
    """Return the rows that are kept, and their indices."""
    mask: Mask = kept.to_numpy(zero_copy_only=False)
    return (batch, chosen) if mask.all() else (batch.filter(kept), chosen[mask])


def _merged(
    compiled: pa.RecordBatch, compiled_at: Int64s, others: pa.RecordBatch, others_at: Int64s
) -> pa.RecordBatch:
    """Return the rows of two batches in the order of their row numbers."""
    if not len(others_at):
        return compiled
    if not len(compiled_at):
        return others
    order = np.argsort(np.concatenate((compiled_at, others_at)))
    both = pa.Table.from_batches([compiled, others]).take(pa.array(order)).combine_chunks()
    return both.to_batches()[0]
