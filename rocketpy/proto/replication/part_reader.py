"""Decoder of a master's stream in either protocol: frames of a fixed head and bytes of the log."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from rocketpy.errors import FrameTooLongError

_Frame = TypeVar("_Frame")


class PartReader(ABC, Generic[_Frame]):
    """Decoder that holds at most one frame; subclasses know the layout.

    Args:
        head_bytes: size of the head of a frame.
        max_part_bytes: limit of the log bytes of one frame.
    """

    __slots__ = ("_head_bytes", "_max_part_bytes", "_needed_bytes", "_pending")

    def __init__(self, head_bytes: int, max_part_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._max_part_bytes = max_part_bytes
        self._pending = bytearray()
        self._needed_bytes = head_bytes

    def feed(self, data: bytes) -> list[_Frame]:
        """Add received bytes, and return the complete frames.

        Frames before a wrong one are lost with it: the caller closes the connection, and the
        master sends them again.

        Raises:
            BadFrameError: a frame that no correct master sends.
            FrameTooLongError: a part exceeds the limit.
        """
        pending = self._pending
        view = memoryview(data)
        if pending:
            pending += data
            if len(pending) < self._needed_bytes:
                return []
            # Handed over, not copied: frames of a catch-up are large.
            view, self._pending = memoryview(pending), bytearray()
        frames: list[_Frame] = []
        position, end = 0, len(view)
        head_bytes = self._needed_bytes = self._head_bytes
        while end - position >= head_bytes:
            size_bytes = self._size_of(view, position)
            if size_bytes > self._max_part_bytes:
                raise FrameTooLongError(size_bytes, self._max_part_bytes)
            following = position + head_bytes + size_bytes
            if following > end:
                self._needed_bytes = following - position
                break
            frames.append(self._frame(view[position:following]))
            position = following
        self._pending += view[position:]
        return frames

    @abstractmethod
    def _size_of(self, view: memoryview, position: int) -> int:
        """Check a head, and return the number of log bytes behind it.

        Raises:
            BadFrameError: the head is wrong.
        """

    @abstractmethod
    def _frame(self, frame: memoryview) -> _Frame:
        """Return the value of a complete frame, whose head was checked.

        Raises:
            BadFrameError: its checksum or tag is wrong.
        """
