"""Following the log of one file from record to record, over damage, to where it ends."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from rocketpy.arrow import RecordDecoder
from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.positions import follow
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record_check import RecordState
from rocketpy.store.scan.log import Log, MappedLog

_FOLLOWED_AT_ONCE: Final = 8 << 20


def end_of(log: Log, start: int, end: int) -> int:
    """Return where the records of a file end: physical offset after the last whole one."""
    mapped = log.open(log.file_number(start))
    if mapped is None:
        return start
    last = start
    ignored = Quiet()
    for positions in stretches(log, mapped, start - mapped.base, end - mapped.base, ignored):
        at = int(positions[-1])
        last = mapped.base + at + mapped.check(at).size_bytes
        mapped.release_before(at)
    return last


class Quiet:
    """Takes no notice of damage: a plan does not read, it only looks how far the log goes."""

    def report(self, error: CorruptRecordError) -> None:
        """Ignore it; who reads the piece is told."""


def stretches(
    log: Log, mapped: MappedLog, start: int, end: int, told: RecordDecoder | Quiet
) -> Iterator[Int64s]:
    """Yield positions of records, some at a time, passing over damage."""
    raw = np.frombuffer(mapped.data, np.uint8)
    position = start
    while position < end:
        positions, stop = follow(raw, position, min(end, position + _FOLLOWED_AT_ONCE))
        if len(positions):
            last = int(positions[-1])
            if mapped.check(last).state is RecordState.BROKEN and (
                log.next_record(mapped.base + last + 1) is None
            ):  # the log was torn within it
                positions, stop = positions[:-1], end
            if len(positions):
                yield positions
            position = stop
            continue
        found = mapped.check(position)
        if found.state in {RecordState.RECORD, RecordState.DAMAGED}:
            yield np.array([position], np.int64)
            position += found.size_bytes
            continue
        if found.state is RecordState.BLANK:
            return
        following = log.next_record(mapped.base + position + 1)
        if following is None:
            return
        told.report(CorruptRecordError(mapped.base + position, "it is no record"))
        position = following - mapped.base
