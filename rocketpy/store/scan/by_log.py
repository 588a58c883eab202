"""Record batches of everything in a part of the log, whatever the queue.

The log is followed from record to record. What is broken before a whole record is damage, which is
told of with its place; what is broken before none is the end.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rocketpy.arrow.gather import Int64s, gather
from rocketpy.arrow.record_headers import Mask, RecordHeaders
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log, MappedLog
from rocketpy.store.scan.log_walk import stretches
from rocketpy.store.scan.request import ScanRequest

if TYPE_CHECKING:
    from rocketpy.arrow import RecordDecoder


class Chosen:
    """Which records of the log are wanted, by topic, deletion and time."""

    def __init__(self, directory: StoreDirectory, wanted: ScanRequest) -> None:
        """Find which topics there are.

        Raises:
            ValueError: a topic is wanted that there is not.
        """
        self._known = None if wanted.with_deleted else directory.known_topics()
        self._deleted = {} if wanted.with_deleted else directory.deleted_topics()
        self._wanted = wanted
        if self._known is not None:
            wanted.topics_of(self._known)

    def _takes(self, topic: str) -> bool:
        """Whether messages of a topic are wanted; of one that nothing knows they are deleted."""
        return self._wanted.takes(topic) and (self._known is None or topic in self._known)

    def mask(self, mapped: MappedLog, positions: Int64s) -> Mask:
        """Return which of the records at these positions of a file are wanted, or are none."""
        import pyarrow.compute as pc  # noqa: PLC0415 - planners, which do not come here, do without

        raw = np.frombuffer(mapped.data, np.uint8)
        heads = RecordHeaders(raw, positions)
        regular = heads.regular
        zero = np.zeros_like(positions)
        topics = gather(
            mapped.data,
            np.where(regular, heads.topic_at, zero),
            np.where(regular, heads.topic_end, zero),
            pa.binary(),
        )
        times = heads.field("store_timestamp_ms").astype(np.int64)
        broken = np.zeros(len(positions), np.bool_)
        if not regular.all():
            topics, times, broken = _with_odd(mapped, positions, regular, topics, times)
        mask = np.ones(len(positions), np.bool_)
        distinct = pc.unique(topics)
        taken = [
            each for each in distinct.to_pylist() if self._takes(str(each, "utf-8", "replace"))
        ]
        if len(taken) < len(distinct):
            names = pa.array(taken, pa.binary())
            mask = pc.is_in(topics, value_set=names).to_numpy(zero_copy_only=False)
        for topic, end in self._deleted.items():
            if mapped.base < end:
                same = pc.equal(topics, pa.scalar(topic.encode(), pa.binary()))
                before = positions + mapped.base < end
                mask &= ~(same.to_numpy(zero_copy_only=False) & before)
        if self._wanted.start_ms is not None:
            mask &= times >= self._wanted.start_ms
        if self._wanted.end_ms is not None:
            mask &= times < self._wanted.end_ms
        return mask | broken  # whose it was is not known, so whoever reads is told


def _with_odd(
    mapped: MappedLog, positions: Int64s, regular: Mask, topics: pa.Array, times: Int64s
) -> tuple[pa.Array, Int64s, Mask]:
    """Fill in topic and store time of records of other layouts, one by one; say which are none."""
    names = topics.to_pylist()
    broken = np.zeros(len(positions), np.bool_)
    for row in np.flatnonzero(~regular).tolist():
        found = mapped.check(int(positions[row]))
        broken[row] = found.state is RecordState.BROKEN
        names[row] = found.topic
        times[row] = found.store_timestamp_ms
    return pa.array(names, pa.binary()), times, broken


def read(
    log: Log, chosen: Chosen, wanted: ScanRequest, decoder: "RecordDecoder", start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Yield the records that begin from one physical offset to before another, in one file."""
    number = log.file_number(start)
    mapped = log.open(number) if number >= 0 else None
    if mapped is None:
        wanted.lost_of_log(start, end)
        return
    for positions in stretches(log, mapped, start - mapped.base, end - mapped.base, decoder):
        kept = positions[chosen.mask(mapped, positions)]
        for at in range(0, len(kept), wanted.batch_rows):
            yield from decoder.batches(
                mapped.data,
                kept[at : at + wanted.batch_rows],
                broker_name=wanted.broker_name,
                base_offset=mapped.base,
            )
        mapped.release_before(int(positions[0]))
