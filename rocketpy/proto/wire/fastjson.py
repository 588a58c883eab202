"""JSON dialect of Java's fastjson: maps with numbers or objects as keys.

Official peers write two extensions of JSON: integer keys without quotes (`{0:"ip:port"}`), and
queues as keys, as objects in key position (`{{"brokerName":"b","queueId":0,"topic":"T"}:1}`).
`loads` accepts both, and reads standard JSON at full speed. `dumps` writes integer keys in quotes
and queue keys as raw objects, the forms that all peers accept.

Source: RemotingSerializable of 5.4.0; the accepted forms were measured.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NoReturn

import orjson

from rocketpy.errors import BadBodyError
from rocketpy.proto.message_queue import MessageQueue

MAX_DEPTH: Final = 64
"""Limit of nested arrays and objects in text of the dialect."""

MAX_DIALECT_BYTES: Final = 1 << 20
"""Larger texts for servers must be standard JSON: the dialect takes about 1 us per byte."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_WORD: Final = re.compile(r"true|false|null")
_NON_STRING_KEYS: Final = orjson.OPT_NON_STR_KEYS
Path = tuple[str, ...]
"""Path of names from the outermost object to a member."""


def loads(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - JSON enters here
    """Parse a value.

    Integer keys become text (`"0"`), quoted or not. An object in key position becomes a
    `MessageQueue` if possible, else its compact JSON text.

    Raises:
        BadBodyError: neither JSON nor its dialect, or nested too deeply.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _loads_tolerantly(data)


def loads_plain(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - JSON enters here
    """Parse a value of standard JSON.

    For servers, on a selector: a complete frame takes at most 0.1 s, while the dialect's parser
    could take many seconds.

    Raises:
        BadBodyError: it is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"body is not JSON: {error}"
        raise BadBodyError(msg) from error


def check_quick(data: bytes | bytearray | memoryview) -> None:
    """Raise for a text that `loads` would parse slowly: above `MAX_DIALECT_BYTES` in the dialect.

    Raises:
        BadBodyError: the text is long and not standard JSON.
    """
    if len(data) > MAX_DIALECT_BYTES:
        loads_plain(data)


def pieces(data: bytes, deep: Collection[Path]) -> Iterator[tuple[Path, Any]]:
    """Parse a large object one member at a time, so that the caller can serve others in between.

    A long text must be standard JSON, see `MAX_DIALECT_BYTES`.

    Args:
        data: the text.
        deep: paths of objects that are parsed one member at a time as well.

    Yields:
        The path of a member, and its value.

    Raises:
        BadBodyError: as `loads`, or the outermost value is not an object.
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
    """Recursive-descent parser for the dialect, and for parsing in pieces."""

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
        """Parse the object at the current brace; see the function of this name."""
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
        """Parse a value, as standard JSON if possible."""
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
        assert match is not None  # the pattern also matches the empty text
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
        """Consume a comma or the closing bracket; return whether it was the latter."""
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
    """Return the queue of a decoded JSON object; None if it is not a queue."""
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


def _default(value: object) -> Any:  # noqa: ANN401 - signature of orjson
    if isinstance(value, MessageQueue):
        return _queue_object(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(type(value).__name__)


def _queue_object(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def dumps(value: object, *, raw_int_keys: bool = False) -> bytes:
    """Format a value compactly, with the order of maps.

    A `MessageQueue` is written as its object, in key position in the raw form; sets are
    arrays. `raw_int_keys` leaves the quotes of integer keys off (Apache's files).
    """
    if raw_int_keys:
        return _dumps_by_hand(value, raw_int_keys)
    try:
        return orjson.dumps(value, default=_default, option=_NON_STRING_KEYS)
    except orjson.JSONEncodeError:
        # A queue is a key; anything else fails again with the same error.
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
