"""Settings of the client, with the defaults of Apache's Java client.

One dataclass an object that users make; its fields are the keyword arguments of what makes it
(`connect`, `client.producer`, `client.consumer`, `client.pull_consumer`): see `options`. How long
something takes is in seconds, or a timedelta.

Source: ClientConfig, DefaultMQProducer, DefaultMQPushConsumer, DefaultLitePullConsumer (5.4.0).

Settings of a responder: those of a consumer, and what its answers go through.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Generic, Literal, cast

from rocketpy.client.callbacks.handler_signature import (
    check_callback,
    check_middleware,
    mismatch,
)
from rocketpy.client.callbacks.handlers import ErrorHandler, Handler
from rocketpy.client.callbacks.hooks import AssignmentHook, RetryHook, TxChecker
from rocketpy.client.callbacks.middleware import HandleMiddleware, SendMiddleware
from rocketpy.client.credentials import Credentials
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Backoff
from rocketpy.client.messages.serializers import PLAIN, B_co, Serializer
from rocketpy.client.options.durations import Duration, to_s
from rocketpy.client.options.validation import check_read, described, fits, refuse_generators, takes
from rocketpy.errors import ConfigError
from rocketpy.proto.allocation import (
    Allocation,
)
from rocketpy.proto.pop import MAX_POP_COUNT
from rocketpy.proto.record.properties import PROPERTY_SHARDING_KEY
from rocketpy.proto.trace import TRACE_TOPIC
from rocketpy.proto.validators import check_topic, is_valid_name
from rocketpy.remoting.config import RemotingClientConfig

AllocationName = Literal["avg", "circle", "consistent_hash"]


FlowControlRetry = Literal["backoff", "immediate", "none"]
LatencyProfile = Literal["4.x", "5.x"]
Compression = Literal["zlib", "lz4", "zstd"]
MAX_INVISIBLE_S: Final = 3 * 24 * 3_600
DEFAULT_GROUP: Final = "DEFAULT_GROUP"
"""The group of clients without one; for producers only."""
NO_GROUP: Final = (
    'a consumer needs a group: give group="...", the name of the application that consumes; '
    f"{DEFAULT_GROUP} would be shared with every other program that gives none"
)
StartPosition = Literal["latest", "earliest"] | datetime | float
"""An end of a queue or a time: a datetime, a float of seconds or an int of ms since 1970."""

_MINIMUM: Final = {
    "api_timeout": 0.001,
    "route_refresh_interval": 0.001,
    "heartbeat_interval": 0.001,
    "persist_interval": 0.001,
    "default_topic_queues": 1,
    "timeout": 0,
    "retries": 0,
    "attempt_timeout": 0,
    "max_message_bytes": 1,
    "compress_over_bytes": 0,
    "compression_level": 0,
    "max_in_flight": 1,
    "max_in_flight_bytes": 1,
    "linger": 0,
    "linger_messages": 1,
    "linger_bytes": 1,
    "concurrency": 1,
    "batch": 1,
    "max_retries": -1,
    "pull_batch": 1,
    "pull_batch_bytes": 1,
    "pull_interval": 0,
    "max_cached_messages": 1,
    "max_cached_bytes": 1,
    "max_cached_messages_all": 1,
    "max_span": 1,
    "pull_wait": 0,
    "pull_timeout": 0.001,
    "pull_error_pause": 0.001,
    "rebalance_interval": 0.001,
    "takeover_pause": 0,
    "start_timeout": 0,
    "stop_timeout": 0,
    "consume_timeout": 0.001,
    "local_retry_pause": 0.001,
    "ordered_retry_pause": 0.01,
    "auto_commit_interval": 0,
    "invisible_time": 1,
    "pop_wait": 0,
    "max_in_hand": 1,
    "error_pause": 0.001,
}
_CALLBACKS: Final = (
    "allocation",
    "on_assigned",
    "on_error",
    "on_retry",
    "on_revoked",
    "order_by_key",
    "retry_backoff",
    "tx_checker",
)
_HINTS: Final = {"name_servers": "; write 'host:port', or a list of such texts"}
_HIGHEST_LEVEL: Final = {"zlib": 9, "lz4": 16, "zstd": 22}


class Checked:
    """The base of a configuration dataclass: its values are checked when it is made.

    Raises:
        ConfigError: a value that cannot be used; names the option.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        values = {}
        for each in fields(cast("Any", self)):
            value = values[each.name] = getattr(self, each.name)
            if not fits(each.type, value):
                # An account given in another form must not end in a log.
                shown = f"a {type(value).__name__}" if each.name == "credentials" else repr(value)
                hint = _HINTS.get(each.name, "")
                words = f"{shown[:100]} is not {described(each.type)}{hint}"
                raise ConfigError(words, key=each.name)
            minimum = _MINIMUM.get(each.name)
            if minimum is not None and to_s(value) < minimum:
                raise ConfigError(f"{value} is less than {minimum}", key=each.name)
        _check_functions(values)
        if values.get("topic") is not None:
            check_read(*(values[name] for name in ("topic", "group", "filter", "sql")))
        if values.get("trace") and (reason := check_topic(values["trace_topic"])):
            raise ConfigError(reason, key="trace_topic")
        if to_s(values.get("pull_wait", 0)) >= to_s(values.get("pull_timeout", math.inf)):
            reason = "a pull must be allowed more time than the broker may hold it (pull_wait)"
            raise ConfigError(reason, key="pull_timeout")
        in_order = [name for name in ("ordered", "order_by_key") if values.get(name)]
        if len(in_order) > 1:
            raise ConfigError("choose one of ordered and order_by_key", key="ordered")


