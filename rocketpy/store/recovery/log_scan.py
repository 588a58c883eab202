"""Scan of a commit log that may be damaged.

At each position there is a record, a blank, nothing yet, or damage. Damage is skipped if the log
continues after it; otherwise it is the end of the log:

- intact frame, wrong body: skipped if a record or blank follows directly;
- broken frame whose size leads to a record or blank: skipped;
- otherwise the scan searches for the next record that holds its own offset. In a log written by
  Apache it counts only if it is newer than the last intact record: older ones are left-overs of an
  earlier end, which Apache does not erase.

After a power cut this applies only to the trusted range. After the last flush any record may be
torn, and the lost part must be a suffix of the log, so the first damage is the end. If only the
process died, the page cache survived and nothing is torn. If the cause is unknown (Apache does not
record it), a sector of zeros within a damaged record indicates a power cut.

Where nothing can be torn, fast-path eligible records are read in bulk (`bulk_recovery`), and the
iteration yields only the others.
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
    """Part of the log that is known to be on disk.

    Attributes:
        ms: its end as store time, the only value in Apache's checkpoint.
        phy_offset: its end as physical offset, which is exact; None if only the time is known.
    """

    ms: int
    phy_offset: int | None = None


class LogScan:
    """Iterator over (physical offset, record check) of records, damaged bodies included.

    Records that `BulkRecovery` has handled are not yielded.

    Attributes:
        end: end of the log; final after the iteration.
        last_ms: newest store time of complete records.
        damaged: physical offsets of records with a wrong body.
        holes: physical offset and size of skipped bytes.
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
        """Prepare a scan.

        Args:
            log: the commit log.
            start: physical offset of a record.
            vouched: the trusted range.
            check_crc: whether to check bodies.
            power_cut: whether the machine was restarted; None if unknown.
            runs: handles records in bulk.
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
                # Decided by the bytes that follow: damage within the log, or a torn tail.
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
        # Nothing follows: only records of the trusted range are kept, because they were intact
        # once.
        while unproven and self._is_kept(*unproven[0]):
            self.end = unproven[0][0] + unproven[0][1].size_bytes
            yield from self._settled([unproven.pop(0)])

    def _behind_runs(self, position: int) -> int:
        """Handle eligible records in bulk; return the offset of the next record."""
        runs = self._runs
        while runs is not None and position >= self._one_by_one_to:
            mapped = self._log.queue.find(position)
            if mapped is None:
                break
            # Bytes after the first hole were never written, so reading them would only fault in
            # zeros.
            end = min(mapped.size_bytes - BLANK_BYTES, mapped.data_end) + mapped.base_offset
            if not self._memory_survived:  # later records may be torn
                end = min(end, self._vouched.phy_offset or 0)
            run = runs.take(mapped, position, end)
            if run is None:
                break
            if not run.is_taken:
                # Trying the same records in bulk again would fail again.
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
        """Return whether the next bytes are in the trusted range."""
        if self._vouched.phy_offset is not None:
            return position < self._vouched.phy_offset
        return self.last_ms < self._vouched.ms

    def _is_kept(self, position: int, found: RecordCheck) -> bool:
        """Return whether a damaged last record is kept."""
        if self._memory_survived:
            return True
        if self._vouched.phy_offset is not None:
            return position < self._vouched.phy_offset
        return found.store_timestamp_ms <= self._vouched.ms

    def _is_torn(self, position: int, size_bytes: int) -> bool:
        """Return whether a record outside the trusted range lacks a sector after a power cut."""
        if self._memory_survived or self._is_vouched(position):
            return False
        return self._lacks_sector(position + _FRAME_HEAD_BYTES, position + size_bytes)

    def _has_torn_text(self, position: int, found: RecordCheck) -> bool:
        """Return whether topic or properties lack a sector; no checksum covers these."""
        if self._memory_survived or self._is_vouched(position):
            return False
        end = position + found.size_bytes
        properties_at = end - len(found.properties)
        topic_end = properties_at - _PROPERTIES_HEAD_BYTES
        return self._lacks_sector(properties_at, end) or self._lacks_sector(
            topic_end - len(found.topic), topic_end
        )

    def _lacks_sector(self, start: int, end: int) -> bool:
        """Return whether any sector between two offsets is all zeros."""
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
        """Return the next record of a file that holds its own offset; -1 if there is none."""
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
        """Return whether a record found by search belongs to the log, not to an earlier end."""
        vouched = self._vouched
        if vouched.phy_offset is not None:
            return not within_vouched or phy_offset <= vouched.phy_offset
        return time_ms >= self.last_ms and (not within_vouched or time_ms <= vouched.ms)
