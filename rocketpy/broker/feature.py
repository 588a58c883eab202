"""Interface of features: the parts that delay levels, timer, transactions and pop add to a broker.

Each feature is built by one function, which gets only what it depends on, and returns one `Feature`
that tells the broker how to run it. The broker knows features by name only in the list that builds
them (`rocketpy.broker.parts`).

The protocols below connect features with the compiled path that stores messages in bulk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.send.put_transforms import PutTransform
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.connection.channel import ChannelListener
from rocketpy.runtime.service import Service
from rocketpy.store.timer.checkpoint import TimerMarks

ArrivalListener: TypeAlias = Callable[[str, int, int, int], None]
"""Called with topic, queue id, next queue offset and tags code of a new message."""


class BulkParticipant(Protocol):
    """Bulk handling of half messages and commits; see `BulkTransactions`."""

    @property
    def takes_halves(self) -> bool:
        """Whether half messages are accepted at the moment."""
        ...

    @property
    def op_room_bytes(self) -> int:
        """Free space of the next op message in bytes; 0 or less: commits are not accepted."""
        ...

    def claim(self, places: Sequence[int], /) -> int:
        """Claim half messages for their commits, in order; returns the number of claimed ones."""
        ...

    def committed(self, places: Sequence[int], /) -> None:
        """Record half messages as decided; their commits are stored."""
        ...

    def release(self, places: Sequence[int], /) -> None:
        """Release half messages with commits that were not stored."""
        ...

    def count(self, topic: str, number: int, /) -> None:
        """Add a number of open transactions of a topic; negative when they end."""
        ...


class DueMessageWriter(Protocol):
    """Stores due messages in bulk: `rocketpy.broker.fast_path.compiled_path`."""

    def deliver(
        self,
        topic_of: Callable[[str], TopicConfig | None],
        part: tuple[memoryview, int, int],
        entries: list[tuple[int, int, int]],
        queue_offset: int,
        /,
    ) -> tuple[int, int]:
        """Store the leading fast-path eligible messages of a delay level in their topics.

        Args:
            topic_of: returns the settings of a topic; None for a deleted topic.
            part: see `rocketpy.store.read.message_reader.MessageReader.recent_part`.
            entries: queue entries of due messages: physical offset, size, any number.
            queue_offset: queue offset of the first entry.

        Returns:
            The number of stored messages, and the physical offset after them.
        """
        ...


class PersistedState(Protocol):
    """State that is loaded when the broker starts, and written when it stops."""

    def load(self) -> None:
        """Load the state; the store is open, and no request is served yet.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    def persist(self) -> None:
        """Write the state; the services have stopped, and the store is still open.

        Raises:
            StoreError: it cannot be written.
        """
        ...


def _nothing_held() -> None:
    """Release nothing: loading opened no file."""


def _nothing_pending() -> None:
    """Store nothing: all that another master needs is stored."""


def _no_requests(_table: RequestTable) -> None:
    """Register nothing: the feature has no requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowMaster:
    """Functions that take the progress of another broker.

    At a slave it is the master's: what the master stored before it is in this log when they are
    called. At a master that returns it is that of a slave that acted.

    Attributes:
        delays: takes the offsets of the delay levels.
        timer: takes the checkpoint of the timer.
        unrevived: takes the time from which on a slave did not process check points of pops.
        offsets: called at a returning master with each change of its offsets by a slave's.
    """

    delays: Callable[[Mapping[int, int]], None] | None = None
    timer: Callable[[TimerMarks], None] | None = None
    unrevived: Callable[[int], None] | None = None
    offsets: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Feature of a broker: a capability beyond sending and pulling.

    Attributes:
        name: name for logs.
        put_transforms: change messages before they are stored, in this order.
        stored_elsewhere: topics that the transforms redirect messages to, each with a function that
            is called with the original topic of a message that a client stored there.
        services: background services that may block; one thread each.
        loop_services: background services in short steps, on the loop of the connections: those
            that share state with connections, or do too little to compete for the interpreter.
        states: loaded before the first request, and persisted after the last.
        follow_master: takes progress of the master, at a slave.
        masters_only: those of the services and states that store messages, or depend on that; a
            slave does not run them.
        acting: services that a slave runs while it acts as master.
        release: closes the files that `states` opened, when a start failed.
        arrivals: listeners of system topics by topic, called with the queue of each message, on the
            thread that stored it; they may wake a service, and no more.
        listeners: listeners of connections that are opened and closed.
        hand_over: stores what only memory has and another master needs; called before a planned
            change of masters.
        add_requests: registers the requests.
        configure: called with changed settings.
        runtime_info: returns additions to the runtime information (28).
        runs: bulk handling of half messages and commits; only transactions have it.
        use_runs: receives the bulk writer of due messages, if there is one.
    """

    name: str
    put_transforms: tuple[PutTransform, ...] = ()
    stored_elsewhere: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    services: tuple[Service, ...] = ()
    loop_services: tuple[Service, ...] = ()
    states: tuple[PersistedState, ...] = ()
    follow_master: FollowMaster | None = None
    masters_only: tuple[object, ...] = ()
    acting: tuple[Service, ...] = ()
    release: Callable[[], None] = _nothing_held
    arrivals: Mapping[str, Callable[[int], None]] = field(default_factory=dict)
    listeners: tuple[ChannelListener, ...] = ()
    hand_over: Callable[[], None] = _nothing_pending
    add_requests: Callable[[RequestTable], None] = _no_requests
    configure: Callable[[BrokerConfig], None] | None = None
    runtime_info: Callable[[], dict[str, str]] | None = None
    runs: BulkParticipant | None = None
    use_runs: Callable[[DueMessageWriter], None] | None = None

    def gated(self, gate: Callable[[Service], Service]) -> "Feature":
        """Return the feature with a gate around the services that store due messages."""
        chosen = {id(each) for each in self.acting}
        return replace(
            self,
            services=tuple(gate(each) if id(each) in chosen else each for each in self.services),
            loop_services=tuple(
                gate(each) if id(each) in chosen else each for each in self.loop_services
            ),
        )

    def of_slave(self, gate: Callable[[Service], Service] | None = None) -> "Feature":
        """Return the feature as a slave runs it.

        Args:
            gate: limits the services of an acting master; None: they are left out.
        """
        left_out = {id(each) for each in self.masters_only}
        return replace(
            self,
            services=(
                *(each for each in self.services if id(each) not in left_out),
                *(() if gate is None else map(gate, self.acting)),
            ),
            loop_services=tuple(each for each in self.loop_services if id(each) not in left_out),
            states=tuple(each for each in self.states if id(each) not in left_out),
        )


def arrival_listener(
    features: Iterable[Feature],
    pulls: ArrivalListener,
    notice: Callable[[str], None] | None = None,
) -> ArrivalListener:
    """Return the listener of the store, which notifies features of their topics, and pulls.

    It is called for each stored message, so it costs no more than a dictionary lookup.

    Args:
        features: features with `Feature.arrivals`.
        pulls: called for all messages.
        notice: called with the topics of all messages, at a slave.
    """
    listeners = {topic: each for one in features for topic, each in one.arrivals.items()}

    def on_arrival(topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        # The feature first: if the other listener raises, the feature's service is still woken.
        if topic in listeners:
            listeners[topic](queue_id)
        pulls(topic, queue_id, next_offset, tags_code)

    if notice is None:
        return on_arrival

    def on_arrival_at_slave(topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        notice(topic)
        on_arrival(topic, queue_id, next_offset, tags_code)

    return on_arrival_at_slave