def _check_functions(values: Mapping[str, Any]) -> None:
    """Refuse functions that cannot be called as their options say; raises ConfigError."""
    handler = values.get("handler")
    if handler is not None and not takes(handler, 1, 2):
        reason = "a handler takes a message, or a decoded body and a message"
        raise ConfigError(reason, key="handler")
    for name in _CALLBACKS:
        if callable(values.get(name)):
            check_callback(name, values[name])
    if handler is not None and (
        wrong := mismatch(handler, values["serializer"], is_list=values["batch"] > 1)
    ):
        raise ConfigError(wrong, key="handler")
    refuse_generators(values)
    for name in ("middlewares", "reply_middlewares"):
        for each in values.get(name, ()):
            check_middleware(name, each)


def check_handler(config: "ConsumerConfig | PopConsumerConfig") -> None:
    """Refuse options that need a handler without one; a decorated function follows its settings.

    Raises:
        ConfigError: names the option.
    """
    if config.handler is not None:
        if not config.auto_ack:
            reason = "is for loops and getone; a handler settles its message when it returns"
            raise ConfigError(reason, key="auto_ack")
        return
    for name in ("ordered", "order_by_key"):
        if getattr(config, name, False):
            raise ConfigError("needs a handler; iterating has no end of a message", key=name)
    if config.middlewares:
        raise ConfigError("needs a handler; iterating has no call of one", key="middlewares")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(Checked):
    """Options of a client, shared by its producers and consumers.

    Attributes:
        name_servers: `"host:9876;host2:9876"` or a sequence; None takes `NAMESRV_ADDR` from
            the environment.
        group: the group of producers and consumers that name none themselves.
        namespace: topics and groups are those of this namespace (`namespace%topic` to brokers);
            names in queues (`MessageQueue`) are the brokers' ones.
        remoting: settings of the connections (TLS, limits); None for the defaults.
        instance_name: the part of the client id after `ip@`; empty means process id and time. Two
            processes of a machine with the same one are one member of a group to brokers: each
            reads all queues of that member, so that messages are handled twice.
        client_ip: the part of the client id before `@`; empty means this machine's address.
        unit_name: appended to the client id when not empty.
        credentials: the account of a cluster with access control; None takes that of the
            environment (`ROCKETPY_ACCESS_KEY`, `ROCKETPY_SECRET_KEY`), if there is one.
        api_timeout: limit of one administrative request (routes, offsets, heartbeats).
        route_refresh_interval: pause between two look-ups of the routes in use.
        heartbeat_interval: pause between two heartbeats to every broker.
        persist_interval: pause between two times that consumers store their offsets.
        default_topic_queues: queues that a topic created by its first message gets at most.
    """

    name_servers: str | Sequence[str] | None = field(default=None, kw_only=False)
    group: str = DEFAULT_GROUP
    namespace: str = ""
    remoting: RemotingClientConfig | None = None
    instance_name: str = ""
    client_ip: str = ""
    unit_name: str = ""
    credentials: Credentials | None = None
    api_timeout: Duration = 3.0
    route_refresh_interval: Duration = 30.0
    heartbeat_interval: Duration = 30.0
    persist_interval: Duration = 5.0
    default_topic_queues: int = 4

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one cannot be used; names the option.
        """
        Checked.__post_init__(self)
        if self.namespace and not is_valid_name(self.namespace):
            reason = f"{self.namespace!r} has characters beyond letters, digits, %, |, - and _"
            raise ConfigError(reason, key="namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(Checked):
    """Settings of a producer.

    Attributes:
        group: its group; empty means the client's.
        timeout: one limit for one send: line, route, attempts and pauses.
        retries: attempts after the first one; refused connections do not count.
        attempt_timeout: when another broker is tried; 0 for the time left, divided by
            the attempts left. The slow one's response still counts.
        flow_control_retry: what to do when a broker is over its capacity.
        retry_when_not_ok: send a message to another broker as well when its status is not SEND_OK
            (neither a slave nor the disk confirmed it in time). It is stored twice then.
        latency_fault: avoid brokers that were slow or failed.
        latency_profile: which table says for how long, Apache's of 4.x or of 5.x.
        max_message_bytes: limit of a body before compression, and of a batch.
        compress_over_bytes: bodies of this size or more are compressed; 0 turns it off.
        compression: how.
        compression_level: up to 9 with zlib, 16 with lz4, 22 with zstd.
        max_in_flight: sends that may wait for their response.
        max_in_flight_bytes: the same, as body bytes.
        linger: how long a send may wait for others of its topic, to go with them as one batch to
            one queue, the next in turn; those with a `queue` wait for others of that queue. 0 has
            each go at once. At most a quarter of `timeout`. Alone go those with a delay, an
            `order_key`, a selector, a `timeout` or `retries` of their own, transactions, requests,
            replies, `send_batch`, and bodies that were compressed.
        linger_messages: so many go together at most, at once when they are there.
        linger_bytes: the same, as bytes of their records.
        serializer: turns a body into bytes.
        tx_checker: answers brokers that ask how a transaction ended (`Producer.transaction`): a
            function, or coroutine function, of the message, that returns a `TxState`.
        middlewares: coroutine functions around each send, the outermost first; see
            `rocketpy.client.callbacks.middleware`.
        on_retry: called with each attempt that failed and is followed by another (`SendRetry`).
        trace: record each send in the trace topic, as official clients do.
        trace_topic: where to; the official one by default.
    """

    group: str = ""
    timeout: Duration = 3.0
    retries: int = 2
    attempt_timeout: Duration = 0.0
    flow_control_retry: FlowControlRetry = "backoff"
    retry_when_not_ok: bool = False
    latency_fault: bool = False
    latency_profile: LatencyProfile = "4.x"
    max_message_bytes: int = 4 * 1024 * 1024
    compress_over_bytes: int = 4096
    compression: Compression = "zlib"
    compression_level: int = 5
    max_in_flight: int = 1024
    max_in_flight_bytes: int = 64 * 1024 * 1024
    linger: Duration = 0.0
    linger_messages: int = 500
    linger_bytes: int = 256 * 1024
    serializer: Serializer = PLAIN
    tx_checker: TxChecker | None = None
    middlewares: Sequence[SendMiddleware] = ()
    on_retry: RetryHook | None = None
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one cannot be used; names the option.
        """
        Checked.__post_init__(self)
        if 4 * to_s(self.linger) > to_s(self.timeout):
            reason = "a send may linger for a quarter of its timeout at most"
            raise ConfigError(reason, key="linger")
        highest = _HIGHEST_LEVEL[self.compression]
        if self.compression_level > highest:
            reason = f"{self.compression_level} is more than {self.compression}'s {highest}"
            raise ConfigError(reason, key="compression_level")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(Checked, Generic[B_co]):
    """Settings of a group consumer.

    Attributes:
        topic: one topic or several.
        group: its group; empty means the client's.
        filter: tags, `"a || b"` or `"*"`.
        sql: instead of tags, a condition on properties: `"amount > 100 AND region = 'eu'"`.
        handler: called with each message (or list, when `batch` is above 1); without one,
            iterate over the consumer.
        on_error: gets a message and why it failed, when its handler raises or its body cannot be
            read (`UnreadableBodyError`). It returns, and the message is done, or it raises as a
            handler does. Without one, a body that cannot be read makes a dead letter.
        middlewares: coroutine functions around each call of the handler, the outermost first; see
            `rocketpy.client.callbacks.middleware`.
        start: where a group without a stored offset begins: `"latest"`, `"earliest"`, a time
            (a datetime, which is local time without a time zone; a float of seconds since 1970,
            as of `time.time()`; an int of ms since 1970). A queue without an offset of a group
            that has offsets in other queues of the topic begins with its first message.
        auto_ack: whether a message that was received without a handler is done when its task asks
            for the next one; False leaves that to `message.ack()` and `message.nack()`, and those
            that are not acknowledged count for `max_cached_messages` and `consume_timeout`.
        concurrency: handlers that run at the same time.
        batch: messages a handler gets at once; above 1 it gets a list.
        ordered: one handler per queue at a time, in the order of the queue; no other member in the
            group has the queue meanwhile. A handler that fails gets the same message again after
            `ordered_retry_pause`, and its queue waits.
        order_by_key: the same for each key, keys beside each other; the key is the `order_key`
            it was sent with, or what a function of the message returns. Messages without a key
            (None) are in no order. A message whose function raises fails as one whose handler
            raises. A key that fails holds its queue up only when `max_span` or
            `max_cached_messages` is reached.
        ordered_retry_pause: see `ordered`.
        max_retries: deliveries after the first one, then the dead letter queue; -1 means 16, and
            without limit when `ordered` or `order_by_key`.
        retry_backoff: returns the delay of a retry, in seconds or as a timedelta, given its number
            (1 for the first), where the handler chooses none; None for the usual delays, from 10 s
            to 2 h. A delay is rounded up to the
            broker's next level, 2 h at most; that of an `ordered` or `order_by_key` consumer is
            exact and takes the place of `ordered_retry_pause`.
        broadcast: every member gets every message; offsets stay in `offset_dir`.
        offset_dir: of a broadcasting group; empty means `~/.rocketmq_offsets`. Several such
            members on one machine need an `instance_name` each.
        allocation: which member reads which queue, the same rule for the whole group: `"avg"`,
            `"circle"`, `"consistent_hash"`, or what `fixed_queues`, `by_machine_room`,
            `machine_room_nearby` or `consistent_hash` return, or a function of your own.
        serializer: reads bodies in `message.decode()` and for handlers of two parameters.
        pull_batch: messages a pull asks for.
        pull_batch_bytes: bytes a pull asks for.
        pull_interval: pause between two pulls of a queue.
        max_cached_messages: pulled and not finished, of a queue: above it, pulling pauses.
        max_cached_bytes: the same, as bytes of bodies.
        max_span: the same, as distance between the first and the last offset.
        pull_wait: how long a broker may hold a pull until a message comes.
        pull_timeout: limit of one pull; more than `pull_wait`.
        pull_error_pause: pause after a pull that failed.
        rebalance_interval: pause between two rounds of dealing out queues.
        takeover_pause: time for a queue's former owner to store its offset.
        start_timeout: how long a start waits for a name server that is not there yet, then to
            know the first queues and where they begin; 0 does not wait, and what is sent meanwhile
            may be missed.
        stop_timeout: how long a stop waits for running handlers.
        consume_timeout: a message that is handled for longer is sent back to the broker.
        local_retry_pause: pause before a message that no broker took back is consumed again.
        on_assigned: called with the queues that this member got; a coroutine function or a plain
            function, which runs on a thread. The next rebalance waits for it.
        on_revoked: called with the queues that are released, while `commit` still counts for them.
        trace: record each message and its outcome in the trace topic, as official clients do.
        trace_topic: where to; the official one by default.
    """

    topic: str | Sequence[str] = field(kw_only=False)
    group: str = ""
    filter: str = "*"
    sql: str = ""
    handler: Handler | None = None
    on_error: ErrorHandler | None = None
    middlewares: Sequence[HandleMiddleware] = ()
    start: StartPosition = "latest"
    auto_ack: bool = True
    concurrency: int = 20
    batch: int = 1
    ordered: bool = False
    order_by_key: bool | Callable[[ReceivedMessage], Hashable | None] = False
    ordered_retry_pause: Duration = 1.0
    max_retries: int = -1
    retry_backoff: Backoff | None = None
    broadcast: bool = False
    offset_dir: str = ""
    allocation: AllocationName | Allocation = "avg"
    serializer: Serializer[B_co] = PLAIN
    pull_batch: int = 32
    pull_batch_bytes: int = 256 * 1024
    pull_interval: Duration = 0.0
    max_cached_messages: int = 1000
    max_cached_bytes: int = 100 * 1024 * 1024
    max_span: int = 2000
    pull_wait: Duration = 15.0
    pull_timeout: Duration = 30.0
    pull_error_pause: Duration = 1.0
    rebalance_interval: Duration = 20.0
    takeover_pause: Duration = 0.5
    start_timeout: Duration = 5.0
    stop_timeout: Duration = 10.0
    consume_timeout: Duration = 900.0
    local_retry_pause: Duration = 5.0
    on_assigned: AssignmentHook | None = None
    on_revoked: AssignmentHook | None = None
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    @property
    def is_ordered(self) -> bool:
        """Whether a message that fails is waited for, by its queue or by its key."""
        return self.ordered or self.order_by_key is not False

    def key_of(self, message: ReceivedMessage) -> Hashable | None:
        """Return the key that a message is ordered by, None when it is in no order."""
        if callable(self.order_by_key):
            return self.order_by_key(message)
        return message.properties.get(PROPERTY_SHARDING_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerConfig(Checked, Generic[B_co]):
    """Settings of a pull consumer; as `ConsumerConfig` where the names agree.

    Attributes:
        group: its group; empty means the client's.
        auto_commit: commit what earlier polls handed out, every `auto_commit_interval`.
        auto_commit_interval: pause between two such commits, at least.
        start: where a group without a stored offset begins: `"latest"`, `"earliest"`, a time
            (a datetime, which is local time without a time zone; a float of seconds since 1970,
            as of `time.time()`; an int of ms since 1970). A queue without an offset of a group
            that has offsets in other queues of the topic begins with its first message.
        allocation: which member reads which queue, the same rule for the whole group: `"avg"`,
            `"circle"`, `"consistent_hash"`, or what `fixed_queues`, `by_machine_room`,
            `machine_room_nearby` or `consistent_hash` return, or a function of your own.
        serializer: reads bodies in `message.decode()`.
        pull_batch: messages a pull asks for.
        max_cached_messages: pulled and not handed out, of a queue: above it, pulling pauses.
        max_cached_bytes: the same, as bytes of bodies.
        max_cached_messages_all: the same, as messages of all queues together.
        pull_wait: how long a broker may hold a pull until a message comes.
        pull_timeout: limit of one pull; more than `pull_wait`.
        pull_error_pause: pause after a pull that failed.
        rebalance_interval: pause between two rounds of dealing out queues.
        start_timeout: how long `subscribe` waits for a name server that is not there yet, then to
            know the first queues and where they begin; 0 does not wait, and what is sent meanwhile
            may be missed.
        on_assigned: called with the queues that this member got; a coroutine function or a plain
            function, which runs on a thread. The next rebalance waits for it.
        on_revoked: called with the queues that are released, while `commit` still counts for them.
    """

    group: str = ""
    auto_commit: bool = True
    auto_commit_interval: Duration = 5.0
    start: StartPosition = "latest"
    allocation: AllocationName | Allocation = "avg"
    serializer: Serializer[B_co] = PLAIN
    pull_batch: int = 32
    max_cached_messages: int = 1000
    max_cached_bytes: int = 100 * 1024 * 1024
    max_cached_messages_all: int = 10_000
    pull_wait: Duration = 20.0
    pull_timeout: Duration = 30.0
    pull_error_pause: Duration = 1.0
    rebalance_interval: Duration = 20.0
    start_timeout: Duration = 5.0
    on_assigned: AssignmentHook | None = None
    on_revoked: AssignmentHook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConsumerConfig(Checked, Generic[B_co]):
    """Settings of a pop consumer; as `ConsumerConfig` where the names agree.

    Attributes:
        topic: one topic or several.
        group: its group; empty means the client's. All of its members must pop.
        filter: tags, `"a || b"` or `"*"`.
        sql: instead of tags, a condition on properties.
        handler: called with each message (or list, when `batch` is above 1); without one,
            iterate over the consumer.
        on_error: gets a message and why it failed, when its handler raises or its body cannot be
            read (`UnreadableBodyError`). It returns, and the message is done, or it raises as a
            handler does. Without one, a body that cannot be read makes a dead letter.
        middlewares: coroutine functions around each call of the handler, the outermost first; see
            `rocketpy.client.callbacks.middleware`.
        start: where a group without an offset begins: `"earliest"`, or `"latest"`, which to
            brokers means with the last message of each queue, and a young queue whole.
        ordered: one message of a queue after the other: no member of the group gets a queue while
            messages of it are unacknowledged. When a handler fails, the messages of the queue that
            were popped behind it are given back, and come again behind it.
        auto_ack: whether a message that was received without a handler is acked when its task asks
            for the next one; False leaves that to `message.ack()` and `message.nack()`.
        concurrency: handlers that run at the same time.
        batch: messages a handler gets at once; above 1 it gets a list.
        invisible_time: how long a message is ours before another gets it, at most 3 days; one that
            waits for its handler stays ours for longer, while some message is begun in each.
        renew: keep messages that handlers have for longer than that, too.
        max_retries: deliveries after the first one, then the dead letter queue; -1 means 16.
        retry_backoff: returns the delay of a retry, in seconds or as a timedelta, given its number
            (1 for the first), where the handler chooses none; None for the usual delays, from 10 s
            to 2 h. Not rounded to levels, 2 h at most.
        serializer: reads bodies in `message.decode()` and for handlers of two parameters.
        pop_batch: messages a pop asks for, at most 32.
        pop_wait: how long a broker may wait for a message.
        max_in_hand: messages popped and not settled: above it, popping pauses.
        error_pause: pause after a pop that failed.
        rebalance_interval: pause between two questions what to pop.
        start_timeout: how long a start waits for a name server that is not there yet, then to
            know what to pop and where it begins; 0 does not wait, and what is sent meanwhile may be
            missed.
        stop_timeout: how long a stop waits for running handlers.
    """

    topic: str | Sequence[str] = field(kw_only=False)
    group: str = ""
    filter: str = "*"
    sql: str = ""
    handler: Handler | None = None
    on_error: ErrorHandler | None = None
    middlewares: Sequence[HandleMiddleware] = ()
    start: Literal["latest", "earliest"] = "latest"
    ordered: bool = False
    auto_ack: bool = True
    concurrency: int = 20
    batch: int = 1
    invisible_time: Duration = 60.0
    renew: bool = False
    max_retries: int = -1
    retry_backoff: Backoff | None = None
    serializer: Serializer[B_co] = PLAIN
    pop_batch: int = 32
    pop_wait: Duration = 15.0
    max_in_hand: int = 96
    error_pause: Duration = 1.0
    rebalance_interval: Duration = 20.0
    start_timeout: Duration = 5.0
    stop_timeout: Duration = 10.0

    @property
    def is_ordered(self) -> bool:
        """Whether a message that fails is waited for by its queue."""
        return self.ordered

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one cannot be used; names the option.
        """
        Checked.__post_init__(self)
        if not 1 <= self.pop_batch <= MAX_POP_COUNT:
            raise ConfigError(f"a pop asks for 1 to {MAX_POP_COUNT} messages", key="pop_batch")
        if to_s(self.invisible_time) > MAX_INVISIBLE_S:
            raise ConfigError("a message stays invisible for 3 days at most", key="invisible_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderConfig(ConsumerConfig[B_co], Generic[B_co]):
    """Settings of a responder.

    Attributes:
        reply_middlewares: coroutine functions around each answer that is sent, the outermost first;
            see `rocketpy.client.callbacks.middleware`.
        reply_serializer: turns answers into bytes; None for `serializer`, which reads requests.
    """

    reply_middlewares: Sequence[SendMiddleware] = ()
    reply_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one cannot be used; names the option.
        """
        ConsumerConfig.__post_init__(self)
        if self.batch != 1:
            raise ConfigError("a responder answers one message after the other", key="batch")
