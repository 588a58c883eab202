"""What admin operations return: plain values, times in ms since 1970 unless named otherwise."""

from dataclasses import dataclass, field

from rocketpy.proto.message_queue import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """One broker of a cluster and what it says about itself.

    Attributes:
        broker_id: 0 is the master.
        version: of its software, empty when it does not answer.
        in_tps: messages stored per second, over the last ten seconds.
        out_tps: messages delivered per second, over the last ten seconds.
        stored_today: messages since local midnight.
        delivered_today: messages since local midnight.
        disk_ratio: share of the log's file system that is used, 0 to 1; below 0 when unknown.
        error: why it did not answer, or an empty string.
        runtime: everything else it says, as text by Apache's names.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str = ""
    in_tps: float = 0.0
    out_tps: float = 0.0
    stored_today: int = 0
    delivered_today: int = 0
    disk_ratio: float = -1.0
    error: str = ""
    runtime: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """What one queue holds; `max_offset` is the next message's."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored_ms: int

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """What a topic holds; `in_tps` is messages stored per second (5.x brokers)."""

    topic: str
    queues: list[QueueStatus]
    in_tps: float

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return sum(queue.messages for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatistics:
    """How busy a topic is: per minute, per second over the last minute, and over the day."""

    topic: str
    group: str
    in_tps: float
    out_tps: float
    in_24h: int
    out_24h: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group is in one queue.

    Attributes:
        broker_offset: of the next message to be stored.
        consumer_offset: of the next message to be consumed; below 0 when none is stored.
        last_consumed_ms: when the last consumed message was stored; 0 when unknown.
        client_id: the member that has the queue, empty when it was not asked or nobody has it.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_ms: int
    client_id: str = ""

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet."""
        return self.broker_offset - max(0, self.consumer_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is; `out_tps` is messages consumed per second."""

    group: str
    queues: list[QueueLag]
    out_tps: float

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet, in all queues."""
        return sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One line about a group.

    Attributes:
        members: connected clients.
        consume_type: `CONSUME_PASSIVELY` (push), `CONSUME_ACTIVELY` (pull), `CONSUME_POP`,
            or empty when nobody is connected.
        message_model: `CLUSTERING`, `BROADCASTING`, or empty.
        lag: messages not consumed yet.
    """

    group: str
    members: int
    consume_type: str
    message_model: str
    lag: int
    out_tps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A connected client of a group; `broker` says who told."""

    client_id: str
    address: str
    language: str
    version: str
    broker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """Where a group was in a queue, and where it goes on."""

    queue: MessageQueue
    from_offset: int
    to_offset: int
