"""Standard input and output as pipes: lines as they arrive, and detection of a gone reader."""

import array
import asyncio
import io
import os
import select
import stat
import sys
from collections.abc import Awaitable, Callable
from typing import BinaryIO, Final

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_TURNS: Final = 20
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.05
_GONE_PAUSE_S: Final = 0.25
"""Time between checks for a reader."""


def _is_pipe(stream: BinaryIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, io.UnsupportedOperation):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class Lines:
    """Lines of a stream; waiting for a line of a pipe does not block the loop.

    Args:
        stream: source of the lines.
        before_waiting: awaited before a terminal blocks the loop until a line is typed.
    """

    def __init__(self, stream: BinaryIO, before_waiting: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._before_waiting = before_waiting
        self._reader: asyncio.StreamReader | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._has_ended = False

    async def next(self) -> bytes:
        """Return the next line with its line end, if it has one; an empty text at the end.

        Raises:
            ValueError: a line of a pipe is longer than `MAX_LINE_BYTES`.
        """
        if self._has_ended:
            return b""
        if self._reader is None and _is_pipe(self._stream):
            reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), self._stream
            )
            self._reader = reader
        if self._reader is not None:
            return await self._reader.readline()
        if self._stream.isatty():
            await self._before_waiting()
        return self._stream.readline()

    def end(self) -> None:
        """End the input: a waiting `next` returns an empty text, and nothing more is read."""
        self._has_ended = True
        if self._transport is not None:
            self._transport.close()


async def until_read() -> None:
    """Wait until the reader of standard output has read all of it; at once if it is not a pipe.

    Raises:
        BrokenPipeError: the reader is gone.
    """
    pause_s = _FIRST_PAUSE_S
    turns = 0
    while not is_read():
        turns += 1
        await asyncio.sleep(0 if turns < _TURNS else pause_s)
        if turns >= _TURNS:
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def is_read() -> bool:
    """Return whether all of standard output was read; true if it is not a pipe.

    Raises:
        BrokenPipeError: not all of it was read, and the reader is gone.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    if not _is_watched():
        return True
    descriptor = sys.stdout.fileno()
    is_closed = _is_closed(descriptor)  # checked first: output that is unread then stays unread
    if not _unread_bytes(descriptor):
        return True
    if is_closed:
        raise BrokenPipeError
    return False


async def until_reader_is_gone() -> None:
    """Wait until nothing reads standard output any more; for ever if it is not a pipe."""
    # No event announces a reader that is gone.
    while not (_is_watched() and _is_closed(sys.stdout.fileno())):  # noqa: ASYNC110
        await asyncio.sleep(_GONE_PAUSE_S)


def _is_watched() -> bool:
    is_open = sys.stdout is not None  # closed by the shell's `>&-`
    return is_open and sys.platform != "win32" and _is_pipe(sys.stdout.buffer)


def _unread_bytes(descriptor: int) -> int:
    import fcntl  # noqa: PLC0415 - not on Windows
    import termios  # noqa: PLC0415

    count = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
    except OSError:  # a socket, or a system without this request
        return 0
    return count[0]


def _is_closed(descriptor: int) -> bool:
    """Return whether the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
