"""JSON as Java's fastjson writes it: maps whose keys are numbers or objects.

Two habits of the official peers are no JSON: integer keys without quotes
(`{0:"ip:port"}`), and queues as keys, written as objects in key position
(`{{"brokerName":"b","queueId":0,"topic":"T"}:1}`). `loads` reads both, and plain
JSON at full speed; `dumps` writes integer keys in quotes, which every peer
reads, and queue keys in the raw object form, the only one every peer reads.

Source: RemotingSerializable of 5.4.0; what peers accept was measured.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NoReturn

import orjson

from rocketpy.errors import BadBodyError
from rocketpy.proto.message_queue import MessageQueue

MAX_DEPTH: Final = 64
"""How deep arrays and objects may nest in text that is not plain JSON."""

MAX_DIALECT_BYTES: Final = 1 << 20
"""From here on a server takes plain JSON only: reading the dialect takes about 1 us a byte."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_WORD: Final = re.compile(r"true|false|null")
_NON_STRING_KEYS: Final = orjson.OPT_NON_STR_KEYS
Path = tuple[str, ...]
"""Names from the outermost object of a text to a member."""


def loads(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - JSON enters here
    """Read a value.

    Integer keys come back as text (`"0"`) whether they were quoted or not. An object
    in key position comes back as a `MessageQueue` when it is one, else as its compact JSON
    text.

    Raises:
        BadBodyError: neither JSON nor what fastjson makes of it, or nested too deep.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _loads_tolerantly(data)


def loads_plain(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - JSON enters here
    """Read a value that every peer writes as plain JSON.

    For what servers read on a selector: it takes 0.1 s at most for a whole frame, where the
    tolerant reader could be kept busy for many seconds.

    Raises:
        BadBodyError: it is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"body is not JSON: {error}"
        raise BadBodyError(msg) from error


def check_quick(data: bytes | bytearray | memoryview) -> None:
    """Make sure that `loads` will be quick: what is over `MAX_DIALECT_BYTES` must be plain.

    Raises:
        BadBodyError: it is long and not plain JSON.
    """
    if len(data) > MAX_DIALECT_BYTES:
        loads_plain(data)


def pieces(data: bytes, deep: Collection[Path]) -> Iterator[tuple[Path, Any]]:
    """Read one large object a member at a time, so that others can be served in between.

    A long text is read in plain JSON only, see `MAX_DIALECT_BYTES`.

    Args:
        data: the text.
        deep: members that, being objects, are read a member at a time themselves.

    Yields:
        Where a member stands, and its value.

    Raises:
        BadBodyError: as `loads`, or the outermost value is no object.
    """
    reader = _Reader(_text_of(data), is_plain=len(data) > MAX_DIALECT_BYTES)
    if reader.skip_space() != "{":
        raise BadBodyError("body is not an object")
    yield from reader.pieces((), deep)
    reader.end()


def _text_of(data: bytes | bytearray | memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        msg = f"body is not UTF-8: {error}"
        raise BadBodyError(msg) from error


def _loads_tolerantly(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401
    return _Reader(_text_of(data)).read()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_plain_value = json.JSONDecoder(parse_constant=_refuse).raw_decode


class _Reader:
    """A recursive-descent reader for what orjson refuses, or cannot read in pieces."""

    __slots__ = ("_is_plain", "_position", "_text")

    def __init__(self, text: str, *, is_plain: bool = False) -> None:
        self._text = text
        self._is_plain = is_plain
        self._position = 0

    def read(self) -> Any:  # noqa: ANN401 - JSON enters here
        value = self._value(0)
        self.end()
        return value

    def end(self) -> None:
        self.skip_space()
        if self._position != len(self._text):
            self._fail("something follows the value")

    def pieces(self, path: Path, deep: Collection[Path]) -> Iterator[tuple[Path, Any]]:
        """Read an object, its brace being next; see the function of this name."""
        self._position += 1
        if self.skip_space() == "}":
            self._position += 1
            return
        while True:
            key = self._key(0)
            if self.skip_space() != ":":
                self._fail("no colon")
            self._position += 1
            inner = (*path, str(key))
            if inner in deep and self.skip_space() == "{":
                yield from self.pieces(inner, deep)
            else:
                yield inner, self._piece()
            if self._ends("}"):
                return

    def _piece(self) -> Any:  # noqa: ANN401 - JSON enters here
        """Read a value at the speed of plain JSON, if it is."""
        self.skip_space()
        try:
            value, self._position = _plain_value(self._text, self._position)
        except (ValueError, RecursionError):
            if self._is_plain:
                self._fail("no plain JSON")
            return self._value(0)
        return value

    def _fail(self, reason: str) -> NoReturn:
        msg = f"body is not JSON: {reason} at character {self._position}"
        raise BadBodyError(msg)

    def skip_space(self) -> str:
        """Skip blanks and return the next character, empty at the end."""
        match = _SPACE.match(self._text, self._position)
        assert match is not None  # the pattern matches nothing, too
        self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:  # noqa: ANN401 - JSON enters here
        if depth > MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH}")
        first = self.skip_space()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first == '"':
            return self._string()
        match = _WORD.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
            return _WORDS[match[0]]
        match = _NUMBER.match(self._text, self._position)
        if match is None or len(match[0]) > 400:
            self._fail("no value")
        self._position = match.end()
        return float(match[0]) if match[1] or match[2] else int(match[0])

    def _string(self) -> str:
        match = _STRING.match(self._text, self._position)
        if match is None:
            self._fail("a text without end")
        try:
            value = orjson.loads(match[0])
        except (orjson.JSONDecodeError, UnicodeEncodeError):
            self._fail("a malformed text")
        self._position = match.end()
        assert isinstance(value, str)
        return value

    def _array(self, depth: int) -> list[Any]:
        self._position += 1
        values: list[Any] = []
        if self.skip_space() == "]":
            self._position += 1
            return values
        while True:
            values.append(self._value(depth + 1))
            if self._ends("]"):
                return values

    def _object(self, depth: int) -> dict[Any, Any]:
        self._position += 1
        values: dict[Any, Any] = {}
        if self.skip_space() == "}":
            self._position += 1
            return values
        while True:
            key = self._key(depth)
            if self.skip_space() != ":":
                self._fail("no colon")
            self._position += 1
            values[key] = self._value(depth + 1)
            if self._ends("}"):
                return values

    def _ends(self, closing: str) -> bool:
        """Take a comma or the closing bracket; tell whether it was the latter."""
        following = self.skip_space()
        if following not in {",", closing} or not following:
            self._fail(f"neither comma nor {closing}")
        self._position += 1
        return following == closing

    def _key(self, depth: int) -> str | MessageQueue:
        first = self.skip_space()
        if first == '"':
            return self._string()
        if first == "{":
            value = self._value(depth + 1)
            queue = to_message_queue(value)
            return orjson.dumps(value, option=_NON_STRING_KEYS).decode() if queue is None else queue
        match = _NUMBER.match(self._text, self._position)
        if match is None:
            self._fail("no key")
        self._position = match.end()
        return match[0]


def to_message_queue(value: object) -> MessageQueue | None:
    """Return the queue that a decoded JSON object names, None when it names none."""
    if not isinstance(value, dict):
        return None
    topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    if (
        isinstance(topic, str)
        and isinstance(broker_name, str)
        and isinstance(queue_id, int)
        and not isinstance(queue_id, bool)
    ):
        return MessageQueue(topic, broker_name, queue_id)
    return None


def _default(value: object) -> Any:  # noqa: ANN401 - what orjson asks for
    if isinstance(value, MessageQueue):
        return _queue_object(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(type(value).__name__)


def _queue_object(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def dumps(value: object, *, raw_int_keys: bool = False) -> bytes:
    """Write a value compactly, maps in the order they have.

    A `MessageQueue` is written as its object, in key position in the raw form; sets are
    arrays. `raw_int_keys` leaves the quotes of integer keys off (Apache's files).
    """
    if raw_int_keys:
        return _dumps_by_hand(value, raw_int_keys)
    try:
        return orjson.dumps(value, default=_default, option=_NON_STRING_KEYS)
    except orjson.JSONEncodeError:
        # A queue as a key; anything else fails again, for the same reason.
        return _dumps_by_hand(value, raw_int_keys)


def _dumps_by_hand(value: object, raw_int_keys: bool) -> bytes:
    parts: list[bytes] = []
    _write(value, raw_int_keys, parts)
    return b"".join(parts)


def _write(value: object, raw_int_keys: bool, parts: list[bytes]) -> None:
    if isinstance(value, MessageQueue):
        parts.append(orjson.dumps(_queue_object(value)))
    elif isinstance(value, dict):
        separator = b"{"
        for key, item in value.items():
            parts += (separator, _key_text(key, raw_int_keys), b":")
            _write(item, raw_int_keys, parts)
            separator = b","
        parts.append(b"}" if value else b"{}")
    elif isinstance(value, list | tuple | set | frozenset):
        separator = b"["
        for item in value:
            parts.append(separator)
            _write(item, raw_int_keys, parts)
            separator = b","
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(orjson.dumps(value))


def _key_text(key: object, raw_int_keys: bool) -> bytes:
    if isinstance(key, MessageQueue):
        return orjson.dumps(_queue_object(key))
    if isinstance(key, int) and not isinstance(key, bool):
        return b"%d" % key if raw_int_keys else b'"%d"' % key
    return orjson.dumps(key)
