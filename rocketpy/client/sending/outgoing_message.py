"""Construction of messages to send: checks, properties and compression.

Source: Validators, Message, DefaultMQProducerImpl.sendKernelImpl (5.4.0).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

from rocketpy.client.config import ProducerConfig
from rocketpy.client.messages.delivery_time import DeliveryTime, delivery_time_of, level_property
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.send_options import SendOptions, check_options
from rocketpy.client.messages.serializers import PLAIN
from rocketpy.client.sending.queue_selection import checked_choice, queue_index_by_key
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.properties import (
    KEY_SEPARATOR,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    SYSTEM_PROPERTIES,
    properties_text,
)
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from rocketpy.proto.topic_names import is_not_allowed_send_topic
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES, check_topic
from rocketpy.proto.wire.codes import RequestCode

_CODECS = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
SEND_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)


class Outgoing(NamedTuple):
    """Message in the form of the wire: body, properties and flags.

    `retries` of a message to a retry topic: number of deliveries so far, and the limit.
    `moment`: time of its delivery.
    """

    body: bytes
    properties: str
    sys_flag: int
    flag: int
    msg_id: str
    code: int = SEND
    retries: tuple[int, int] | None = None
    moment: DeliveryTime | None = None


# Makes an `Outgoing` of a tuple in C: batches make thousands at a time.
_outgoing: Final[Callable[[tuple[Any, ...]], Outgoing]] = partial(tuple.__new__, Outgoing)
_checked_topics: set[str] = set()


def check_send_topic(topic: str) -> None:
    """Raise IllegalMessageError if the name is not valid, or the topic reserved."""
    if topic in _checked_topics:
        return
    reason = check_topic(topic)
    if reason is not None:
        raise IllegalMessageError(reason)
    if is_not_allowed_send_topic(topic):
        raise IllegalMessageError(f"sending to topic {topic} is not allowed")
    if len(_checked_topics) < 10_000:  # bounded: topics may come from a user's input
        _checked_topics.add(topic)


def check_values(topic: str, options: SendOptions) -> None:
    """Check the values of options before the first send with them.

    Raises:
        IllegalMessageError: one that no message can have, or two that exclude each other.
        TypeError: one of another type.
    """
    moment = delivery_time_of(
        options.get("delay"), options.get("deliver_at"), options.get("delay_level") or 0
    )
    _check_properties_size(_user_properties(options, moment))
    if (queue := options.get("queue")) is not None:
        checked_choice(queue, topic)


_BEFORE_ID: Final = f"{PROPERTY_UNIQ_KEY}{NAME_SEPARATOR}"
_AFTER_ID: Final = PAIR_SEPARATOR + properties_text({PROPERTY_WAIT_STORE_MSG_OK: "true"})


def id_properties(msg_id: str) -> str:
    """Return the properties of every message: its id, and the wish to wait for the store."""
    return f"{_BEFORE_ID}{msg_id}{_AFTER_ID}"


def build_outgoing(
    body: Any,  # noqa: ANN401 - any value of the serializer
    options: SendOptions,
    config: ProducerConfig,
    msg_id: str,
    *,
    compress: bool = True,
) -> Outgoing:
    """Serialize, check and compress one message.

    Raises:
        IllegalMessageError: it breaks a limit; nothing was sent.
        TypeError: an option that does not exist, or is of another type; nothing was sent.
    """
    # Options before the body: a serializer may be slow, or have side effects.
    if options:
        check_options(options)
    data = (options.get("serializer") or config.serializer).dumps(body)
    size_bytes = len(data)
    if not 0 < size_bytes <= config.max_message_bytes:
        _check_body_size(size_bytes, config)
    sys_flag = 0
    if compress and 0 < config.compress_over_bytes <= size_bytes:
        codec = _CODECS[config.compression]
        packed = deflate(data, codec, config.compression_level)
        if len(packed) < size_bytes:  # random bytes do not shrink: they are sent as they are
            data, sys_flag = packed, with_compression(0, codec)
    properties, moment = id_properties(msg_id), None
    if options:
        moment = delivery_time_of(
            options.get("delay"), options.get("deliver_at"), options.get("delay_level") or 0
        )
        properties += _user_properties(options, moment)
        # A character has at most four bytes: a shorter text needs no exact count.
        if len(properties) > MAX_PROPERTIES_BYTES // 4:
            _check_properties_size(properties)
    return Outgoing(data, properties, sys_flag, options.get("flag", 0), msg_id, moment=moment)


def build_alike(
    bodies: Sequence[Any],
    options: SendOptions,
    config: ProducerConfig,
    msg_ids: Sequence[str],
) -> list[Outgoing]:
    """Serialize and check the messages of a batch that have the same options, and no delay.

    Raises:
        IllegalMessageError: one breaks a limit; nothing was sent.
        TypeError: an option that does not exist, or is of another type; nothing was sent.
    """
    check_options(options)
    serializer = options.get("serializer") or config.serializer
    if serializer is PLAIN and set(map(type, bodies)) == {bytes}:
        datas = bodies
    else:
        datas = [serializer.dumps(body) for body in bodies]
    # Most bodies of a batch have one of a few sizes, so that each size is checked once.
    for size_bytes in {len(data) for data in datas}:
        _check_body_size(size_bytes, config)
    after_id = _AFTER_ID + _user_properties(options, None) if options else _AFTER_ID
    properties = [f"{_BEFORE_ID}{msg_id}{after_id}" for msg_id in msg_ids]
    if properties and len(properties[0]) > MAX_PROPERTIES_BYTES // 4:
        _check_properties_size(properties[0])
    rows = zip(
        datas,
        properties,
        repeat(0),
        repeat(options.get("flag", 0)),
        msg_ids,
        repeat(SEND),
        repeat(None),
        repeat(None),
        strict=False,
    )
    return list(map(_outgoing, rows))


def _check_body_size(size_bytes: int, config: ProducerConfig) -> None:
    if not size_bytes:
        raise IllegalMessageError("the body is empty")
    if size_bytes > config.max_message_bytes:
        raise IllegalMessageError(
            f"a body of {size_bytes} bytes exceeds the limit of {config.max_message_bytes} bytes"
        )


def _check_properties_size(properties: str) -> None:
    size_bytes = len(properties.encode())
    if size_bytes > MAX_PROPERTIES_BYTES:
        raise IllegalMessageError(
            f"properties of {size_bytes} bytes exceed the limit of {MAX_PROPERTIES_BYTES} bytes"
        )


def _user_properties(options: SendOptions, moment: DeliveryTime | None) -> str:
    pairs: dict[str, str] = {}
    tag = options.get("tag")
    if tag:
        pairs[PROPERTY_TAGS] = tag.strip()
    keys = options.get("keys")
    if keys:
        pairs[PROPERTY_KEYS] = keys if isinstance(keys, str) else _joined_keys(keys)
    order_key = options.get("order_key")
    if order_key is not None:
        pairs[PROPERTY_SHARDING_KEY] = str(order_key)
    pairs.update(level_property(options.get("delay_level") or 0))
    if moment is not None:
        pairs.update(moment.properties)
    headers = options.get("headers")
    if headers:
        given_headers: Mapping[Any, Any] = headers
        for name, value in given_headers.items():
            if name in SYSTEM_PROPERTIES:
                raise IllegalMessageError(f"header {name} is reserved for the system")
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"headers: {name!r}: {value!r} is not text")
            if not name or not value:
                raise IllegalMessageError(f"header {name!r} needs a name and a value")
        pairs.update(headers)
    # Last, so that a header cannot replace what the client itself sets.
    pairs.update(options.get("properties", {}))
    given = {name: value for name, value in pairs.items() if value}
    text = properties_text(given)
    # One count over the whole text is cheaper than a look at each value.
    if text.count(NAME_SEPARATOR) + text.count(PAIR_SEPARATOR) != 2 * len(given):
        raise IllegalMessageError("tags, keys and headers must not contain \\x01 or \\x02")
    if not text.isascii():
        _check_utf8(given)
    return text


def _check_utf8(properties: Mapping[str, str]) -> None:
    """Raise IllegalMessageError for a property that UTF-8 cannot encode."""
    for name, value in properties.items():
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError as error:
            words = f"property {name!r}: {value!r} is not text that UTF-8 can encode"
            raise IllegalMessageError(words) from error


def _joined_keys(keys: Iterable[str]) -> str:
    parts = list(keys)
    for key in parts:
        if not isinstance(key, str):
            raise TypeError(f"keys: {key!r} is not of type str")
        if KEY_SEPARATOR in key:
            raise IllegalMessageError(f"key {key!r} holds a blank, which separates keys")
    return KEY_SEPARATOR.join(parts)


def unpacked(
    topic: str | Message, body: object, options: SendOptions
) -> tuple[str, object, SendOptions]:
    """Return topic, body and options of a Message; options of the caller have precedence."""
    if isinstance(topic, str):
        return topic, body, options
    if not isinstance(topic, Message):
        raise TypeError(f"{topic!r} is neither the name of a topic nor a Message")
    if body is not None:
        raise IllegalMessageError("give a Message or a topic and a body, not both")
    message = topic
    merged: dict[str, Any] = {
        "tag": message.tag,
        "keys": message.keys,
        "headers": message.headers,
        "order_key": message.order_key,
        "flag": message.flag,
    }
    # A copy: the caller may send the same Message again with other options.
    merged.update(options)
    return message.topic, message.body, cast("SendOptions", merged)


def queue_chooser(
    options: SendOptions,
) -> Callable[[Sequence[MessageQueue]], MessageQueue] | None:
    """Return the function that chooses the only queue allowed; None for a round robin."""
    queue = options.get("queue")
    if queue is not None:
        return lambda _: queue
    selector = options.get("selector")
    if selector is not None:
        return selector
    key = options.get("order_key")
    if key is not None:

        def by_key(queues: Sequence[MessageQueue]) -> MessageQueue:
            return queues[queue_index_by_key(key, len(queues))]

        return by_key
    return None
