"""Pulls of which all but the offsets is known, served by Python as soon as their bytes come.

A consumer asks for the same with each pull of a queue: headers in JSON differ in three numbers,
`queueOffset`, `commitOffset` and `opaque`. So the text around these is what a pull is looked up by;
what it says was read once, by those who read any header. Where the compiled path is, it does this
in C (`_plain_sends_pulls.pxi`); both ask `FastPullService` who may pull what, what is committed and
counted, and how one waits.

Taken over are pulls by name, of all messages whatever their tags, without a body. The others, and
those that do not read as they usually do, go the ordinary way (`pull_message`): nothing was touched
then.

A JSON text with other digits where digits were is a JSON text, too, that differs in that value
only; so what two texts said about the three numbers holds for all of their kind. It is looked at
(`JsonPullCache._learn`), as a name may stand in a header twice, or in another object within it.
"""

import re
import struct
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketpy.broker.fast_path.pull_service import FastPullService, PlainRead, PullPlan
from rocketpy.broker.processor.pull_response import JSON
from rocketpy.errors import BadHeaderError, HeaderFieldError
from rocketpy.proto.headers.base import SAFE_INT_DIGITS, SAFE_LONG_DIGITS
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.json_header import decode_json_header
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.transport import Buffer

_PREFIX: Final = struct.Struct(">iI")
_CODES: Final = (int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE))
_BEGINS: Final = tuple(b'{"code":%d,' % code for code in _CODES)
_split: Final = re.compile(rb'"((?:queue|commit)Offset":"|opaque":)(\d+)').split
_NAMES: Final = (b'queueOffset":"', b'commitOffset":"', b'opaque":')
_PARTS: Final = 10
"""Three numbers, the names before them, and the texts around these pairs."""
_SHORT_DIGITS: Final = 8
_ZERO: Final = ord("0")

_MOST_HEADER_BYTES: Final = 1_024
_MOST_KNOWN: Final = 4_096
"""At most three kilobytes each."""
_MOST_MISSED: Final = 16 * _MOST_KNOWN
"""So many pulls that were not known, and could not be learned, before all are learned anew."""
_MOST_PULLS: Final = 64
"""A call, so that other connections get their turn."""
_MOST_BYTES: Final = 1 << 20
"""Of responses, after which no other pull is begun."""
_ORDINARY_PULLS: Final = 32
"""So many pulls go the ordinary way after one that was not to be served here."""


class _Numbers(NamedTuple):
    """Which of a header's three numbers, as they stand in it, is which."""

    queue_offset: int
    commit_offset: int
    opaque: int


class _Known:
    """What all pulls say whose headers differ in their numbers only."""

    __slots__ = ("numbers", "ordinary_left", "pull", "suspend_ms")

    def __init__(self, numbers: _Numbers, pull: PullPlan, suspend_ms: int) -> None:
        self.numbers = numbers
        self.pull = pull
        self.suspend_ms = suspend_ms
        self.ordinary_left = 0


