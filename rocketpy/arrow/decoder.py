"""Records to record batches: plain ones at once, the others one by one, merged back in order.

`proto.message` is the reference: for every record both ways give the same row, and what it calls
corrupt is damaged here.
"""

import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.arrow.compiled_rows import CompiledRows, compiled_rows
from rocketpy.arrow.fast_rows import NEED_PROPERTIES, FastRows
from rocketpy.arrow.gather import Int64s, is_utf8, not_utf8
from rocketpy.arrow.properties import Pairs
from rocketpy.arrow.record_headers import Heads, Mask
from rocketpy.arrow.schema import Damaged, RowSchema
from rocketpy.arrow.slow_rows import slow_rows
from rocketpy.arrow.uniform_properties import EvenTails, even_tails
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.record import ReadBuffer
from rocketpy.proto.record.sys_flag import COMPRESSED

_CRC_MASK = 0x7FFFFFFF
INFLATED_BYTES: Final = 16 << 20
"""`RecordDecoder.batches` ends a batch once its inflated bodies have so many bytes."""
_NO_LIMIT: Final = 1 << 62


class RecordDecoder:
    """Makes record batches of one schema. Keeps nothing of a call but the count of damage.

    Attributes:
        schema: of the batches.
        damaged_count: records left out so far because they were damaged.
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
        """Describe what is wanted of records.

        Args:
            schema: the columns.
            check_crc: compare each body with its checksum (Python for each row).
            damaged: what is done about a record that is none: `fail` raises, `skip` leaves its
                row out.
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
        body = (
            schema.arrow.field(schema.names.index("body")).type if "body" in schema.names else None
        )
        self._body_is_text = body == pa.string()
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
                batch keeps nothing of it.
            positions: int64, shape (n,): where records begin in `data`, in any order.
            broker_name: for the column `brokerName`.
            base_offset: physical offset of the first byte of `data`: a record that claims another
                place is damaged. None: not checked.

        Returns:
            `pyarrow.RecordBatch` with the schema; a row for each position, in their order, less
            the damaged ones and those of other tags.

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
        """Do what `decode` does, in as many batches as it takes.

        Bodies that were compressed may be a thousand times as long as their records. So a batch
        ends once those in it have `INFLATED_BYTES`; it holds one body more at most.

        Yields:
            The rows of `decode`, in their order; no empty batches.

        Raises:
            CorruptRecordError: as `decode`, once the records before it are handed on.
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
        """Decode the first records, as far as a limit of inflated bytes; return how many."""
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        if self._make_rows is not None:
            return self._compiled(buffer, positions, broker_name, base_offset, most_inflated)
        heads = Heads(np.frombuffer(buffer, np.uint8), positions)
        fast = heads.plain & ((heads.field("sys_flag") & COMPRESSED) == 0)
        if base_offset is not None:
            fast &= heads.field("phy_offset") == positions + base_offset
        if self._check_crc:
            self._remove_bad_crc(buffer, heads, fast)
        taken = len(positions)
        others, messages = np.empty(0, np.int64), list[MessageExt]()
        if not fast.all():
            others, messages, taken = self._slow_messages(
                buffer, positions, np.flatnonzero(~fast), base_offset, most_inflated
            )
            heads, fast = heads.select(np.arange(taken)), fast[:taken]
        before = fast.copy()
        batch, chosen = self._fast_batch(buffer, heads, fast, broker_name)
        odd = np.flatnonzero(before & ~fast)
        if len(odd):
            more, of_more, _ = self._slow_messages(buffer, positions, odd, base_offset, _NO_LIMIT)
            others, messages = np.concatenate((others, more)), messages + of_more
            order = np.argsort(others)
            others, messages = others[order], [messages[each] for each in order.tolist()]
        if not messages:
            return batch, taken
        slow = slow_rows(messages, self.schema, broker_name)
        return _merged(batch, chosen, slow, others), taken

    def _compiled(
        self,
        buffer: pa.Buffer,
        positions: Int64s,
        broker_name: str,
        base_offset: int | None,
        most_inflated: int,
    ) -> tuple[pa.RecordBatch, int]:
        """Do what `_decode` does by the compiled decoder."""
        rows = self._read(buffer, positions, base_offset)
        chosen: Int64s | None = None
        others, messages, taken = np.empty(0, np.int64), list[MessageExt](), len(positions)
        if rows.fast is not None:
            others, messages, taken = self._slow_messages(
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
        return _merged(batch, chosen, slow_rows(messages, self.schema, broker_name), others), taken

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
        """Do what was asked about a damaged record: count it and tell of it, or raise.

        Raises:
            CorruptRecordError: `damaged` is `fail`.
        """
        if self._damaged == "fail":
            raise error
        self.damaged_count += 1
        if self._on_damaged is not None:
            self._on_damaged(error)

    def _remove_bad_crc(self, buffer: pa.Buffer, heads: Heads, fast: Mask) -> None:
        view = memoryview(buffer)
        chosen = np.flatnonzero(fast)
        stored = heads.field("body_crc")[chosen].tolist()
        starts, ends = heads.body_at[chosen].tolist(), heads.body_end[chosen].tolist()
        for row, crc, start, end in zip(chosen.tolist(), stored, starts, ends, strict=True):
            if start < end and zlib.crc32(view[start:end]) & _CRC_MASK != crc:
                fast[row] = False

    def _fast_batch(
        self, buffer: pa.Buffer, heads: Heads, fast: Mask, broker_name: str
    ) -> tuple[pa.RecordBatch, Int64s]:
        """Return the fast rows as a batch, and which rows those are.

        Rows that turn out to be slow ones are taken from `fast`.
        """
        while True:
            chosen: Int64s = np.flatnonzero(fast)
            found = heads if len(chosen) == len(fast) else heads.select(chosen)
            pairs: Pairs | EvenTails | None = None
            if self._needs_pairs:
                pairs = even_tails(buffer, found)
                if pairs is None:
                    pairs = Pairs(buffer, found.properties_at, found.end)
                    if pairs.odd.any():
                        fast[chosen[pairs.odd]] = False
                        continue
            rows = FastRows(buffer, found, pairs, broker_name)
            fields = zip(self.schema.names, self.schema.arrow, strict=True)
            columns = [rows.column(name, field.type) for name, field in fields]
            unreadable = self._not_utf8(columns)
            if unreadable is None:
                break
            fast[chosen[unreadable]] = False
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)
        if not self._tags:
            return batch, chosen
        return _with_tags(batch, chosen, pc.is_in(rows.tags(), value_set=self._tag_set))

    def _not_utf8(self, columns: list[pa.Array]) -> Mask | None:
        """Return which rows have a topic, or a body as text, that is not UTF-8; None: none."""
        for name, column in zip(self.schema.names, columns, strict=True):
            is_text = name == "topic" or (name == "body" and self._body_is_text)
            if is_text and not is_utf8(column):
                return not_utf8(column)
        return None

    def _slow_messages(
        self,
        buffer: pa.Buffer,
        positions: Int64s,
        wanted: Int64s,
        base_offset: int | None,
        most_inflated: int,
    ) -> tuple[Int64s, list[MessageExt], int]:
        """Decode some rows one by one, until their bodies have so many bytes.

        Returns:
            Which of them there are, their messages, and how many rows that is as far as.
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
            inflated_bytes += len(message.body)
            if inflated_bytes >= most_inflated:
                return np.array(rows, np.int64), messages, row + 1
        return np.array(rows, np.int64), messages, len(positions)


def _decode_at(
    view: memoryview, position: int, base_offset: int | None, *, check_crc: bool
) -> MessageExt:
    """Decode one record; what is wrong with it is told with its place in the log, if known."""
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
    """Return the rows that are kept, and which they are."""
    mask: Mask = kept.to_numpy(zero_copy_only=False)
    return (batch, chosen) if mask.all() else (batch.filter(kept), chosen[mask])


def _merged(
    fast: pa.RecordBatch, fast_rows: Int64s, slow: pa.RecordBatch, slow_rows_: Int64s
) -> pa.RecordBatch:
    """Return the rows of two batches in the order of their row numbers."""
    if not len(slow_rows_):
        return fast
    if not len(fast_rows):
        return slow
    order = np.argsort(np.concatenate((fast_rows, slow_rows_)))
    both = pa.Table.from_batches([fast, slow]).take(pa.array(order)).combine_chunks()
    return both.to_batches()[0]
