"""What the peers of one event loop may make us hold, together.

Counted are unfinished input, requests in hand or suspended, and unsent output. Over the limit those
who hold most lose their connection first, so that a few greedy peers cost the others nothing.

What lies unsent on one connection, counted as what it holds in memory.
"""

import collections
from collections.abc import Iterable
from typing import Protocol


class Holder(Protocol):
    """Somebody memory is held for: a connection."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes written and not yet taken by the peer."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Whether the peer has taken nothing of them for a while."""
        ...

    def held_bytes(self) -> int:
        """Bytes held at this moment, unsent ones included."""
        ...

    def give_up(self, held_bytes: int) -> None:
        """Let go of everything at once."""
        ...


class MemoryBudget:
    """Bytes held, in all and for whom; used on one loop only.

    Holders tell by `count` when what they hold has changed noticeably. In between the numbers may
    be too high, so all holders are asked again before anybody is refused or loses anything.

    Who is cut off still counts until it is gone: the memory is free only then. Until it is,
    `is_exhausted` says that nobody should be given more.

    Attributes:
        is_exhausted: more is held than allowed, those being cut off included.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Set the limit; 0 is none. Half of it is for unsent output that may be added to."""
        self._limit_bytes = limit_bytes
        self._unsent_limit_bytes = limit_bytes // 2
        self._held: dict[Holder, int] = {}
        self._unsent: dict[Holder, int] = {}
        self._ending: dict[Holder, int] = {}
        self._held_bytes = 0
        self._unsent_bytes = 0
        self._ending_bytes = 0
        self.is_exhausted: bool = False

    @property
    def held_bytes(self) -> int:
        """Bytes held for all, as last told."""
        return self._held_bytes

    def count(self, holder: Holder) -> None:
        """Note what a holder holds now; cut off the greediest when that is too much in all."""
        if holder in self._ending:
            return
        before_bytes = self._held_bytes
        self._note(holder)
        if before_bytes < self._held_bytes > self._limit_bytes > 0:
            self._note_all(self._held)
            greediest_last = sorted(self._held, key=self._held.__getitem__)
            while self._held_bytes > self._limit_bytes:
                self._give_up(greediest_last.pop())
        self._look()  # also for what is ending, and for what was taken meanwhile

    def end(self, holder: Holder) -> None:
        """Count a holder on that is closing; it has no more than it had, until it is released."""
        held_bytes = self._held.get(holder, 0)
        self._forget(holder)
        if held_bytes:
            self._ending[holder] = held_bytes
            self._ending_bytes += held_bytes
            self._look()

    def release(self, holder: Holder) -> None:
        """Forget a holder whose memory is free."""
        self._forget(holder)
        self._ending_bytes -= self._ending.pop(holder, 0)
        self._look()

    def is_output_full(self) -> bool:
        """Whether so much lies unsent for all peers that no more should be added now."""
        if self.is_exhausted:
            return True
        if not self._is_output_over():
            return False
        self._note_all(self._unsent)
        return self._is_output_over()

    def _look(self) -> None:
        self.is_exhausted = self._held_bytes + self._ending_bytes > self._limit_bytes > 0

    def _forget(self, holder: Holder) -> None:
        self._held_bytes -= self._held.pop(holder, 0)
        self._unsent_bytes -= self._unsent.pop(holder, 0)

    def make_room_for_output(self) -> None:
        """Cut off peers that take nothing, greediest first, until output may be added."""
        self._note_all(self._unsent)
        stalled = [holder for holder in self._unsent if holder.is_stalled]
        stalled.sort(key=self._unsent.__getitem__)
        while stalled and self._is_output_over():
            self._give_up(stalled.pop())

    def _is_output_over(self) -> bool:
        return self._unsent_bytes > self._unsent_limit_bytes > 0

    def _note(self, holder: Holder) -> None:
        held_bytes, unsent_bytes = holder.held_bytes(), holder.unsent_bytes
        self._forget(holder)
        if held_bytes:
            self._held[holder] = held_bytes
            self._held_bytes += held_bytes
        if unsent_bytes:
            self._unsent[holder] = unsent_bytes
            self._unsent_bytes += unsent_bytes

    def _note_all(self, holders: Iterable[Holder]) -> None:
        for holder in list(holders):
            self._note(holder)

    def _give_up(self, holder: Holder) -> None:
        held_bytes = self._held[holder]
        self.end(holder)
        holder.give_up(held_bytes)


class UnsentOutput:
    """Sizes of the big frames that a transport may still hold; used on one loop only.

    A transport holds a frame until its last byte has left, however little is left of it, and until
    the next iteration of the loop when the kernel took all of it at once.

    Attributes:
        has_seen_big_frame: whether the peer was ever sent a big frame.
    """

    __slots__ = ("_frames", "_frames_bytes", "_fresh_bytes", "has_seen_big_frame")

    def __init__(self) -> None:
        self.has_seen_big_frame: bool = False
        self._frames: collections.deque[int] = collections.deque()
        self._frames_bytes = 0
        self._fresh_bytes = 0

    def wrote(self, frame_bytes: int) -> None:
        """Note a big frame; small ones need not be noted."""
        self.has_seen_big_frame = True
        self._frames.append(frame_bytes)
        self._frames_bytes += frame_bytes
        self._fresh_bytes += frame_bytes

    def turned(self, frame_bytes: int) -> None:
        """Note that the loop has turned since that frame was written."""
        self._fresh_bytes -= frame_bytes

    def held_bytes(self, left_bytes: int) -> int:
        """Return what is held when so many bytes are left to send."""
        frames = self._frames
        needed_bytes = max(left_bytes, self._fresh_bytes)
        while frames and self._frames_bytes - frames[0] >= needed_bytes:
            self._frames_bytes -= frames.popleft()
        return max(left_bytes, self._frames_bytes)
