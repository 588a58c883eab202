"""Walking over a commit log that may be damaged.

At each place there is a record, a blank, nothing yet, or damage. Damage is passed over when the
log goes on behind it, and is the end of the log when it does not:

- frame whole, body wrong: passed when a record or blank follows directly;
- frame broken, but its size leads to a record or blank: passed;
- otherwise the bytes are searched for the next record that names its own place. It counts only
  when it is newer than the last good record (older ones are left-overs of an earlier end).

After a power cut this holds only for what was on disk before. Behind the last flush anything may
be torn, and what is lost must be a suffix of the log: there the first damage is the end. When only
the process died, memory outlived it and nothing was torn. When it is not known which (Apache does
not say), a sector of zeros within a damaged record tells of a power cut.
"""

from collections.abc import Iterator

from rocketpy.proto.record import MAGIC_AT
from rocketpy.proto.record_check import RecordCheck, RecordState, check_record
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.mapped_file import MappedFile

_MAGIC_START = b"\xda\xa3\x20"
_FOREVER_MS = 1 << 62
_FRAME_HEAD_BYTES = 8
_SECTOR_BYTES = 512
_PROPERTIES_HEAD_BYTES = 2


class LogScan:
    """An iterator over (physical offset, judgement) of records, damaged bodies included.

    Attributes:
        end: where the log ends; complete after the iteration.
        last_ms: store time of the last whole record.
        damaged: physical offsets of records with a wrong body.
        holes: physical offset and size of bytes passed over.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        vouched_ms: int,
        *,
        check_crc: bool,
        power_cut: bool | None,
    ) -> None:
        """Prepare a walk.

        Args:
            log: the log.
            start: where a record begins.
            vouched_ms: store time up to which the log is known to be on disk.
            check_crc: whether bodies are checked.
            power_cut: whether the machine started anew since; None when that is unknown.
        """
        self._power_cut = power_cut
        self._search_until_ms = vouched_ms if power_cut is not False else _FOREVER_MS
        self._log = log
        self._vouched_ms = vouched_ms
        self._check_crc = check_crc
        self.end = start
        self.last_ms = 0
        self.damaged: list[int] = []
        self.holes: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, RecordCheck]]:
        position = self.end
        unproven: list[tuple[int, RecordCheck]] = []
        while True:
            found = self._log.judge(position, check_crc=self._check_crc)
            if found is None:
                break
            if found.verdict is RecordState.RECORD:
                if self._has_torn_text(position, found):
                    break
                yield from self._settled(unproven) if unproven else ()
                self.last_ms = max(self.last_ms, found.store_timestamp_ms)
                yield position, found
            elif found.verdict is RecordState.DAMAGED:
                if self._is_torn(position, found.size_bytes):
                    break
                unproven.append((position, found))
            elif found.verdict is not RecordState.BLANK:
                following = self._pass(position, found)
                if following is None:
                    break
                self.holes.append((position, following - position))
                yield from self._settled(unproven)
                position = self.end = following
                continue
            position += found.size_bytes
            if found.verdict is not RecordState.DAMAGED:
                if unproven:
                    yield from self._settled(unproven)
                self.end = position
        keep_until_ms = max(self._vouched_ms, self._search_until_ms)
        while unproven and unproven[0][1].store_timestamp_ms <= keep_until_ms:
            self.end = unproven[0][0] + unproven[0][1].size_bytes
            yield from self._settled([unproven.pop(0)])

    def _settled(
        self, unproven: list[tuple[int, RecordCheck]]
    ) -> Iterator[tuple[int, RecordCheck]]:
        """Accept damaged records, now that the log goes on behind them."""
        for position, found in unproven:
            self.damaged.append(position)
            yield position, found
        unproven.clear()

    def _pass(self, position: int, found: RecordCheck) -> int | None:
        """Return where the log goes on behind bytes that are no record; None at its end."""
        if self._is_torn(position, found.size_bytes):
            return None
        if found.verdict is RecordState.BROKEN and found.size_bytes:
            following = position + found.size_bytes
            behind = self._log.judge(following, check_crc=self._check_crc)
            if behind is not None and behind.verdict in {RecordState.RECORD, RecordState.BLANK}:
                return following
        until_ms = self._vouched_ms if found.verdict is RecordState.EMPTY else self._search_until_ms
        if self.last_ms >= until_ms:
            return None
        mapped = self._find_file(position)
        while mapped is not None:
            following = self._search(mapped, max(position - mapped.base_offset, 0), until_ms)
            if following >= 0:
                return following
            mapped = self._find_file(mapped.end_offset)
        return None

    def _is_torn(self, position: int, size_bytes: int) -> bool:
        """Whether a power cut kept a sector of an unvouched record from the disk."""
        if self.last_ms < self._vouched_ms:
            return False
        return self._lacks_sector(position + _FRAME_HEAD_BYTES, position + size_bytes)

    def _has_torn_text(self, position: int, found: RecordCheck) -> bool:
        """Whether it kept a part of the topic or the properties, which no checksum covers."""
        if self.last_ms < self._vouched_ms:
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

    def _search(self, mapped: MappedFile, start: int, until_ms: int) -> int:
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
            if (
                found.verdict is RecordState.RECORD
                and self.last_ms <= found.store_timestamp_ms <= until_ms
            ):
                return phy_offset
        return -1
