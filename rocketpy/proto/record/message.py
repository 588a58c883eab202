"""Decoding and encoding of messages, batches and hosts.

`record` has the layout of a record.

Source: MessageDecoder, MessageExt of 5.4.0.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rocketpy.errors import BadBodyError, CorruptRecordError
from rocketpy.proto.record.compression import MAX_INFLATED_BYTES, inflate
from rocketpy.proto.record.properties import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.record import (
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    ReadBuffer,
    body_crc,
    fixed_part,
    pack_record,
    record_size,
    topic_field,
    topic_span,
)
from rocketpy.proto.record.sys_flag import (
    BORN_HOST_V6,
    COMPRESSED,
    STORE_HOST_V6,
    clear_compressed,
    compression_type,
)

_FIVE_INTS: Final = struct.Struct(">iiiii")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">q")
_MAGICS: Final = frozenset({MAGIC_V1, MAGIC_V2})


@lru_cache(maxsize=16_384)
def host_to_bytes(host: str) -> bytes:
    """Return `ip:port` (`[ip]:port` for IPv6) as stored: 4 or 16 bytes and an i32 port.

    Raises:
        ValueError: not an IP address with a port; names are not resolved.
    """
    address, separator, port_text = host.rpartition(":")
    try:
        port = int(port_text)
        if ":" in address:
            packed = IPv6Address(address.strip("[]").partition("%")[0]).packed
        else:
            packed = IPv4Address(address).packed
    except ValueError as error:
        msg = f"{host!r} is not ip:port"
        raise ValueError(msg) from error
    if not separator or not 0 <= port <= 65_535:
        msg = f"{host!r} is not ip:port"
        raise ValueError(msg)
    return packed + _INT.pack(port)


@lru_cache(maxsize=16_384)
def bytes_to_host(stored: bytes) -> str:
    """Return stored host bytes (8 or 20) as `ip:port`, IPv6 as `[ip]:port`.

    Raises:
        ValueError: another number of bytes.
    """
    (port,) = _INT.unpack(stored[-4:])
    if len(stored) == V4_HOST_BYTES:
        return f"{stored[0]}.{stored[1]}.{stored[2]}.{stored[3]}:{port}"
    return f"[{IPv6Address(stored[:-4])}]:{port}"


class _Stored:
    """Lazily decoded part of a record: a field is decoded on first access."""

    __slots__ = ("_stored",)

    _stored: tuple[tuple[Any, ...], bytes]  # the record's fixed part, and its properties

    if not TYPE_CHECKING:  # type checkers accept every attribute of a class with this method

        def __getattr__(self, name: str) -> object:
            read = _READ.get(name)
            if read is None:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            value = read(*self._stored)
            setattr(self, name, value)
            return value


_READ: Final[Mapping[str, Callable[[tuple[Any, ...], bytes], object]]] = {
    "queue_id": lambda fixed, _: fixed[3],
    "flag": lambda fixed, _: fixed[4],
    "phy_offset": lambda fixed, _: fixed[6],
    "born_timestamp_ms": lambda fixed, _: fixed[8],
    "born_host": lambda fixed, _: bytes_to_host(fixed[9]),
    "store_timestamp_ms": lambda fixed, _: fixed[10],
    "store_host": lambda fixed, _: bytes_to_host(fixed[11]),
    "prepared_transaction_offset": lambda fixed, _: fixed[13],
    "properties": lambda _, properties: parse_properties(properties),
    "body_crc": lambda fixed, _: fixed[2],
    "offset_msg_id": lambda fixed, _: (fixed[11] + _LONG.pack(fixed[6])).hex().upper(),
    "version": lambda fixed, _: 1 if fixed[1] == MAGIC_V1 else 2,
}


@dataclass(slots=True)
class MessageExt(_Stored):
    """Stored message; most fields of a decoded one are read on first access.

    Attributes:
        body: as the producer sent it (inflated), unless decoded with `inflate=False`.
        sys_flag: as stored; the compressed bit is cleared when the body was inflated.
        body_crc: of the stored body.
        store_size_bytes: of the complete record.
        offset_msg_id: broker host and physical offset, 32 or 56 hex digits.
        version: 1, or 2 with a long topic.
    """

    topic: str = ""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    phy_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "0.0.0.0:0"
    store_timestamp_ms: int = 0
    store_host: str = "0.0.0.0:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)
    body_crc: int = 0
    store_size_bytes: int = 0
    offset_msg_id: str = ""
    version: int = 1

    @property
    def tags(self) -> str | None:
        """The message's tag."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys of the message."""
        keys = self.properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR)
        return [key for key in keys if key]

    @property
    def msg_id(self) -> str:
        """The producer's message id; the offset id if there is none."""
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offset_msg_id


