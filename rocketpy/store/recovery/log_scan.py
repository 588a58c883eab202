"""Walking over a commit log that may be damaged.

At each place there is a record, a blank, nothing yet, or damage. Damage is passed over when the
log goes on behind it, and is the end of the log when it does not:

- frame whole, body wrong: passed when a record or blank follows directly;
- frame broken, but its size leads to a record or blank: passed;
- otherwise the bytes are searched for the next record that names its own place. In a log that
  Apache wrote it counts only when it is newer than the last good record: older ones are left-overs
  of an earlier end, which Apache does not erase.

After a power cut this holds only for what was on disk before. Behind the last flush anything may
be torn, and what is lost must be a suffix of the log: there the first damage is the end. When only
the process died, memory outlived it and nothing was torn. When it is not known which (Apache does
not say), a sector of zeros within a damaged record tells of a power cut.

Where nothing can be torn, plain records behind a whole one are read many at a time
(`recovered_runs`), and only the others come out of the iteration.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rocketpy.proto.record.record import BLANK_BYTES, MAGIC_AT
from rocketpy.proto.record.record_check import RecordCheck, RecordState, check_record
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.files.mapped_file import MappedFile
from rocketpy.store.recovery.bulk_recovery import BulkRecovery

_MAGIC_START = b"\xda\xa3\x20"
_FRAME_HEAD_BYTES = 8
_SECTOR_BYTES = 512
_PROPERTIES_HEAD_BYTES = 2


class TrustedRange(NamedTuple):
    """Up to where the log is known to be on disk.

    Attributes:
        ms: by store time, which is all that Apache's checkpoint says.
        phy_offset: by physical offset, which is exact; None when only the time is known.
    """

    ms: int
    phy_offset: int | None = None


class LogScan:
    """An iterator over (physical offset, record check) of records, damaged bodies included.

    Those that `BulkRecovery` has taken do not come.

    Attributes:
        end: where the log ends; complete after the iteration.
        last_ms: newest store time of the whole records.
        damaged: physical offsets of records with a wrong body.
        holes: physical offset and size of bytes passed over.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        vouched: TrustedRange,
        *,
        check_crc: bool,
        power_cut: bool | None,
        runs: BulkRecovery | None = None,
    ) -> None:
        """Prepare a walk.

        Args:
            log: the log.
            start: where a record begins.
            vouched: up to where the log is known to be on disk.
            check_crc: whether bodies are checked.
            power_cut: whether the machine started anew since; None when that is unknown.
            runs: takes records many at a time.
        """
        self._log = log
        self._vouched = vouched
        self._check_crc = check_crc
        self._memory_survived = power_cut is False
        self._runs = runs
        self._one_by_one_to = 0
        self.end: int = start
        self.last_ms: int = 0
        self.damaged: list[int] = []
        self.holes: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, RecordCheck]]:
        position = self.end
        unproven: list[tuple[int, RecordCheck]] = []
        while True:
            found = self._log.check(position, check_crc=self._check_crc)
            if found is None:
                break
            if found.state is RecordState.RECORD:
                if self._has_torn_text(position, found):
                    break
                yield from self._settled(unproven) if unproven else ()
                self.last_ms = max(self.last_ms, found.store_timestamp_ms)
                yield position, found
            elif found.state is RecordState.DAMAGED:
                if self._is_torn(position, found.size_bytes):
                    break
                unproven.append((position, found))
            elif found.state is not RecordState.BLANK:
                following = self._pass(position, found)
                if following is None:
                    break
                self.holes.append((position, following - position))
                yield from self._settled(unproven)
                position = self.end = following
                continue
            position += found.size_bytes
            if found.state is not RecordState.DAMAGED:
                yield from self._settled(unproven) if unproven else ()
                if found.state is RecordState.RECORD:
                    position = self._behind_runs(position)
                self.end = position
        while unproven and self._is_kept(*unproven[0]):
            self.end = unproven[0][0] + unproven[0][1].size_bytes
            yield from self._settled([unproven.pop(0)])

    def _behind_runs(self, position: int) -> int:
        """Have plain records taken while there are any; return where the next record begins."""
        runs = self._runs
        while runs is not None and position >= self._one_by_one_to:
            mapped = self._log.queue.find(position)
            if mapped is None:
                break
            end = min(mapped.size_bytes - BLANK_BYTES, mapped.data_end) + mapped.base_offset
            if not self._memory_survived:  # behind it any record may be torn
                end = min(end, self._vouched.phy_offset or 0)
            run = runs.take(mapped, position, end)
            if run is None:
                break
            if not run.is_taken:
                self._one_by_one_to = run.end
                break
            position = run.end
            self.last_ms = max(self.last_ms, run.last_ms)
        return position

    def _settled(
        self, unproven: list[tuple[int, RecordCheck]]
    ) -> Iterator[tuple[int, RecordCheck]]:
        """Accept damaged records, because intact records follow them."""
        for position, found in unproven:
            self.damaged.append(position)
            yield position, found
        unproven.clear()

    def _pass(self, position: int, found: RecordCheck) -> int | None:
        """Return the next record after invalid bytes; None at the end of the log."""
        if self._is_torn(position, found.size_bytes):
            return None
        if found.state is RecordState.BROKEN and found.size_bytes:
            following = position + found.size_bytes
            behind = self._log.check(following, check_crc=self._check_crc)
            if behind is not None and behind.state in {RecordState.RECORD, RecordState.BLANK}:
                return following
        within_vouched = found.state is RecordState.EMPTY or not self._memory_survived
        if within_vouched and not self._is_vouched(position):
            return None
        mapped = self._find_file(position)
        while mapped is not None:
            start = max(position - mapped.base_offset, 0)
            following = self._search(mapped, start, within_vouched=within_vouched)
            if following >= 0:
                return following
            mapped = self._find_file(mapped.end_offset)
        return None

    def _is_vouched(self, position: int) -> bool:
        """Whether bytes that follow what was read so far are known to be on disk."""
        if self._vouched.phy_offset is not None:
            return position < self._vouched.phy_offset
        return self.last_ms < self._vouched.ms

    def _is_kept(self, position: int, found: RecordCheck) -> bool:
        """Whether a damaged record stays though nothing whole follows it."""
        if self._memory_survived:
            return True
        if self._vouched.phy_offset is not None:
            return position < self._vouched.phy_offset
        return found.store_timestamp_ms <= self._vouched.ms

    def _is_torn(self, position: int, size_bytes: int) -> bool:
        """Whether a power cut kept a sector of an unvouched record from the disk."""
        if self._memory_survived or self._is_vouched(position):
            return False
        return self._lacks_sector(position + _FRAME_HEAD_BYTES, position + size_bytes)

    def _has_torn_text(self, position: int, found: RecordCheck) -> bool:
        """Whether it kept a part of the topic or the properties, which no checksum covers."""
        if self._memory_survived or self._is_vouched(position):
            return False
        end = position + found.size_bytes
        properties_at = end - len(found.properties)
        topic_end = properties_at - _PROPERTIES_HEAD_BYTES
        return self._lacks_sector(properties_at, end) or self._lacks_sector(
            topic_end - len(found.topic), topic_end
        )

    def _lacks_sector(self, start: int, end: int) -> bool:
        """Whether the part of any one sector between two offsets is all zeros."""
        mapped = self._find_file(start)
        if mapped is None:
            return False
        at, stop = start - mapped.base_offset, end - mapped.base_offset
        while at < stop:
            sector_end = min(stop, at - at % _SECTOR_BYTES + _SECTOR_BYTES)
            if not any(mapped.view[at:sector_end]):
                return True
            at = sector_end
        return False

    def _find_file(self, phy_offset: int) -> MappedFile | None:
        for mapped in self._log.files:
            if mapped.base_offset <= phy_offset < mapped.end_offset:
                return mapped
        return None

    def _search(self, mapped: MappedFile, start: int, *, within_vouched: bool) -> int:
        """Find the next record of a file that names its own place; -1 without one."""
        at = start
        while at < mapped.size_bytes:
            at = mapped.buffer.find(_MAGIC_START, at + 1)
            if at < 0:
                break
            position = at - MAGIC_AT
            if position <= start and start > 0:
                continue
            if position < 0:
                continue
            phy_offset = mapped.base_offset + position
            found = check_record(mapped.view, position, phy_offset)
            if found.state is RecordState.RECORD and self._counts(
                phy_offset, found.store_timestamp_ms, within_vouched=within_vouched
            ):
                return phy_offset
        return -1

    def _counts(self, phy_offset: int, time_ms: int, *, within_vouched: bool) -> bool:
        """Whether a record found by searching belongs to this log, not to an earlier end of it."""
        vouched = self._vouched
        if vouched.phy_offset is not None:
            return not within_vouched or phy_offset <= vouched.phy_offset
        return time_ms >= self.last_ms and (not within_vouched or time_ms <= vouched.ms)
