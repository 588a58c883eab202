"""Converts pulled bytes to record batches, and accounts for every offset.

Rows are exactly those of the range: records outside it are dropped. An offset without a record is
a lost message, unless a filter may have skipped it.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketpy.arrow import RowSchema
from rocketpy.arrow.missing_rows import lost_rows
from rocketpy.arrow.positions import record_positions, whole_record_positions
from rocketpy.errors import BadBodyError, CorruptRecordError, DataLossError
from rocketpy.proto.record.record import SYS_FLAG_AT
from rocketpy.proto.record.sys_flag import BORN_HOST_V6
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.read_options import DataLoss
from rocketpy.spark.source.fetch import Pulled

if TYPE_CHECKING:
    from rocketpy.arrow import RecordDecoder

logger: logging.Logger = logging.getLogger(__name__)

Int64s = npt.NDArray[np.int64]

_QUEUE_ID_AT: Final = 12
_QUEUE_OFFSET_AT: Final = 20
_PHY_OFFSET_AT: Final = 28
_STORE_TIME_AT: Final = 56
_INT: Final = np.dtype(">i4")
_LONG: Final = np.dtype(">i8")


class BatchMaker:
    """Converter of the pulled data of one range to record batches.

    Args:
        wanted: the range.
        schema: of the batches.
        decoder: of that schema.
        is_filtered: whether the broker filters: then a missing offset is not a loss.
        policy: for lost messages.
        topic: value of the column `topic`, if it differs from the broker's name.
        planned_ms: store time of the last message of the queue at planning, ms; 0: unknown.
        is_other: returns whether the queue is another one than at planning; called when messages
            were stored after `planned_ms`.
    """

    def __init__(
        self,
        wanted: QueueRange,
        schema: RowSchema,
        decoder: "RecordDecoder",
        *,
        is_filtered: bool,
        policy: DataLoss,
        topic: str = "",
        planned_ms: int = 0,
        is_other: Callable[[], bool] = lambda: False,
    ) -> None:
        self._wanted = wanted
        self._schema = schema
        self._decoder = decoder
        self._is_filtered = is_filtered
        self._policy = policy
        self._topic = topic
        self._planned_ms = planned_ms
        self._is_other = is_other
        self._reported: list[QueueRange] = []
        self._noted: list[tuple[QueueRange, str]] = []

    @property
    def lost(self) -> list[QueueRange]:
        """Lost ranges so far, in order."""
        return [*self._reported, *(gone for gone, _ in _joined(self._noted))]

    def batches(self, pulled: Sequence[Pulled]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of consecutive pulls, and marks for lost messages.

        Raises:
            DataLossError: messages are lost, and the policy is to fail.
            CorruptRecordError: a record is damaged, and the policy is to fail.
            BadBodyError: the broker returned other data than requested.
        """
        lost = [each for each in pulled if each.lost]
        found = [each for each in pulled if not each.lost]
        end = pulled[-1].end
        pulled = ()  # while the batch waits for its consumer, hold only its own data
        if found:
            rows, found = self._rows(found), []
            yield from rows
        for each in lost:
            self._note(each.start, each.end, each.lost)
        yield from self._marks(before=end)  # a range that ends here may continue

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the marks that remain at the end of the range."""
        yield from self._marks(before=self._wanted.end + 1)

    def _marks(self, before: int) -> Iterator[pa.RecordBatch]:
        """Log lost ranges that end before an offset; yield a row for each with policy `mark`."""
        # Gaps between records are noted before pulls without records that precede them.
        noted = _joined(self._noted)
        ended = [gone for gone, _ in noted if gone.end < before]
        self._noted = noted[len(ended) :]
        self._reported += ended
        for gone, reason in noted[: len(ended)]:
            logger.warning("messages lost: range=%s reason=%s", gone, reason)
        if self._policy == "mark" and ended:
            topic = self._topic or self._wanted.topic
            yield lost_rows([each._replace(topic=topic) for each in ended], self._schema)

    def _rows(self, pulled: Sequence[Pulled]) -> Iterator[pa.RecordBatch]:
        data = pulled[0].body if len(pulled) == 1 else b"".join([each.body for each in pulled])
        try:
            positions = record_positions(data)
        except CorruptRecordError as error:
            positions = whole_record_positions(data)
            if not self._decoder.skips_damaged or not len(positions):
                raise BadBodyError(
                    f"what broker {self._wanted.broker_name} gave of {self._wanted} from offset "
                    f"{pulled[0].start} on are no records: {error}"
                ) from error
            self._decoder.report(error)
        offsets = queue_offsets(data, positions)
        mask = _meant(pulled, positions, offsets)
        if mask is not None:
            positions, offsets = positions[mask], offsets[mask]
        if bool((np.diff(offsets) <= 0).any()):
            raise BadBodyError(f"{self._wanted}: duplicate or unordered offsets")
        if not self._is_filtered and len(offsets) < sum(each.end - each.start for each in pulled):
            for start, end in _gaps(pulled, offsets):
                self._note(
                    start, end, "the broker left them out: they expired meanwhile, or are damaged"
                )
        positions, offsets = self._planned(data, positions, offsets, pulled[-1].end)
        positions = self._of_the_queue(data, positions, offsets)
        name = self._wanted.broker_name
        return map(self._renamed, self._decoder.batches(data, positions, broker_name=name))

    def _planned(
        self, data: bytes, positions: Int64s, offsets: Int64s, end: int
    ) -> tuple[Int64s, Int64s]:
        """Return the records without those of another queue, which count as lost.

        Records after the planned end of the queue show one, unless the clock of the broker was set
        back. Therefore the broker is asked for the last message at planning.
        """
        if not self._planned_ms or not len(positions):
            return positions, offsets
        later = _store_times(data, positions) > self._planned_ms
        if not later.any() or not self._is_other():
            return positions, offsets
        first = int(offsets[later][0])
        self._note(first, end, "the queue has other messages now than when the read was planned")
        return positions[~later], offsets[~later]

    def _of_the_queue(self, data: bytes, positions: Int64s, offsets: Int64s) -> Int64s:
        """Return the records of this queue; report others as damaged."""
        queue_ids = _field(data, positions, _QUEUE_ID_AT, _INT)
        others: npt.NDArray[np.bool_] = queue_ids != self._wanted.queue_id
        if not others.any():
            return positions
        places = _field(data, positions, _PHY_OFFSET_AT, _LONG)
        for place, offset in zip(places[others].tolist(), offsets[others].tolist(), strict=True):
            reason = f"it is offset {offset} of {self._wanted} and names another queue"
            self._decoder.report(CorruptRecordError(place, reason))
        found: Int64s = positions[~others]
        return found

    def _note(self, start: int, end: int, reason: str) -> None:
        """Record a lost range, in any order; raises with policy `fail`."""
        gone = self._wanted._replace(start=start, end=end)
        if self._policy == "fail":
            raise DataLossError(lost_words([(gone, reason)]))
        self._noted.append((gone, reason))

    def _renamed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._topic or "topic" not in self._schema.names:
            return batch
        column = pa.repeat(pa.scalar(self._topic, pa.string()), batch.num_rows)
        return batch.set_column(self._schema.names.index("topic"), "topic", column)


def _joined(noted: Iterable[tuple[QueueRange, str]]) -> list[tuple[QueueRange, str]]:
    """Return ranges in order; those that meet or overlap become one, with the first reason."""
    joined: list[tuple[QueueRange, str]] = []
    for gone, reason in sorted(noted, key=lambda each: each[0].start):
        last = joined[-1] if joined else None
        if last is not None and gone.start <= last[0].end:
            joined[-1] = (last[0]._replace(end=max(last[0].end, gone.end)), last[1])
        else:
            joined.append((gone, reason))
    return joined


def lost_words(lost: Iterable[tuple[QueueRange, str]]) -> str:
    """Return the text of a DataLossError: the ranges, and the remedy."""
    listed = list(lost)
    words = "; ".join(f"{gone}: {reason}" for gone, reason in listed[:20])
    more = f"; and {len(listed) - 20} more" if len(listed) > 20 else ""
    return f"messages are lost: {words}{more}. failOnDataLoss=false skips them"


def queue_offsets(data: bytes, positions: Int64s) -> Int64s:
    """Return the queue offset of each record.

    Args:
        data: records, at least their fixed parts.
        positions: int64, shape (n,): where they begin.

    Returns:
        int64, shape (n,).
    """
    return _field(data, positions, _QUEUE_OFFSET_AT, _LONG)


def _store_times(data: bytes, positions: Int64s) -> Int64s:
    """Return the store time of each record, ms."""
    is_long = (_field(data, positions, SYS_FLAG_AT, _INT) & BORN_HOST_V6) != 0
    # The address before the time is 12 bytes longer with IPv6.
    return _field(data, positions + 12 * is_long, _STORE_TIME_AT, _LONG)


def _field(data: bytes, positions: Int64s, at: int, kind: "np.dtype[np.signedinteger]") -> Int64s:
    """Return a field of the fixed part of each record."""
    if not len(positions):
        return np.empty(0, np.int64)
    words = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    return words[positions + at].astype(np.int64)


def _meant(
    pulled: Sequence[Pulled], positions: Int64s, offsets: Int64s
) -> npt.NDArray[np.bool_] | None:
    """Return which records are within the range; None for all."""
    wanted = sum(each.end - each.start for each in pulled)
    start, end = pulled[0].start, pulled[-1].end
    is_whole = len(offsets) == wanted == end - start
    if is_whole and offsets[0] == start and offsets[-1] == end - 1:
        return None
    ends = np.cumsum([len(each.body) for each in pulled])
    piece = np.searchsorted(ends, positions, side="right")
    starts = np.array([each.start for each in pulled])[piece]
    untils = np.array([each.end for each in pulled])[piece]
    return (offsets >= starts) & (offsets < untils)


def _gaps(pulled: Sequence[Pulled], offsets: Int64s) -> Iterator[tuple[int, int]]:
    """Return the ranges of offsets without a record."""
    found: list[tuple[int, int]] = []
    for each in pulled:
        first, last = np.searchsorted(offsets, [each.start, each.end])
        there = [each.start - 1, *offsets[first:last].tolist(), each.end]
        for before, after in itertools.pairwise(there):
            if after - before > 1:
                if found and found[-1][1] == before + 1:
                    found[-1] = (found[-1][0], after)
                else:
                    found.append((before + 1, after))
    return iter(found)