def decode_message(
    buffer: ReadBuffer,
    offset: int = 0,
    *,
    inflate: bool = True,
    check_crc: bool = False,
    max_body_bytes: int = MAX_INFLATED_BYTES,
) -> MessageExt:
    """Decode the record at `offset` of `buffer`.

    Args:
        buffer: with the complete record.
        offset: its position in the buffer.
        inflate: decompress a compressed body.
        check_crc: compare the body with its checksum.
        max_body_bytes: limit of an inflated body.

    Raises:
        CorruptRecordError: the record is incomplete or inconsistent. Its `phy_offset` is the
            stored one if readable, else `offset`.
    """
    try:
        return _decode(buffer, offset, inflate, check_crc, max_body_bytes)
    except struct.error as error:
        raise CorruptRecordError(offset, "record is cut short") from error


def _decode(
    buffer: ReadBuffer, offset: int, inflate_body: bool, check_crc: bool, max_body_bytes: int
) -> MessageExt:
    fixed, values = fixed_part(buffer, offset)
    (
        size,
        magic,
        crc,
        _,
        _,
        queue_offset,
        phy_offset,
        sys_flag,
        _,
        _,
        _,
        _,
        retries,
        _,
        body_bytes,
    ) = values
    end = offset + size
    if magic not in _MAGICS:
        raise CorruptRecordError(offset, f"magic {magic & 0xFFFFFFFF:#010x} is unknown")
    if size < MIN_RECORD_BYTES or end > len(buffer):
        raise CorruptRecordError(phy_offset, f"size {size} is impossible here")
    body_at = offset + fixed.size
    topic = topic_span(buffer, magic, body_at, body_bytes, end)
    if topic is None:
        raise CorruptRecordError(phy_offset, "lengths do not add up to the record's size")
    topic_at, topic_end = topic
    body = bytes(buffer[body_at : body_at + body_bytes])
    if check_crc and body and body_crc(body) != crc:
        raise CorruptRecordError(phy_offset, "body does not match its checksum")
    if sys_flag & COMPRESSED and inflate_body and body:
        body = _inflated(body, sys_flag, phy_offset, max_body_bytes)
        sys_flag = clear_compressed(sys_flag)
    message = MessageExt.__new__(MessageExt)
    message.topic = str(buffer[topic_at:topic_end], "utf-8", "replace")
    message.queue_offset = queue_offset
    message.reconsume_times = retries
    message.sys_flag = sys_flag
    message.body = body
    message.store_size_bytes = size
    message._stored = values, bytes(buffer[topic_end + 2 : end])  # type: ignore[misc]  # noqa: SLF001 - a slot of the base
    return message


def decode_without_body(rest: bytes, body: bytes) -> MessageExt:
    """Decode a verified record with a body that is passed separately.

    Args:
        rest: the bytes before the body, and those after it.
        body: uncompressed.
    """
    fixed, values = fixed_part(rest, 0)
    topic = topic_span(rest, values[1], fixed.size, 0, len(rest))
    assert topic is not None
    message = MessageExt.__new__(MessageExt)
    message.topic = str(rest[topic[0] : topic[1]], "utf-8", "replace")
    message.queue_offset = values[5]
    message.reconsume_times = values[12]
    message.sys_flag = values[7]
    message.body = body
    message.store_size_bytes = values[0]
    message._stored = values, rest[topic[1] + 2 :]  # type: ignore[misc]  # noqa: SLF001 - a slot of the base
    return message


def _inflated(body: bytes, sys_flag: int, phy_offset: int, max_body_bytes: int) -> bytes:
    try:
        return inflate(body, compression_type(sys_flag), max_body_bytes)
    except BadBodyError as error:
        raise CorruptRecordError(phy_offset, str(error)) from error


def decode_messages(
    body: bytes | memoryview,
    *,
    inflate: bool = True,
    check_crc: bool = False,
    max_body_bytes: int = MAX_INFLATED_BYTES,
) -> list[MessageExt]:
    """Decode consecutive records: the body of the response to a pull or a query.

    Raises:
        CorruptRecordError: as `decode_message`; also for remaining bytes.
    """
    messages = []
    position = 0
    end = len(body)
    try:
        while position < end:
            message = _decode(body, position, inflate, check_crc, max_body_bytes)
            messages.append(message)
            position += message.store_size_bytes
    except struct.error as error:
        raise CorruptRecordError(position, "record is cut short") from error
    return messages


