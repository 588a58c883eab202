"""Walks the records of one log file, across damage, to the end of the log."""

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np

from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.positions import candidates, chain
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.scan.log import Log, MappedLog

_FOLLOWED_AT_ONCE: Final = 8 << 20


def end_of(log: Log, start: int, end: int) -> int:
    """Return the physical offset after the last complete record of a file.

    A damaged record that follows counts as the last one.
    """
    mapped = log.open(log.file_number(start))
    if mapped is None:
        return start
    last = start
    ignored = IgnoreDamage()
    for positions in stretches(log, mapped, start - mapped.base, end - mapped.base, ignored):
        at = int(positions[-1])
        last = mapped.base + at + max(1, mapped.check(at).size_bytes)
        mapped.release_before(at)
    return last + 1 if log.is_damage(last) else last


class DamageListener(Protocol):
    """Interface of the caller of `stretches` for damage that the walk skips."""

    def report(self, error: CorruptRecordError) -> None:
        """Handle damage; raise to end the walk."""


class IgnoreDamage:
    """Ignores damage, for planning, which only determines the end of the log."""

    def report(self, error: CorruptRecordError) -> None:
        """Ignore the error; the reader of the piece reports it."""


def stretches(
    log: Log, mapped: MappedLog, start: int, end: int, listener: DamageListener
) -> Iterator[Int64s]:
    """Yield arrays of record positions, skipping damage."""
    raw = np.frombuffer(mapped.data, np.uint8)
    position = start
    while position < end:
        until = min(end, position + _FOLLOWED_AT_ONCE)
        found_at, ends = candidates(raw, position, until)
        positions, stop = chain(found_at, ends, position)
        if len(positions):
            # A wrong size field would skip all records within its range.
            positions = _until_broken(mapped, positions, found_at, stop)
            last = int(positions[-1])
            position = stop
            if mapped.check(last).state is RecordState.BROKEN:  # its size field is invalid as well
                following = log.next_record(mapped.base + last + 1)
                if following is None:
                    is_damaged = log.is_damage(mapped.base + last)  # otherwise it is torn
                    positions, position = positions if is_damaged else positions[:-1], end
                # Checked again, because a broker may have completed the record meanwhile.
                elif mapped.check(last).state is RecordState.BROKEN:
                    position = following - mapped.base
            if len(positions):
                yield positions
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
            _report_damage(log, mapped.base + position, listener)
            return
        # Read again instead of reporting damage that does not exist.
        if mapped.check(position).state is not found.state:  # a broker was writing it
            continue
        listener.report(CorruptRecordError(mapped.base + position, "no record starts here"))
        position = following - mapped.base


def _report_damage(log: Log, phy_offset: int, listener: DamageListener) -> None:
    """Report the bytes after the last complete record as damage, unless they are a torn record."""
    if log.is_damage(phy_offset):
        listener.report(CorruptRecordError(phy_offset, "no record starts here"))


def _until_broken(mapped: MappedLog, positions: Int64s, found: Int64s, stop: int) -> Int64s:
    """Return the records before the first one whose wrong size skips later records.

    A record may start within its range; so may bytes of a body that look like one.
    """
    passed = found[np.searchsorted(found, positions[0]) : np.searchsorted(found, stop)]
    if len(passed) == len(positions):
        return positions
    inner = np.setdiff1d(passed, positions, assume_unique=True)
    for holder in np.unique(np.searchsorted(positions, inner) - 1).tolist():
        if mapped.check(int(positions[holder])).state is RecordState.BROKEN:
            return positions[: holder + 1]
    return positions
