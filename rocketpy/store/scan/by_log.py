"""Record batches of all messages in a part of the log.

The scan walks from record to record. Invalid bytes before a complete record are damage, which is
reported with its offset; invalid bytes that no complete record follows are the end of the log.
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
    """Selects records of the log by topic, deletion and time."""

    def __init__(self, directory: StoreDirectory, wanted: ScanRequest) -> None:
        """Resolve the requested topics.

        Raises:
            ValueError: a requested topic does not exist.
        """
        self._known = None if wanted.with_deleted else directory.known_topics()
        self._deleted = {} if wanted.with_deleted else directory.deleted_topics()
        self._wanted = wanted
        if self._known is not None:
            wanted.topics_of(self._known)

    def _takes(self, topic: str) -> bool:
        """Return whether a topic is selected; messages of an unknown topic count as deleted."""
        return self._wanted.takes(topic) and (self._known is None or topic in self._known)

    def mask(self, mapped: MappedLog, positions: Int64s) -> Mask:
        """Return which positions of a file hold selected or invalid records."""
        import pyarrow.compute as pc  # noqa: PLC0415 - planners do not need it

        raw = np.frombuffer(mapped.data, np.uint8)
        # Columns over all positions: a loop in Python would dominate the time of a scan.
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
        # Records with IPv6 hosts or another layout are rare, so they are read one by one.
        if not regular.all():
            topics, times, broken = _with_odd(mapped, positions, regular, topics, times)
        mask = np.ones(len(positions), np.bool_)
        distinct = pc.unique(topics)
        taken = [
            # Topics are decided once each instead of once for each record.
            each
            for each in distinct.to_pylist()
            if self._takes(str(each, "utf-8", "replace"))
        ]
        if len(taken) < len(distinct):
            names = pa.array(taken, pa.binary())
            mask = pc.is_in(topics, value_set=names).to_numpy(zero_copy_only=False)
        for topic, end in self._deleted.items():
            # Files after the deletion hold only messages of the recreated topic.
            if mapped.base < end:
                same = pc.equal(topics, pa.scalar(topic.encode(), pa.binary()))
                before = positions + mapped.base < end
                mask &= ~(same.to_numpy(zero_copy_only=False) & before)
        if self._wanted.start_ms is not None:
            mask &= times >= self._wanted.start_ms
        if self._wanted.end_ms is not None:
            mask &= times < self._wanted.end_ms
        return mask | broken  # the topic is unknown, so the reader reports the damage


def _with_odd(
    mapped: MappedLog, positions: Int64s, regular: Mask, topics: pa.Array, times: Int64s
) -> tuple[pa.Array, Int64s, Mask]:
    """Fill in topic and store time of records with other layouts; mark invalid ones."""
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
    """Yield the records that start in a range of physical offsets of one file."""
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
        # Otherwise a scan of a large log would hold all of it in memory.
        mapped.release_before(int(positions[0]))