class JsonPullCache:
    """Serves pulls at the start of received bytes; a `ByteHandler`.

    One call at a time: another one meanwhile serves nothing.

    Args:
        runs: begins and ends pulls.
        max_frame_bytes: limit of a whole frame.
    """

    def __init__(self, runs: FastPullService, max_frame_bytes: int) -> None:
        self._runs = runs
        self._most_length = min(_MOST_HEADER_BYTES, max_frame_bytes - 4)
        self._missed_count = 0
        self._known: dict[tuple[bytes, ...], _Known | None] = {}
        self._lock = threading.Lock()

    def __call__(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        """Serve what can be served; return how many bytes that was and their responses."""
        if not data.startswith(_BEGINS, 8) or not self._lock.acquire(blocking=False):
            return 0, b""
        try:
            return self._serve(channel, data)
        finally:
            self._lock.release()

    def answer(self, known: PullPlan, queue_offset: int, opaque: int, kind: int) -> bytes | None:
        """Return the response to a pull that waited; see `pull_runs.AnswersPull`."""
        if kind != JSON or not self._lock.acquire(blocking=False):
            return None
        frames: list[Buffer] = []
        reads: list[PlainRead] = []
        began_ms = self._runs.now_ms()
        try:
            # What it committed was committed when it came.
            if not self._read(known, queue_offset, -1, opaque, frames, reads):
                return None
            self._runs.settle(reads, began_ms)
            return b"".join(frames)
        finally:
            self._lock.release()

    def _serve(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        position, count, size_bytes, end = 0, 0, 0, len(data)
        frames: list[Buffer] = []
        reads: list[PlainRead] = []
        began_ms = self._runs.now_ms()
        try:
            while count < _MOST_PULLS and size_bytes < _MOST_BYTES:
                if not data.startswith(_BEGINS, position + 8):
                    break
                length, header_size = _PREFIX.unpack_from(data, position)
                following = position + 4 + length
                if header_size != length - 4 or following > end or length > self._most_length:
                    break  # with a body, cut, or of another kind
                parts = _split(data[position + 8 : following])
                known = self._known_of(parts)
                if known is None:
                    break
                numbers = map(parts.__getitem__, known.numbers)
                queue_offset, commit_offset, opaque = map(int, numbers)
                taken_bytes = self._read(
                    known.pull, queue_offset, commit_offset, opaque, frames, reads
                )
                if not taken_bytes:
                    # What it commits comes after what those before it did.
                    if reads:
                        self._runs.settle(reads, began_ms)
                        reads.clear()
                    response = self._runs.wait(
                        known.pull,
                        queue_offset,
                        commit_offset,
                        known.suspend_ms,
                        opaque,
                        JSON,
                        channel,
                    )
                    if response is None:
                        known.ordinary_left = _ORDINARY_PULLS
                        break
                    frames.append(response)
                size_bytes += taken_bytes
                count += 1
                position = following
        finally:
            if reads:
                self._runs.settle(reads, began_ms)
        return position, b"".join(frames)

    def _known_of(self, parts: Sequence[bytes]) -> _Known | None:
        """Return what a header says that was split at its numbers; None for the ordinary way."""
        if len(parts) != _PARTS:
            return None
        key = (*parts[::3], *parts[1::3])
        try:
            known = self._known[key]
        except KeyError:
            if not self._has_room():
                return None
            known = self._known[key] = self._learn(parts)
        if known is None:
            return None
        if known.ordinary_left:
            known.ordinary_left -= 1
            return None
        return known if _are_numbers(parts, known.numbers) else None

    def _has_room(self) -> bool:
        """Whether another kind of header may be learned: that costs as much as some pulls."""
        if len(self._known) < _MOST_KNOWN:
            return True
        self._missed_count += 1
        if self._missed_count < _MOST_MISSED:
            return False
        self._missed_count = 0
        self._known.clear()
        return True

    def _learn(self, parts: Sequence[bytes]) -> _Known | None:
        """Find out what headers of this kind say; None when they are to go the ordinary way."""
        try:
            numbers = _Numbers(*(3 * parts[1::3].index(name) + 2 for name in _NAMES))
        except ValueError:
            return None
        if not parts[numbers.opaque + 1].startswith((b",", b"}")):
            return None  # a fraction: whether it is a whole number depends on the digits before it
        others = list(parts)
        for number, at in enumerate(numbers):
            others[at] = b"%d" % (int(parts[at][:_SHORT_DIGITS]) + 1 + number)
        header = _header_of(parts, numbers)
        if header is None or _header_of(others, numbers) is None:
            return None
        code, wanted = header
        pull = self._runs.know(
            code,
            wanted.consumer_group,
            wanted.topic,
            wanted.queue_id,
            wanted.max_msg_nums,
            wanted.sys_flag,
            wanted.subscription,
            wanted.expression_type,
            wanted.sub_version,
            wanted.max_msg_bytes,
        )
        return _Known(numbers, pull, wanted.suspend_timeout_millis)

    def _read(
        self,
        known: PullPlan,
        queue_offset: int,
        commit_offset: int,
        opaque: int,
        frames: list[Buffer],
        reads: list[PlainRead],
    ) -> int:
        """Add the response to a pull, and note what it read; return how many bytes of messages.

        It is 0 when it finds nothing, or is not to be served here: nothing was touched then.
        """
        found = self._runs.read(known, queue_offset)
        if found is None:
            return 0
        count, size_bytes = found.count, found.size_bytes
        offsets = found.max_offset, found.min_offset, found.next_begin_offset
        if not known.commits:
            commit_offset = -1
        reads.append((known, found.next_begin_offset, commit_offset, count, size_bytes))
        frames.append(self._runs.head(known, offsets, opaque, JSON, count, size_bytes))
        frames += found.buffers
        return size_bytes


def _are_numbers(parts: Sequence[bytes], numbers: _Numbers) -> bool:
    """Whether digits that stand for numbers can be read without a further look."""
    queue_offset, commit_offset, opaque = map(parts.__getitem__, numbers)
    return (
        len(queue_offset) <= SAFE_LONG_DIGITS
        and len(commit_offset) <= SAFE_LONG_DIGITS
        and len(opaque) <= SAFE_INT_DIGITS
        and (opaque[0] != _ZERO or len(opaque) == 1)  # else it is no JSON
    )


def _header_of(
    parts: Sequence[bytes], numbers: _Numbers
) -> tuple[int, PullMessageRequestHeader] | None:
    """Read a header as any other is read; None unless it says of its numbers what they say."""
    if not _are_numbers(parts, numbers):
        return None
    # `split` leaves out the quotation mark that a name begins with.
    text = b"".join(b'"' + part if at % 3 == 1 else part for at, part in enumerate(parts))
    try:
        code, _, _, opaque, flag, _, ext_fields = decode_json_header(text)
        header = PullMessageRequestHeader.from_ext(ext_fields)
    except (BadHeaderError, HeaderFieldError):
        return None
    if code not in _CODES or flag:
        return None
    said = header.queue_offset, header.commit_offset, opaque
    return (code, header) if said == tuple(int(parts[at]) for at in numbers) else None
