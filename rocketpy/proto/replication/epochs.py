"""Epoch list of a log: start offset of each master, and the common part of two logs. No I/O.

The text form is that of Apache's file `epochFileCheckpoint`::

    number of entries
    CRC-32 of the entries & 0x7fffffff; 0: not checked
    epoch-start, a line for each entry

An epoch without messages is replaced by the next one, because both begin at the same offset.

Source: EpochFileCache, EpochEntry (5.4.0).
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from rocketpy.errors import StoreFormatError

MAX_EPOCHS: Final = 1_000
"""Limit of entries that are kept and sent; older ones are dropped."""

_CRC_MASK: Final = 0x7FFF_FFFF
_MAX_NUMBER: Final = (1 << 63) - 1


class Epoch(NamedTuple):
    """Entry of an epoch list.

    Attributes:
        number: epoch of the master.
        start: physical offset at which its first message is, or would be.
    """

    number: int
    start: int


Epochs: TypeAlias = tuple[Epoch, ...]
"""Epoch list, oldest first; numbers and starts increase."""


def encode_epochs(epochs: Sequence[Epoch]) -> bytes:
    """Return the text of the file."""
    lines = "".join(f"{each.number}-{each.start}\n" for each in epochs).encode()
    return f"{len(epochs)}\n{zlib.crc32(lines) & _CRC_MASK}\n".encode() + lines


def decode_epochs(text: bytes) -> Epochs:
    """Parse the text of the file.

    Raises:
        StoreFormatError: it is damaged.
    """
    try:
        count_line, crc_line, body = text.split(b"\n", 2)
        count, crc = _number(count_line), _number(crc_line)
        pairs = [line.partition(b"-") for line in body.splitlines()]
        epochs = tuple(Epoch(_number(number), _number(start)) for number, _, start in pairs)
    except ValueError as error:
        raise StoreFormatError(f"the epoch list cannot be parsed: {error}") from error
    if count != len(epochs) or (crc and crc != zlib.crc32(body) & _CRC_MASK):
        raise StoreFormatError("the epoch list has a wrong length or checksum")
    check_epochs(epochs)
    return epochs


def _number(text: bytes) -> int:
    """Parse digits only; `int` accepts signs, blanks and underscores as well.

    Raises:
        ValueError: the text has other characters.
    """
    if not text.isdigit():
        raise ValueError(f"{text[:20]!r} is not a number")
    return int(text)


def check_epochs(epochs: Iterable[Epoch]) -> None:
    """Check the order of an epoch list.

    Raises:
        StoreFormatError: numbers or starts do not increase, or are negative or too large.
    """
    last = Epoch(-1, -1)
    for each in epochs:
        if not (last.number < each.number <= _MAX_NUMBER and last.start < each.start):
            raise StoreFormatError(f"epoch {each.number} at {each.start} is out of order")
        if each.start > _MAX_NUMBER:
            raise StoreFormatError(f"epoch {each.number} starts at {each.start}")
        last = each


def with_epoch(epochs: Epochs, number: int, start: int) -> Epochs:
    """Return the list of a new master, whose log ends at `start`.

    Args:
        epochs: its list so far; unchanged if it has the epoch already, from an earlier attempt to
            start.
        number: epoch of the election; not lower than any before.
        start: end of its log.

    Raises:
        ValueError: the list has a higher epoch.
    """
    if epochs and number == epochs[-1].number:
        return epochs
    if epochs and number < epochs[-1].number:
        raise ValueError(f"epoch {number} does not follow epoch {epochs[-1].number}")
    # An entry at or behind the end of the log describes no message.
    kept = tuple(each for each in epochs if each.start < start)
    return (*kept, Epoch(number, start))[-MAX_EPOCHS:]


def equal_end(own: Epochs, own_end: int, other: Epochs, other_end: int) -> int | None:
    """Return the end of the part that two logs have in common; None if the lists do not show it.

    Two logs agree where the same masters wrote them. From the newest entry that both have,
    with the same start, they agree up to the offset at which the first of them changes to
    another epoch. Without a shared entry only the parts before the first entries can be equal.

    Args:
        own: list of the one log.
        own_end: its end.
        other: list of the other log.
        other_end: its end.
    """
    others = {each: _end_of(other, index, other_end) for index, each in enumerate(other)}
    for index in range(len(own) - 1, -1, -1):
        if own[index].start > own_end:
            continue
        end = others.get(own[index])
        if end is not None:
            return min(_end_of(own, index, own_end), end)
    if not own or not other:
        return None
    older, newer = sorted((own[0], other[0]))
    # From the newer epoch's start on, the other log was written in the older one or before.
    return min(newer.start, own_end, other_end) if newer.start <= older.start else None


def _end_of(epochs: Epochs, index: int, log_end: int) -> int:
    if index + 1 < len(epochs):
        return min(epochs[index + 1].start, log_end)
    return log_end


def epoch_at(epochs: Epochs, phy_offset: int) -> Epoch | None:
    """Return the entry that covers an offset; None if the first one begins behind it."""
    index = bisect_right(epochs, phy_offset, key=_start_of)
    return epochs[index - 1] if index else None


def next_start(epochs: Epochs, phy_offset: int) -> int | None:
    """Return where the epoch after that of an offset begins; None if there is none."""
    index = bisect_right(epochs, phy_offset, key=_start_of)
    return epochs[index].start if index < len(epochs) else None


def with_origin(epochs: Epochs) -> Epochs:
    """Return the list with epoch 0 for the bytes before its first entry.

    They were written before the group had a controller, or their entries were dropped.
    """
    if not epochs or epochs[0].start == 0:
        return epochs
    named = epochs if epochs[0].number else epochs[1:]
    return (Epoch(0, 0), *named[1 - MAX_EPOCHS :])


def _start_of(epoch: Epoch) -> int:
    return epoch.start


def epochs_before(epochs: Epochs, end: int) -> Epochs:
    """Return the entries of a log that was cut at `end`."""
    return tuple(each for each in epochs if each.start < end or each.start == end == 0)


def epochs_after(epochs: Epochs, start: int) -> Epochs:
    """Return the entries of a log whose bytes before `start` were deleted."""
    kept = [
        each
        for index, each in enumerate(epochs)
        if index + 1 == len(epochs) or epochs[index + 1].start > start
    ]
    return tuple(kept)
