"""Walking over a commit log that may be damaged.

At each place there is a record, a filler, nothing yet, or damage. Damage is passed over when the
log goes on behind it, and is the end of the log when it does not:

- frame whole, body wrong: passed when a record or filler follows directly;
- frame broken, but its size leads to a record or filler: passed;
- otherwise the bytes are searched for the next record that names its own place. It counts only
  when it is newer than the last good record (older ones are left-overs of an earlier end) and
  not newer than what the checkpoint says was on disk (an unflushed tail may be torn anywhere).
"""

from collections.abc import Iterator

from rocketpy.store.commit_log import CommitLog
from rocketpy.store.mapped_file import MappedFile
from rocketpy.store.record import Judgement, Verdict, judge

__all__ = ["LogScan"]

_MAGIC_START = b"\xda\xa3\x20"
_MAGIC_AT = 4


class LogScan:
    """An iterator over (physical offset, judgement) of records, damaged bodies included.

    Attributes:
        end: where the log ends; complete after the iteration.
        last_ms: store time of the last whole record.
        damaged: physical offsets of records with a wrong body.
        holes: physical offset and size of bytes passed over.
    """

    def __init__(self, log: CommitLog, start: int, vouched_ms: int, *, check_crc: bool) -> None:
        """Prepare a walk.

        Args:
            log: the log.
            start: where a record begins.
            vouched_ms: store time up to which the log is known to be on disk.
            check_crc: whether bodies are checked.
        """
        self._log = log
        self._vouched_ms = vouched_ms
        self._check_crc = check_crc
        self.end = start
        self.last_ms = 0
        self.damaged: list[int] = []
        self.holes: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, Judgement]]:
        position = self.end
        unproven: list[tuple[int, Judgement]] = []
        while True:
            found = self._log.judge(position, check_crc=self._check_crc)
            if found is None:
                break
            if found.verdict is Verdict.RECORD:
                yield from self._settled(unproven)
                self.last_ms = max(self.last_ms, found.store_timestamp_ms)
                yield position, found
            elif found.verdict is Verdict.DAMAGED:
                unproven.append((position, found))
            elif found.verdict is not Verdict.FILLER:
                following = self._pass(position, found)
                if following is None:
                    break
                self.holes.append((position, following - position))
                yield from self._settled(unproven)
                position = self.end = following
                continue
            position += found.size_bytes
            if found.verdict is not Verdict.DAMAGED:
                yield from self._settled(unproven)
                self.end = position
        while unproven and unproven[0][1].store_timestamp_ms <= self._vouched_ms:
            self.end = unproven[0][0] + unproven[0][1].size_bytes
            yield from self._settled([unproven.pop(0)])

    def _settled(self, unproven: list[tuple[int, Judgement]]) -> Iterator[tuple[int, Judgement]]:
        """Accept damaged records, now that the log goes on behind them."""
        for position, found in unproven:
            self.damaged.append(position)
            yield position, found
        unproven.clear()

    def _pass(self, position: int, found: Judgement) -> int | None:
        """Return where the log goes on behind bytes that are no record; None at its end."""
        if found.verdict is Verdict.BROKEN and found.size_bytes:
            following = position + found.size_bytes
            behind = self._log.judge(following, check_crc=self._check_crc)
            if behind is not None and behind.verdict in {Verdict.RECORD, Verdict.FILLER}:
                return following
        if self.last_ms >= self._vouched_ms:
            return None
        mapped = self._find_file(position)
        while mapped is not None:
            following = self._search(mapped, max(position - mapped.base_offset, 0))
            if following >= 0:
                return following
            mapped = self._find_file(mapped.end_offset)
        return None

    def _find_file(self, phy_offset: int) -> MappedFile | None:
        for mapped in self._log.files:
            if mapped.base_offset <= phy_offset < mapped.end_offset:
                return mapped
        return None

    def _search(self, mapped: MappedFile, start: int) -> int:
        """Find the next record of a file that names its own place; -1 without one."""
        at = start
        while at < mapped.size_bytes:
            at = mapped.buffer.find(_MAGIC_START, at + 1)
            if at < 0:
                break
            position = at - _MAGIC_AT
            if position <= start and start > 0:
                continue
            if position < 0:
                continue
            phy_offset = mapped.base_offset + position
            found = judge(mapped.view, position, phy_offset)
            if (
                found.verdict is Verdict.RECORD
                and self.last_ms <= found.store_timestamp_ms <= self._vouched_ms
            ):
                return phy_offset
        return -1
