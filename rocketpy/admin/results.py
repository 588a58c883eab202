"""Results of admin operations; times are in ms since 1970 unless named otherwise."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rocketpy.errors import RocketPyError
from rocketpy.proto.message_queue import MessageQueue

T = TypeVar("T")


class Answers(list[T]):
    """Results of the servers that answered.

    Attributes:
        failures: why each other server did not answer, by its name.
        has_more: whether a limit left results out, or may have.

    Args:
        results: of the servers that answered.
        failures: of the others.
    """

    def __init__(
        self,
        results: Iterable[T] = (),
        failures: Mapping[str, RocketPyError] | None = None,
        *,
        has_more: bool = False,
    ) -> None:
        super().__init__(results)
        self.failures: dict[str, RocketPyError] = dict(failures or {})
        self.has_more: bool = has_more


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """Status of a broker of a cluster.

    Attributes:
        broker_id: 0 is the master.
        version: of its software; empty if it does not answer.
        in_tps: messages stored per second, over the last ten seconds.
        out_tps: messages delivered per second, over the last ten seconds.
        stored_today: messages since local midnight.
        delivered_today: messages since local midnight.
        disk_ratio: share of the log's file system that is used, 0 to 1; below 0 when unknown.
        error: why it did not answer, or an empty string.
        runtime: all other values that it reports, as text by Apache's names.
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
class ReplicaStatus:
    """Status of a broker as a replica of its broker name.

    Attributes:
        broker_id: 0 is the master.
        role: MASTER or SLAVE.
        state: SERVING for a master; a slave's state, STREAMING if it follows its master; empty if
            it does not answer.
        reason: why a slave follows no master, or an empty string.
        end: end of its log in bytes; below 0 when unknown.
        lag_bytes: bytes that it is behind the master; below 0 when unknown.
        in_sync: whether the master counts it as in sync.
        copies_in_sync: number of copies in sync, of a master; its own included.
        copies_needed: number of copies that a send to a master waits for, its own included; 0 when
            unknown, as of a broker of Apache.
        send_refusal: why a master refuses sends, or an empty string.
        error: why it did not answer, or an empty string.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    role: str
    state: str = ""
    reason: str = ""
    end: int = -1
    lag_bytes: int = -1
    in_sync: bool = False
    copies_in_sync: int = 0
    copies_needed: int = 0
    send_refusal: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReplica:
    """Replica of a broker group.

    Attributes:
        broker_id: id that the controller has given; without one, 0 is the master.
        role: MASTER or SLAVE.
        is_alive: whether the controller hears it; without one, whether it answers.
        is_member: whether it is in the sync-state set; without one, whether it is in sync.
        state: see `ReplicaStatus`.
        lag_bytes: bytes that it is behind the master; below 0 when unknown.
        reason: why it follows no master, refuses sends or does not answer, or an empty string.
    """

    broker_id: int
    address: str
    role: str
    is_alive: bool
    is_member: bool
    state: str = ""
    lag_bytes: int = -1
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """Status of a broker group: the replicas of one broker name.

    Attributes:
        master: address of the master; empty without one.
        epoch: number of its election; 0 without a controller.
        set_epoch: number of the sync-state set; 0 without a controller.
        min_in_sync: smallest sync-state set with which sends are accepted.
        lease_ms: time left to the master with `allAckInSyncStateSet=false`; otherwise None.
        controller: address of the controller that leads; empty without one.
        replicas: by broker id.
        warnings: what an operator should look at.
    """

    cluster: str
    broker: str
    master: str
    epoch: int = 0
    set_epoch: int = 0
    min_in_sync: int = 1
    lease_ms: int | None = None
    controller: str = ""
    replicas: list[GroupReplica] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """Offsets of a queue; `max_offset` is that of the next message."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored_ms: int

    @property
    def messages(self) -> int:
        """Number of messages stored."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """Offsets of a topic's queues.

    Attributes:
        in_tps: messages stored per second (5.x brokers).
        failures: why brokers whose queues are absent did not answer, by broker name.
    """

    topic: str
    queues: list[QueueStatus]
    in_tps: float
    failures: dict[str, RocketPyError] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """Number of messages stored."""
        return sum(queue.messages for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatistics:
    """Rates of a topic: per minute, per second over the last minute, and over the day."""

    topic: str
    group: str
    in_tps: float
    out_tps: float
    in_24h: int
    out_24h: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """Progress of a group in one queue.

    Attributes:
        broker_offset: of the next message to be stored.
        consumer_offset: of the next message to be consumed; below 0 when none is stored.
        last_consumed_ms: when the last consumed message was stored; 0 when unknown.
        client_id: the member that has the queue; empty if none has it, or it was not queried.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_ms: int
    client_id: str = ""

    @property
    def lag(self) -> int:
        """Number of messages not consumed yet; 0 if the group is beyond the end of the queue."""
        return max(0, self.broker_offset - max(0, self.consumer_offset))

    @property
    def is_beyond_end(self) -> bool:
        """Whether the queue ends before the group's offset, because the broker lost messages."""
        return self.consumer_offset > self.broker_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """Progress of a group.

    Attributes:
        out_tps: messages consumed per second.
        failures: why brokers whose queues are absent did not answer, by broker name.
    """

    group: str
    queues: list[QueueLag]
    out_tps: float
    failures: dict[str, RocketPyError] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """Number of messages not consumed yet, in all queues."""
        return sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """Summary of a group.

    Attributes:
        members: connected clients.
        consume_type: `CONSUME_PASSIVELY` (push), `CONSUME_ACTIVELY` (pull), `CONSUME_POP`,
            or empty without a connected member.
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
    """Connected client of a group; `broker` is the one that reported it."""

    client_id: str
    address: str
    language: str
    version: str
    broker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """Old and new offset of a group in a queue."""

    queue: MessageQueue
    from_offset: int
    to_offset: int
