"""Memory budget of the connections of one event loop, and unsent output of one connection.

Counted are unfinished input, requests in progress or suspended, and unsent output. Over the limit
the connections that hold most are aborted first, so that a few greedy peers do not harm the others.
"""

import collections
from collections.abc import Iterable
from typing import Protocol


class Holder(Protocol):
    """Connection that memory is held for."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes written and not yet taken by the peer."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Whether the peer has taken none of them for a while."""
        ...

    def held_bytes(self) -> int:
        """Bytes held at this moment, unsent ones included."""
        ...

    def abort_for_memory(self, held_bytes: int) -> None:
        """Release everything at once: the budget is exceeded."""
        ...


class MemoryBudget:
    """Bytes held by each connection and in all; used on one loop only.

    Holders call `count` when what they hold has changed noticeably. In between the numbers may be
    too high, so all holders are asked again before a connection is refused or aborted.

    An aborted holder still counts until it is gone, as its memory is free only then. Until then
    `is_exhausted` stays set, so that no request is served and nothing more is held.

    Attributes:
        is_exhausted: more is held than allowed, aborted connections included.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Set the limit; 0 is no limit. Unsent output may grow up to half of it."""
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
        """Bytes held in all, as last counted."""
        return self._held_bytes

    def count(self, holder: Holder) -> None:
        """Count what a holder holds now; abort the greediest when all hold too much."""
        # An aborted connection may still report; its share is fixed until it is released.
        if holder in self._ending:
            return
        before_bytes = self._held_bytes
        self._note(holder)
        # Only growth can exceed the limit.
        if before_bytes < self._held_bytes > self._limit_bytes > 0:
            self._note_all(self._held)
            # Sorted once, not per abort: with many peers that would be quadratic.
            greediest_last = sorted(self._held, key=self._held.__getitem__)
            while self._held_bytes > self._limit_bytes:
                self._abort(greediest_last.pop())
        self._update()  # also for closing holders, and for requests served meanwhile

    def end(self, holder: Holder) -> None:
        """Keep counting a closing holder with what it held last, until it is released."""
        held_bytes = self._held.get(holder, 0)
        self._forget(holder)
        if held_bytes:
            self._ending[holder] = held_bytes
            self._ending_bytes += held_bytes
            self._update()

    def release(self, holder: Holder) -> None:
        """Forget a holder whose memory is free."""
        self._forget(holder)
        self._ending_bytes -= self._ending.pop(holder, 0)
        self._update()

    def is_output_full(self) -> bool:
        """Return whether all peers have too much unsent output for more to be added."""
        if self.is_exhausted:
            return True
        if not self._is_output_over():
            return False
        # Peers take output without a report: count again before refusing.
        self._note_all(self._unsent)
        return self._is_output_over()

    def _update(self) -> None:
        self.is_exhausted = self._held_bytes + self._ending_bytes > self._limit_bytes > 0

    def _forget(self, holder: Holder) -> None:
        self._held_bytes -= self._held.pop(holder, 0)
        self._unsent_bytes -= self._unsent.pop(holder, 0)

    def make_room_for_output(self) -> None:
        """Abort stalled peers, greediest first, until output may be added."""
        self._note_all(self._unsent)
        # A peer that takes something is slow at most, and frees memory by itself.
        stalled = [holder for holder in self._unsent if holder.is_stalled]
        stalled.sort(key=self._unsent.__getitem__)
        while stalled and self._is_output_over():
            self._abort(stalled.pop())

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
        # A copy: `_note` changes the table.
        for holder in list(holders):
            self._note(holder)

    def _abort(self, holder: Holder) -> None:
        held_bytes = self._held[holder]
        self.end(holder)
        holder.abort_for_memory(held_bytes)


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
        """Note a big frame; small ones are not tracked."""
        self.has_seen_big_frame = True
        self._frames.append(frame_bytes)
        self._frames_bytes += frame_bytes
        self._fresh_bytes += frame_bytes

    def iterated(self, frame_bytes: int) -> None:
        """Note that an iteration has ended since that frame was written."""
        self._fresh_bytes -= frame_bytes

    def held_bytes(self, left_bytes: int) -> int:
        """Return the bytes held while `left_bytes` are still to be sent."""
        frames = self._frames
        # Fresh frames stay in memory for this iteration, even when the kernel took them.
        needed_bytes = max(left_bytes, self._fresh_bytes)
        while frames and self._frames_bytes - frames[0] >= needed_bytes:
            self._frames_bytes -= frames.popleft()
        return max(left_bytes, self._frames_bytes)
