"""What lies unsent on one connection, counted as what it holds in memory."""

import collections


class UnsentOutput:
    """Knows the sizes of the big frames that a transport may still hold; on one loop only.

    A transport holds a frame until its last byte has left, however little is left of it, and until
    the next turn of the loop when the kernel took all of it at once.
    """

    __slots__ = ("_frames", "_frames_bytes", "_fresh_bytes")

    def __init__(self) -> None:
        self._frames: collections.deque[int] = collections.deque()
        self._frames_bytes = 0
        self._fresh_bytes = 0

    def wrote(self, frame_bytes: int) -> None:
        """Note a big frame; small ones need not be noted."""
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
