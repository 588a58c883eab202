"""The messages a user sees: the one to send, and the one received."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    Self,
    SupportsIndex,
    TypeVar,
    overload,
)

from rocketpy.client.messages.outcomes import MAX_RETRY_DELAY_S, Rejection, checked_delay
from rocketpy.client.messages.serializers import PLAIN, B_co, Serializer
from rocketpy.client.options.durations import Duration
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.proto.record.message import MessageExt, decode_without_body
from rocketpy.proto.record.properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    SYSTEM_PROPERTIES,
)
from rocketpy.proto.topic_names import RETRY_PREFIX

V = TypeVar("V")

CANNOT_REDELIVER = "only messages of a group consumer can be redelivered"
SETTLED_TOO_LATE = (
    "the consumer closed before, so the message is delivered again: call ack(), nack() and "
    "in_progress() inside its `with` block"
)
NOT_TO_COPY = (
    "a {kind} cannot be pickled or copied, it belongs to a consumer of this process: pass its "
    "body, decode(), headers or id instead"
)
NACKED = "the consumer called nack()"
"""Reason of a dead letter that no exception made."""

_OUR_NAMES: Final = {
    **dict.fromkeys(("value", "data", "payload", "content"), "body, or decode() for the value"),
    "key": "keys; the order key is properties['__SHARDINGKEY']",
    "partition": "queue.queue_id",
    "timestamp": "born_at or stored_at",
    "message_id": "id",
    "attributes": "headers or properties",
    "subject": "topic",
}
"""Attributes of messages in other libraries, and what has the same value here."""


def _unknown_attribute(message: object, name: str) -> str:
    """Return the text of an AttributeError."""
    ours = _OUR_NAMES.get(name)
    hint = "" if ours is None else f"; RocketPy's name is {ours}"
    return f"{type(message).__name__!r} object has no attribute {name!r}{hint}"


@dataclass(slots=True, kw_only=True)
class Message:
    """A message to send, for code that builds messages in one place and sends them in another.

    Attributes:
        topic: where it goes.
        body: anything the producer's serializer takes.
        tag: what consumers filter by.
        keys: what messages can be looked up by; no blanks inside a key.
        headers: properties of your own.
        order_key: messages with the same key go to the same queue, in the order they are sent.
        flag: a number of your own, carried along.

    Example:
        >>> Message(topic="orders", body=b"o1", tag="paid", keys=["o1"]).tag
        'paid'
    """

    topic: str
    body: Any = b""
    tag: str = ""
    keys: Iterable[str] | str = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    order_key: str | int | None = None
    flag: int = 0


class Settlement(Protocol):
    """Receiver of a message's outcome: the consumer that delivered it."""

    def ack(self, message: "ReceivedMessage") -> None:
        """Count the message as done; twice does no harm.

        Raises:
            ClosedError: the consumer closed before.
        """
        ...

    async def nack(self, message: "ReceivedMessage", rejection: Rejection) -> None:
        """Have the message delivered again; raises ClosedError where that is impossible."""
        ...

    def in_progress(self, message: "ReceivedMessage") -> None:
        """Restart the consume time-out of the message; raises ClosedError as `ack`."""
        ...


