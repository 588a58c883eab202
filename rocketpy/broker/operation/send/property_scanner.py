"""What a send needs of a message's property bytes, without taking them apart each time.

Messages of one producer differ in their UNIQ_KEY and hardly in anything else. So the id is cut
out, and what is left is looked up: its tag, whether the sender waits, whether anything in it
has a meaning to the broker. Messages that differ in more (KEYS, the application's own)
still have the same names in the same order as a rule: their values are cut out in one step, and
putting them back proves that nothing was out of order.

What a batch brings: its messages by columns, or why one of them cannot be stored.

Source: SendMessageProcessor.sendBatchMessage, MessageDecoder.decodeMessages (5.4.0).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self, TypeAlias

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.put_transforms import refuse_in_batch
from rocketpy.proto.record.message import split_batch
from rocketpy.proto.record.properties import (
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    parse_properties,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.results import BatchColumns, BatchEntry

SPECIAL_PROPERTIES: Final = frozenset(
    {
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_POP_CK,
        PROPERTY_CLUSTER,
        PROPERTY_MSG_REGION,
        PROPERTY_TRACE_SWITCH,
    }
)
"""A message with none of these is an ordinary one whose property bytes stay as they are."""

_new: Final = tuple.__new__
_MOST_SHAPES: Final = 4_096
_LONGEST_SHAPE_BYTES: Final = 512
_SEPARATOR: Final = ord(PAIR_SEPARATOR)
_SEPARATOR_BYTES: Final = PAIR_SEPARATOR.encode()
_UNIQ_KEY: Final = (PROPERTY_UNIQ_KEY + NAME_SEPARATOR).encode()
_UNIQ_KEY_BYTES: Final = len(_UNIQ_KEY)
_KEYS: Final = (PROPERTY_KEYS + NAME_SEPARATOR).encode()


class PropertySummary(NamedTuple):
    """What messages of one shape have in common.

    Attributes:
        is_plain: well-formed, and none of `SPECIAL_PROPERTIES`.
        waits: the sender waits for the disk (WAIT is not false).
        tags: the tag, or None.
        tags_code: its hash, 0 without.
    """

    is_plain: bool
    waits: bool
    tags: str | None
    tags_code: int


ScannedProperties: TypeAlias = tuple[str, PropertySummary, str | None]
"""UNIQ_KEY, the shape of the rest, KEYS."""

ScannedRun: TypeAlias = tuple[list[str], PropertySummary]
"""The UNIQ_KEY of each message, and the shape of the rest of all."""


class ScannedColumns(NamedTuple):
    """Properties of several messages, one value a message in each column.

    Attributes:
        is_plain: what `PropertySummary.is_plain` says, of each of them.
        waits: the senders of all of them wait for the disk.
        uniq_keys: UNIQ_KEY of each.
        keys: KEYS of each.
        tags: the tag of each.
        tags_codes: its hash.
    """

    is_plain: bool
    waits: bool
    uniq_keys: Sequence[str]
    keys: Sequence[str | None]
    tags: Sequence[str | None]
    tags_codes: Sequence[int]


def shape_of(properties: dict[str, str], *, is_well_formed: bool = True) -> PropertySummary:
    """Return the shape of properties that were parsed.

    Args:
        properties: name to value.
        is_well_formed: the bytes they were parsed from need no change.
    """
    tags = properties.get(PROPERTY_TAGS)
    return PropertySummary(
        is_well_formed and SPECIAL_PROPERTIES.isdisjoint(properties),
        properties.get(PROPERTY_WAIT_STORE_MSG_OK) != "false",
        tags,
        tags_code(tags) if tags else 0,
    )


class _Names(NamedTuple):
    """Properties of messages that have the same names in the same order.

    Attributes:
        form: the text of all, with a place for each value.
        is_plain: none of them is one of `SPECIAL_PROPERTIES`.
        uniq_key_at: which one is UNIQ_KEY.
        keys_at: which one is KEYS; -1 none.
        tags_at: which one is TAGS; -1 none.
        wait_at: which one is WAIT; -1 none.
    """

    form: str
    is_plain: bool
    uniq_key_at: int
    keys_at: int
    tags_at: int
    wait_at: int

    @classmethod
    def of(cls, names: tuple[str, ...]) -> Self | None:
        """Return what is the same in all such messages; None for names that are not as usual."""
        if PROPERTY_UNIQ_KEY not in names or not all(names) or len(set(names)) < len(names):
            return None
        return cls(
            "".join(
                f"{name.replace('%', '%%')}{NAME_SEPARATOR}%s{PAIR_SEPARATOR}" for name in names
            ),
            SPECIAL_PROPERTIES.isdisjoint(names),
            names.index(PROPERTY_UNIQ_KEY),
            *(
                names.index(name) if name in names else -1
                for name in (PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_WAIT_STORE_MSG_OK)
            ),
        )

    def scan(self, text: str, values: list[str]) -> ScannedProperties | None:
        """Return what `PropertyScanner.scan` does; None when a value is empty or cut wrongly."""
        if "" in values or self.form % tuple(values) != text:
            return None
        tags = values[self.tags_at] if self.tags_at >= 0 else None
        waits = self.wait_at < 0 or values[self.wait_at] != "false"
        shape = _new(PropertySummary, (self.is_plain, waits, tags, tags_code(tags)))
        keys = values[self.keys_at] if self.keys_at >= 0 else None
        return values[self.uniq_key_at], shape, keys

    def scan_columns(self, text: str, values: list[str], count: int) -> ScannedColumns | None:
        """Return what `scan` does, of several messages whose text and values were joined."""
        if "" in values or self.form * count % tuple(values) != text:
            return None
        step = len(values) // count

        def column(at: int) -> Sequence[str | None]:
            return values[at::step] if at >= 0 else (None,) * count

        tags = column(self.tags_at)
        return ScannedColumns(
            self.is_plain,
            "false" not in column(self.wait_at),
            values[self.uniq_key_at :: step],
            column(self.keys_at),
            tags,
            [*map(tags_code, tags)],
        )


class PropertyScanner:
    """Remembers the shapes it has seen; the memory is bounded.

    Not synchronised: concurrent use returns right values, only the bound may be overshot.
    """

    __slots__ = ("_last", "_names", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[bytes, PropertySummary] = {}
        self._names: dict[tuple[str, ...], _Names] = {}
        # Before the id, how much that is; from the id's end on, where that begins; the shape.
        self._last: tuple[bytes, int, bytes, int, PropertySummary] | None = None

    def scan(self, properties: bytes) -> ScannedProperties | None:
        """Return UNIQ_KEY, the shape of the rest, and KEYS; None without a UNIQ_KEY.

        Args:
            properties: as the client sent them.
        """
        last = self._last
        if last is not None:
            head, start, tail, end, shape = last
            if properties.startswith(head) and properties.endswith(tail):
                key = properties[start:end]
                if key.isalnum():
                    return key.decode(), shape, None
        at = properties.find(_UNIQ_KEY)
        if at and (at < 0 or properties[at - 1] != _SEPARATOR):
            return self._scan_parts(properties)
        end = properties.find(_SEPARATOR_BYTES, at)
        if end < 0 or _KEYS in properties:
            return self._scan_parts(properties)
        key = properties[at + _UNIQ_KEY_BYTES : end]
        if not key.isalnum():
            return self._scan_parts(properties)
        rest = properties[:at] + properties[end:]
        shape = self._shapes.get(rest) or self._learn(rest, properties)
        tail = properties[end:]
        start = at + _UNIQ_KEY_BYTES
        self._last = properties[:start], start, tail, -len(tail), shape
        return key.decode(), shape, None

    def scan_run(self, properties: Sequence[bytes]) -> ScannedRun | None:
        """Return the UNIQ_KEYs of messages of one shape without KEYS; None when they differ.

        Args:
            properties: of each message, as the client sent them; at least one.
        """
        first = self.scan(properties[0])
        last = self._last
        if first is None or first[2] is not None or last is None or last[-1] is not first[1]:
            return None
        head, start, tail, end, shape = last
        keys = [each[start:end] for each in properties]
        # With a key in each, equal bytes in all mean equal bytes in each: the lengths say so.
        if not all(keys) or b"".join(properties) != head + (tail + head).join(keys) + tail:
            return None
        if not b"".join(keys).isalnum():
            return None
        return _SEPARATOR_BYTES.join(keys).decode().split(PAIR_SEPARATOR), shape

    def scan_columns(self, properties: Sequence[bytes]) -> ScannedColumns | None:
        """Return what `scan` does, of messages whose properties have the same names in one order.

        Args:
            properties: of each message, as the client sent them; at least one.

        Returns:
            None when they are to be scanned one by one.
        """
        alike = self.scan_run(properties)
        count = len(properties)
        if alike is not None:
            uniq_keys, (is_plain, waits, tag, code) = alike
            return ScannedColumns(
                is_plain, waits, uniq_keys, (None,) * count, (tag,) * count, (code,) * count
            )
        pairs = properties[0].count(_SEPARATOR_BYTES)
        # With as many pairs in each, and each of them whole, they are told apart when joined.
        for each in properties:
            if each.count(_SEPARATOR_BYTES) != pairs or not each.endswith(_SEPARATOR_BYTES):
                return None
        try:
            text = b"".join(properties).decode()
        except UnicodeDecodeError:
            return None
        parts = text.replace(PAIR_SEPARATOR, NAME_SEPARATOR).split(NAME_SEPARATOR)
        if len(parts) != 2 * pairs * count + 1:
            return None
        names = tuple(parts[: 2 * pairs : 2])
        known = self._names.get(names) or self._learn_names(names)
        return None if known is None else known.scan_columns(text, parts[1::2], count)

    def _scan_parts(self, properties: bytes) -> ScannedProperties | None:
        """Do what `scan` does for messages that differ in more than their id."""
        try:
            text = properties.decode()
        except UnicodeDecodeError:
            return None
        parts = text.replace(PAIR_SEPARATOR, NAME_SEPARATOR).split(NAME_SEPARATOR)
        names = tuple(parts[:-1:2])
        known = self._names.get(names) or self._learn_names(names)
        scanned = None if known is None else known.scan(text, parts[1::2])
        return scanned or _scan_all(text)

    def _learn_names(self, names: tuple[str, ...]) -> _Names | None:
        known = _Names.of(names)
        if known is not None and len(known.form) <= _LONGEST_SHAPE_BYTES:
            if len(self._names) >= _MOST_SHAPES:
                self._names.clear()
            self._names[names] = known
        return known

    def _learn(self, rest: bytes, properties: bytes) -> PropertySummary:
        scanned = self._scan_parts(properties)
        if scanned is not None and scanned[1].is_plain:
            shape = scanned[1]
        else:
            found, is_well_formed = _parse(rest.decode("utf-8", "replace"))
            shape = shape_of(found, is_well_formed=is_well_formed)
        if len(rest) <= _LONGEST_SHAPE_BYTES:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[rest] = shape
        return shape


def _parse(text: str) -> tuple[dict[str, str], bool]:
    """Take properties apart, and tell whether nothing was dropped and the end is there."""
    found = parse_properties(text)
    pairs = [pair for pair in text.split(PAIR_SEPARATOR) if pair]
    return found, len(found) == len(pairs) and text.endswith(PAIR_SEPARATOR)


def _scan_all(text: str) -> ScannedProperties | None:
    found, is_well_formed = _parse(text)
    uniq_key = found.get(PROPERTY_UNIQ_KEY)
    if uniq_key is None:
        return None
    return uniq_key, shape_of(found, is_well_formed=is_well_formed), found.get(PROPERTY_KEYS)


def batch_messages(scanner: PropertyScanner, body: bytes) -> BatchColumns | Refusal:
    """Take a batch apart, or say why one of its messages cannot be stored.

    Args:
        scanner: reads properties.
        body: of the request.

    Raises:
        BadBodyError: it is no batch.
    """
    flags, bodies, properties = split_batch(body)
    scanned = scanner.scan_columns(properties) if bodies else None
    if scanned is not None and scanned.is_plain:
        codes, uniq_keys = scanned.tags_codes, scanned.uniq_keys
        return BatchColumns(bodies, properties, flags, codes, uniq_keys, scanned.keys, scanned.tags)
    entries: list[BatchEntry] = []
    for flag, message_body, given in zip(flags, bodies, properties, strict=True):
        entry = _entry(scanner, flag, message_body, given)
        if isinstance(entry, Refusal):
            return entry
        entries.append(entry)
    return BatchColumns.of(entries)


def _entry(scanner: PropertyScanner, flag: int, body: bytes, given: bytes) -> BatchEntry | Refusal:
    """One message of a batch whose messages differ in more than their id."""
    scanned = scanner.scan(given)
    if scanned is not None and scanned[1].is_plain:
        uniq_key, shape, keys = scanned
    else:
        properties = parse_properties(given)
        refused = refuse_in_batch(properties)
        if refused is not None:
            return refused
        uniq_key = properties.get(PROPERTY_UNIQ_KEY)  # type: ignore[assignment] # optional
        shape, keys = shape_of(properties), properties.get(PROPERTY_KEYS)
    return BatchEntry(body, given, flag, shape.tags_code, uniq_key, keys, shape.tags)
