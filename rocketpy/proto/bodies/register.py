"""Body of a broker's registration at the name server (103): plain and compressed.

The compressed form is a zlib stream of::

    i32 length | DataVersion as JSON
    i32 number of topics, then for each: i32 length | "name read write perm FILTER [attributes]"
    i32 length | filter servers as JSON array
    i32 number of mappings, then for each: i32 length | mapping as JSON   (brokers since 5.0)

Source: RegisterBrokerBody, TopicConfig.encode of 5.4.0.
"""

import struct
import zlib
from collections.abc import Generator, Iterable
from dataclasses import field
from itertools import islice
from typing import Any, Final, Self

import orjson

from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.proto.record.compression import inflate_zlib_in_steps
from rocketpy.proto.wire.fastjson import dumps, pieces
from rocketpy.proto.wire.json_body import Body, body

_LENGTH: Final = struct.Struct(">i")
STEP_TOPICS: Final = 256
"""Topics read, or written, between two pauses: about 3 ms, or 1 ms."""
_WRAPPER: Final = ("topicConfigSerializeWrapper",)
_TOPICS: Final = (*_WRAPPER, "topicConfigTable")
_EMPTY_TABLE: Final = b'"topicConfigTable":{}'
_MAPPINGS: Final = (*_WRAPPER, "topicQueueMappingInfoMap")
_MAPPING_VERSION: Final = 413
"""First version of brokers (5.0.0) that write the mapping section."""


@body
class RegisterBrokerBody(Body):
    """Topics of a broker, and their version."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)

    def encode_with(self, topics: Iterable[TopicConfig]) -> Generator[None, None, bytes]:
        """Encode the plain form with these topics, as a generator with pauses.

        Args:
            topics: replace this body's table, which is empty.

        Returns:
            The encoded body, when the generator ends.
        """
        head, table, tail = self.encode().partition(_EMPTY_TABLE)
        assert table, "the body already has topics"
        parts: list[bytes] = []
        rest = iter(topics)
        while some := list(islice(rest, STEP_TOPICS)):
            if parts:
                yield
            parts.append(dumps({each.topic_name: each.to_json() for each in some})[1:-1])
        return b"".join((head, table[:-1], b",".join(parts), table[-1:], tail))

    @classmethod
    def read_plain(cls, data: bytes, *, is_bare: bool = False) -> Generator[None, None, Self]:
        """Decode the plain form, of up to 16 MiB, as a generator with pauses.

        Args:
            data: the body.
            is_bare: the body is the topic table alone, as from brokers before 3.0.11.

        Returns:
            The body, when the generator ends.

        Raises:
            BadBodyError: as `decode_request`.
        """
        skipped = 1 if is_bare else 0
        deep = {each[skipped:] for each in (_WRAPPER, _TOPICS, _MAPPINGS)}
        document: dict[str, Any] = {}
        wrapper: dict[str, Any] = {}
        topics: dict[str, TopicConfig] = {}
        mappings: dict[str, object] = {}
        for count, ((*where, name), value) in enumerate(pieces(data, deep), 1):
            place = tuple(where)
            if place == _TOPICS[skipped:]:
                if value is not None:
                    topics[name] = TopicConfig.from_json(value)
            elif place == _MAPPINGS[skipped:]:
                if value is not None:
                    mappings[name] = value
            elif place == _WRAPPER[skipped:]:
                wrapper[name] = value
            else:
                document[name] = value
            if count % STEP_TOPICS == 0:
                yield
        document.setdefault(_WRAPPER[0], wrapper)
        read = cls.from_json(document)
        inner = read.topic_config_serialize_wrapper
        inner.topic_config_table.update(topics)
        if mappings:
            inner.topic_queue_mapping_info_map = mappings
        return read

    @classmethod
    def read_compressed(
        cls, data: bytes, broker_version: int = _MAPPING_VERSION
    ) -> Generator[None, None, Self]:
        """Decode the compressed form, as a generator with pauses.

        Args:
            data: the body.
            broker_version: of the request; those before 413 have no mappings.

        Returns:
            The body, when the generator ends.

        Raises:
            BadBodyError: lengths that do not add up, wrong texts, or more than 64 MiB inflated.
        """
        reader = _Sections((yield from inflate_zlib_in_steps(data)))
        version = DataVersion.from_json(_parse_json(reader.text()))
        wrapper = TopicConfigSerializeWrapper(data_version=version)
        for count in range(1, reader.number() + 1):
            topic = _parse_topic(reader.text())
            wrapper.topic_config_table[topic.topic_name] = topic
            if count % STEP_TOPICS == 0:
                yield
        filter_servers = _parse_json(reader.text())
        if not isinstance(filter_servers, list):
            raise BadBodyError("filter servers are not an array")
        if broker_version >= _MAPPING_VERSION and not reader.at_end:
            wrapper.topic_queue_mapping_info_map = {}
            for count in range(1, reader.number() + 1):
                mapping = _parse_json(reader.text())
                if not isinstance(mapping, dict):
                    raise BadBodyError("queue mapping is not an object")
                wrapper.topic_queue_mapping_info_map[str(mapping.get("topic"))] = mapping
                if count % STEP_TOPICS == 0:
                    yield
        return cls(wrapper, [str(server) for server in filter_servers])

    def encode_compressed(self) -> bytes:
        """Return the compressed form, mappings included."""
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        mappings = (wrapper.topic_queue_mapping_info_map or {}).values()
        parts = [_section(wrapper.data_version.encode()), _LENGTH.pack(len(topics))]
        parts += [_section(_topic_text(topic)) for topic in topics]
        parts += [_section(orjson.dumps(self.filter_server_list)), _LENGTH.pack(len(mappings))]
        parts += [_section(orjson.dumps(mapping)) for mapping in mappings]
        return zlib.compress(b"".join(parts), 9)


def _section(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


def _topic_text(topic: TopicConfig) -> bytes:
    words = [
        topic.topic_name,
        str(topic.read_queue_nums),
        str(topic.write_queue_nums),
        str(topic.perm),
        topic.topic_filter_type,
    ]
    text = " ".join(words).encode()
    if topic.attributes:
        text += b" " + orjson.dumps(topic.attributes)
    return text


def _parse_topic(text: bytes) -> TopicConfig:
    words = text.decode("utf-8", "replace").split(" ", 5)
    if len(words) < 5:
        raise BadBodyError("a topic of the registration has fewer than five parts")
    attributes = _parse_json(words[5].encode()) if len(words) > 5 and words[5] else {}
    return TopicConfig.from_json(
        {
            "topicName": words[0],
            "readQueueNums": words[1],
            "writeQueueNums": words[2],
            "perm": words[3],
            "topicFilterType": words[4],
            "attributes": attributes,
        }
    )


def _parse_json(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        msg = f"registration holds a part that is not JSON: {error}"
        raise BadBodyError(msg) from error


class _Sections:
    """Reader of consecutive numbers and length-prefixed texts."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def number(self) -> int:
        if self._position + 4 > len(self._data):
            raise BadBodyError("registration is cut short")
        value = int(_LENGTH.unpack_from(self._data, self._position)[0])
        if value < 0:
            raise BadBodyError("registration holds a negative length")
        self._position += 4
        return value

    def text(self) -> bytes:
        length = self.number()
        start = self._position
        if start + length > len(self._data):
            raise BadBodyError("registration is cut short")
        self._position = start + length
        return self._data[start : self._position]
