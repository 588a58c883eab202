"""From what a user wants to send to what the wire takes: checks, properties, compression.

Source: Validators, Message, DefaultMQProducerImpl.sendKernelImpl (5.4.0).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from numbers import Real
from types import NoneType
from typing import Any, Final, NamedTuple, TypedDict, cast

from rocketpy.client.config import ProducerConfig
from rocketpy.client.durations import Duration, to_s
from rocketpy.client.later import Moment, level_property, moment_of
from rocketpy.client.message import Message
from rocketpy.client.option_types import described, fits
from rocketpy.client.queue_select import queue_index_by_key
from rocketpy.client.serializers import Serializer
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.compression import deflate
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.properties import (
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
from rocketpy.proto.sys_flag import CompressionType, with_compression
from rocketpy.proto.topic_names import is_not_allowed_send_topic
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES, check_topic

_CODECS = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
SEND_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)


class SendOptions(TypedDict, total=False):
    """What `send` and its sisters take beside topic and body; times in seconds, or as a timedelta.

    Attributes:
        tag: what consumers filter by.
        keys: what messages can be looked up by.
        headers: properties of your own.
        order_key: same key, same queue, in order; no other broker is tried.
        queue: send to this very queue; no other broker is tried.
        selector: chooses among the topic's queues; no other broker is tried.
        timeout: for all attempts together.
        retries: attempts after the first one.
        delay: deliver no sooner than after this time.
        deliver_at: deliver no sooner than at this time.
        delay_level: deliver after the broker's n-th delay, 1..18.
        flag: a number of your own.
        serializer: instead of the producer's.
        properties: system properties, for code that builds on this one.
    """

    tag: str
    keys: Iterable[str] | str
    headers: Mapping[str, str]
    order_key: str | int | None
    queue: MessageQueue
    selector: Callable[[Sequence[MessageQueue]], MessageQueue]
    timeout: Duration
    retries: int
    delay: Duration
    deliver_at: datetime
    delay_level: int
    flag: int
    serializer: Serializer
    properties: Mapping[str, str]


_OPTION_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "tag": (str, NoneType),
    "keys": (str, list, Iterable, NoneType),
    "headers": (dict, Mapping, NoneType),
    "order_key": (str, int, NoneType),
    "queue": (MessageQueue, NoneType),
    "selector": (Callable, NoneType),  # type: ignore[dict-item]
    "timeout": (Real, timedelta),
    "retries": (int,),
    "delay": (Real, timedelta, NoneType),
    "deliver_at": (datetime, NoneType),
    "delay_level": (int, NoneType),
    "flag": (int,),
    "serializer": (object,),
    "properties": (dict, Mapping),
}
_NEVER_BELOW_0: Final = ("timeout", "retries")
assert set(_OPTION_TYPES) == set(SendOptions.__annotations__)


def check_options(options: SendOptions) -> None:
    """Refuse what is no option, or has a value that cannot be meant.

    An option that is not known must not pass: a message without its tag, or before its time, is
    worse than none.

    Raises:
        TypeError: the name is no option's, or the value is of another type.
        IllegalMessageError: a value that none can have.
    """
    for name, value in options.items():
        types = _OPTION_TYPES.get(name)
        if types is None:
            near = get_close_matches(name, _OPTION_TYPES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"a send has no option {name!r}{hint}")
        is_flag = isinstance(value, bool) and name != "keys"
        if not isinstance(value, types) or is_flag:
            names = [each.__name__ for each in types if each is not NoneType]
            raise TypeError(f"{name}: {value!r} is not of type {' or '.join(names)}")
        if name in _NEVER_BELOW_0 and not 0 <= to_s(cast("Duration", value)) < float("inf"):
            raise IllegalMessageError(f"{name}: {value!r} cannot be")
    flag = options.get("flag", 0)
    if not -(1 << 31) <= flag < 1 << 31:
        raise IllegalMessageError(f"flag: {flag} does not fit into 32 bits")
    serializer = options.get("serializer")
    if serializer is not None and not fits(Serializer, serializer):
        raise TypeError(f"serializer: {serializer!r} is not {described(Serializer)}")


class Outgoing(NamedTuple):
    """One message, ready for a header and a body.

    `retries`, of a message to a retry topic: how often it was tried, and how often it may be.
    `moment`: when it is to be delivered.
    """

    body: bytes
    properties: str
    sys_flag: int
    flag: int
    msg_id: str
    code: int = SEND
    retries: tuple[int, int] | None = None
    moment: Moment | None = None


_checked_topics: set[str] = set()


def check_send_topic(topic: str) -> None:
    """Raise IllegalMessageError if nobody may send to a topic of this name."""
    if topic in _checked_topics:
        return
    reason = check_topic(topic)
    if reason is not None:
        raise IllegalMessageError(reason)
    if is_not_allowed_send_topic(topic):
        raise IllegalMessageError(f"sending to topic {topic} is not allowed")
    if len(_checked_topics) < 10_000:
        _checked_topics.add(topic)


_BEFORE_ID: Final = f"{PROPERTY_UNIQ_KEY}{NAME_SEPARATOR}"
_AFTER_ID: Final = PAIR_SEPARATOR + properties_text({PROPERTY_WAIT_STORE_MSG_OK: "true"})


def id_properties(msg_id: str) -> str:
    """Return the properties that every message has: its id, and that the store is waited for."""
    return f"{_BEFORE_ID}{msg_id}{_AFTER_ID}"


def build_outgoing(
    body: Any,  # noqa: ANN401 - whatever the serializer takes
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
    if options:
        check_options(options)
    data = (options.get("serializer") or config.serializer).dumps(body)
    size_bytes = len(data)
    if not size_bytes:
        raise IllegalMessageError("the body is empty")
    if size_bytes > config.max_message_bytes:
        raise IllegalMessageError(
            f"a body of {size_bytes} bytes exceeds the limit of {config.max_message_bytes} bytes"
        )
    sys_flag = 0
    if compress and 0 < config.compress_over_bytes <= size_bytes:
        codec = _CODECS[config.compression]
        packed = deflate(data, codec, config.compression_level)
        if len(packed) < size_bytes:  # what does not shrink, as random bytes, goes as it is
            data, sys_flag = packed, with_compression(0, codec)
    properties, moment = id_properties(msg_id), None
    if options:
        moment = moment_of(
            options.get("delay"), options.get("deliver_at"), options.get("delay_level") or 0
        )
        properties += _user_properties(options, moment)
        if len(properties) > MAX_PROPERTIES_BYTES // 4:
            _check_properties_size(properties)
    return Outgoing(data, properties, sys_flag, options.get("flag", 0), msg_id, moment=moment)


def _check_properties_size(properties: str) -> None:
    size_bytes = len(properties.encode())
    if size_bytes > MAX_PROPERTIES_BYTES:
        raise IllegalMessageError(
            f"properties of {size_bytes} bytes exceed the limit of {MAX_PROPERTIES_BYTES} bytes"
        )


def _user_properties(options: SendOptions, moment: Moment | None) -> str:
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
    pairs.update(options.get("properties", {}))
    given = {name: value for name, value in pairs.items() if value}
    text = properties_text(given)
    if text.count(NAME_SEPARATOR) + text.count(PAIR_SEPARATOR) != 2 * len(given):
        raise IllegalMessageError("tags, keys and headers must not contain \\x01 or \\x02")
    return text


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
    """Spread a Message over the arguments; what the caller gives beside it wins."""
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
    merged.update(options)
    return message.topic, message.body, cast("SendOptions", merged)


def queue_chooser(
    options: SendOptions,
) -> Callable[[Sequence[MessageQueue]], MessageQueue] | None:
    """Return what picks the one queue that is allowed; None takes the queues in turn."""
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