def encode_message(message: MessageExt, *, properties: bytes | None = None) -> bytes:
    """Encode a message as a record, for check-backs (39) and direct consumption (309).

    The body is written unchanged: it must match `sys_flag`, as in decoded messages, inflated or
    not. The checksum is computed again.

    `properties` are stored bytes to use unchanged.

    Raises:
        ValueError: a host is not `ip:port`.
    """
    born_host = host_to_bytes(message.born_host)
    store_host = host_to_bytes(message.store_host)
    sys_flag = message.sys_flag & ~HOST_FLAGS
    sys_flag |= BORN_HOST_V6 if len(born_host) == V6_HOST_BYTES else 0
    sys_flag |= STORE_HOST_V6 if len(store_host) == V6_HOST_BYTES else 0
    if properties is None:
        properties = encode_properties(message.properties)
    topic = topic_field(message.topic)
    size = record_size(len(message.body), len(topic), len(properties), sys_flag)
    buffer = bytearray(size)
    pack_record(
        buffer,
        0,
        size,
        body_crc(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.phy_offset,
        sys_flag,
        message.born_timestamp_ms,
        born_host,
        message.store_timestamp_ms,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        topic,
        properties,
    )
    return bytes(buffer)


class BatchItem(NamedTuple):
    """Message of a batch body (320).

    Attributes:
        properties: of the message, as stored.
    """

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Encode a batch body.

    Raises:
        struct.error: properties of more than 32,767 bytes.
    """
    parts: list[bytes] = []
    for flag, body, properties in items:
        total = 22 + len(body) + len(properties)
        parts += (
            _FIVE_INTS.pack(total, 0, 0, flag, len(body)),
            body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchItem]:
    """Decode a batch body.

    Raises:
        BadBodyError: lengths that do not add up.
    """
    return list(map(BatchItem._make, iter_batch(body)))


BatchParts: TypeAlias = tuple[Sequence[int], Sequence[bytes], Sequence[bytes]]
"""Flags, bodies and properties of the messages of a batch."""


def split_batch(body: bytes) -> BatchParts:
    """Split a batch body into columns.

    Messages of equal lengths, which are common for one sender, are split in one call.

    Raises:
        BadBodyError: lengths that do not add up.
    """
    found = _split_equal(body) if len(body) >= _FIVE_INTS.size else None
    if found is not None:
        return found
    flags, bodies, properties = tuple(zip(*iter_batch(body), strict=True)) or ((), (), ())
    return flags, bodies, properties


def _split_equal(body: bytes) -> BatchParts | None:
    """Split a batch of messages with equal lengths; return None for others."""
    total, _, _, _, body_bytes = _FIVE_INTS.unpack_from(body)
    properties_bytes = total - body_bytes - 22
    if body_bytes < 0 or properties_bytes < 0 or len(body) % total:
        return None
    items = struct.iter_unpack(f">i8xii{body_bytes}sh{properties_bytes}s", body)
    totals, flags, body_lengths, bodies, properties_lengths, properties = zip(*items, strict=True)
    count = len(bodies)
    is_equal = (
        totals.count(total) == count
        and body_lengths.count(body_bytes) == count
        and properties_lengths.count(properties_bytes) == count
    )
    return (flags, bodies, properties) if is_equal else None


def iter_batch(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (flag, body, properties) of each message of a batch body, without other objects.

    Raises:
        BadBodyError: lengths that do not add up.
    """
    position = 0
    end = len(body)
    unpack_head, unpack_short = _FIVE_INTS.unpack_from, _SHORT.unpack_from
    try:
        while position < end:
            total, _, _, flag, body_bytes = unpack_head(body, position)
            following = position + total
            properties_at = position + 20 + body_bytes
            if body_bytes < 0 or properties_at + 2 > following or following > end:
                raise BadBodyError("batch item's lengths do not add up")
            (properties_bytes,) = unpack_short(body, properties_at)
            if properties_at + 2 + properties_bytes != following:
                raise BadBodyError("batch item's lengths do not add up")
            yield flag, body[position + 20 : properties_at], body[properties_at + 2 : following]
            position = following
    except struct.error as error:
        raise BadBodyError("batch is cut short") from error