class ReceivedMessage(Generic[B_co]):
    """A message from a broker; `ReceivedMessage[Order]` is one whose `decode()` returns an Order.

    Attributes:
        topic: the topic it was sent to (of a redelivery, the original one).
        body: its bytes, inflated.
        ext: the stored message with every field of the wire, read when it is first asked for.
        queue: the queue it came from (of a redelivery, the retry topic's).
        offset: its place in the queue.
        retries: how often it was delivered before this time.

    Args:
        ext: the stored message.
        queue: where it came from.
        serializer: reads the body in `decode`; None for plain bytes.
        settlement: receives the outcome; None for a message that needs none.
        namespace: of the client; `topic` and `origin_topic` are without it.
    """

    __slots__ = (
        "_namespace", "_rest", "_serializer", "_settlement", "body", "ext", "offset", "queue",
        "retries", "topic",
    )  # fmt: skip

    ext: MessageExt
    offset: int
    _rest: bytes  # the record without its body, of a message whose `ext` was not asked for

    def __init__(
        self,
        ext: MessageExt,
        queue: MessageQueue,
        *,
        serializer: Serializer[B_co] | None = None,
        settlement: Settlement | None = None,
        namespace: str = "",
    ) -> None:
        self.ext = ext
        self.body: bytes = ext.body
        self.queue: MessageQueue = queue
        self.offset = ext.queue_offset
        self.topic: str = ext.topic
        if self.topic.startswith(RETRY_PREFIX):
            self.topic = ext.properties.get(PROPERTY_RETRY_TOPIC, self.topic)
        if namespace:
            self.topic = unwrap_namespace(namespace, self.topic)
        self.retries: int = ext.reconsume_times
        self._namespace = namespace
        self._serializer = serializer
        self._settlement = settlement

    if not TYPE_CHECKING:  # for a checker, a class with this method has every attribute

        def __getattr__(self, name: str) -> object:
            if name != "ext":
                raise AttributeError(_unknown_attribute(self, name))
            self.ext = decode_without_body(self._rest, self.body)
            return self.ext

    @property
    def id(self) -> str:
        """The id its producer gave it; the same in every redelivery, so fit to find duplicates."""
        return self.ext.msg_id

    msg_id = id  # noqa: A003 - the official clients' word

    @property
    def offset_id(self) -> str:
        """The broker's id: its address and the message's place in its log."""
        return self.ext.offset_msg_id

    @property
    def tag(self) -> str:
        """The tag, or an empty string."""
        return self.ext.tags or ""

    @property
    def keys(self) -> list[str]:
        """The keys it can be looked up by."""
        return self.ext.keys

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the system's included."""
        return self.ext.properties

    @property
    def headers(self) -> dict[str, str]:
        """The properties its sender gave it."""
        return {
            name: value
            for name, value in self.ext.properties.items()
            if name not in SYSTEM_PROPERTIES
        }

    @property
    def born_at(self) -> datetime:
        """Time of the send, by the sender's clock."""
        return datetime.fromtimestamp(self.ext.born_timestamp_ms / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        """Time at which the broker stored it."""
        return datetime.fromtimestamp(self.ext.store_timestamp_ms / 1000, UTC)

    @property
    def origin_topic(self) -> str:
        """The topic of the first delivery, also in a dead letter queue."""
        properties = self.ext.properties
        origin = properties.get(PROPERTY_DLQ_ORIGIN_TOPIC) or properties.get(PROPERTY_RETRY_TOPIC)
        return unwrap_namespace(self._namespace, origin) if origin else self.topic

    @property
    def origin_id(self) -> str:
        """The broker's id of the first delivery: `offset_id`, unless this is a redelivery."""
        return self.ext.properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or self.offset_id

    @overload
    def decode(self) -> B_co: ...
    @overload
    def decode(self, serializer: Serializer[V]) -> V: ...
    def decode(self, serializer: Serializer | None = None) -> Any:
        """Return the body as a value, by the consumer's serializer or by the one given.

        Raises:
            ValueError: the bytes are not what the serializer reads.
        """
        return (serializer or self._serializer or PLAIN).loads(self.body)

    async def ack(self) -> None:
        """Mark it as done, so that the group's offset may pass it; twice does no harm.

        Raises:
            ClosedError: its group consumer closed before it was settled: it is delivered again.
        """
        if self._settlement is not None:
            self._settlement.ack(self)

    async def nack(self, delay_level: int = 0, *, delay: Duration | None = None) -> None:
        """Give it back: it is delivered again later, to some member of the group.

        Args:
            delay_level: 1..18 of the broker's levels (1 s, 5 s, 10 s, 30 s, 1 min, ...); 0 lets
                the time grow with each retry, from 10 s to 2 h; -1 means the dead letter queue.
            delay: instead of a level, seconds or a timedelta, at most two hours; rounded up to
                the next level, unless the consumer is ordered.

        Raises:
            ClosedError: it was not received by a group consumer, no other can redeliver; or that
                consumer closed before it was settled, and it is delivered again without the delay.
            TypeError: a level or a delay of another type.
            ClientError: a level and a delay, or a delay that is too long or less than 0.
        """
        delay_s = checked_delay(delay_level, delay, MAX_RETRY_DELAY_S)
        await self._reject(Rejection(delay_level, delay_s, reason=NACKED))

    async def _reject(self, rejection: Rejection) -> None:
        """Give it back for a reason; see `nack`."""
        if self._settlement is None:
            raise ClosedError(CANNOT_REDELIVER)
        await self._settlement.nack(self, rejection)

    async def in_progress(self) -> None:
        """Restart its `consume_timeout`, because it is still being handled.

        Nothing happens to a message that is settled, or has no such limit.

        Raises:
            ClosedError: its group consumer closed before it was settled: it is delivered again.
        """
        if self._settlement is not None:
            self._settlement.in_progress(self)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:  # noqa: ANN401 - as object's
        """Raise TypeError for a message of a consumer, which belongs to this process."""
        if self._settlement is not None:
            raise TypeError(NOT_TO_COPY.format(kind=type(self).__name__))
        return super().__reduce_ex__(protocol)

    def __copy__(self) -> Self:
        """Return a message with the same fields, whose `ack` and `nack` settle the same one."""
        own = object.__new__(type(self))
        for kind in type(self).__mro__:
            for name in kind.__dict__.get("__slots__", ()):
                with contextlib.suppress(AttributeError):  # one that was not set
                    setattr(own, name, getattr(self, name))
        return own

    def __repr__(self) -> str:
        """Say where it is from; the body may be large or private and is left out."""
        return (
            f"{type(self).__name__}({self.queue.topic}@{self.queue.broker_name}"
            f":{self.queue.queue_id}+{self.offset}, {len(self.body)} bytes)"
        )
