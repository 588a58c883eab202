"""What one capability adds to a broker: a delay, a timer, transactions, retries, pop.

A capability is built by one function that is handed only what it needs, and says in one value
what the broker has to do with it. So the broker knows no capability by name but in the list that
builds them (`rocketpy.broker.parts`).

What a compiled path that writes runs of messages at once asks of features, and does for them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.send.put_transforms import PutTransform
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.connection.channel import ChannelListener
from rocketpy.runtime.service import Service


class BulkParticipant(Protocol):
    """Takes part in halves and commits; see `BulkTransactions`."""

    @property
    def takes_halves(self) -> bool:
        """Whether half messages are stored at the moment."""
        ...

    @property
    def op_room_bytes(self) -> int:
        """How many bytes of names of halves may be added; 0 or less: no commit is taken."""
        ...

    def claim(self, places: Sequence[int], /) -> int:
        """Claim halves for their commits, in their order; return how many are this run's."""
        ...

    def committed(self, places: Sequence[int], /) -> None:
        """Have halves written down as decided; what they commit is stored."""
        ...

    def release(self, places: Sequence[int], /) -> None:
        """Open halves again whose messages were not stored."""
        ...

    def count(self, topic: str, number: int, /) -> None:
        """Count transactions of a topic that began, less those that ended."""
        ...


class DueMessageWriter(Protocol):
    """Stores runs of messages that waited: `rocketpy.broker.fast_path.compiled_path`."""

    def deliver(
        self,
        topic_of: Callable[[str], TopicConfig | None],
        part: tuple[memoryview, int, int],
        entries: list[tuple[int, int, int]],
        queue_offset: int,
        /,
    ) -> tuple[int, int]:
        """Store messages of a delay level where they belong, leading ones that are as usual.

        Args:
            topic_of: returns the settings of a topic; None when there is no such topic.
            part: see `rocketpy.store.read.message_reader.MessageReader.recent_part`.
            entries: those of the level's queue that are due: physical offset, size, any number.
            queue_offset: of the first of them.

        Returns:
            How many are stored, and the physical offset after them.
        """
        ...


class PersistedState(Protocol):
    """State that is read when the broker starts and written when it stops."""

    def load(self) -> None:
        """Read it; the store is open, no request is served yet.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    def persist(self) -> None:
        """Write it; the services have stopped, the store is still open.

        Raises:
            StoreError: it cannot be written.
        """
        ...


def _nothing_held() -> None:
    """Let go of nothing: loading opened no file that stays open."""


def _no_requests(_table: RequestTable) -> None:
    """Add nothing: the capability has no requests of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One capability of a broker.

    Attributes:
        name: for logs.
        put_transforms: what it does with messages on their way to the store, in order.
        stored_elsewhere: topics that its transforms give messages, with who is told of the topic of
            each that a sender stored there.
        services: background work that may read and write files; one thread each.
        loop_services: background work in short steps on the loop of the connections: what owns
            something of theirs, or does little at a time that a thread would have to wait for.
        states: what is loaded before the first request and persisted after the last.
        release: lets go of what `states` hold open, when a start failed and nothing is persisted.
        arrivals: topics of the system, each with who is told which queue of it got a message:
            on the thread that stored it, so it may note that, or wake a service, and no more.
        listeners: told of connections that come and go.
        add_requests: registers its requests.
        configure: told of changed settings.
        runtime_info: what it adds to the broker's runtime information (28).
        runs: its part in runs of sends that the compiled path writes, of transactions only.
        use_runs: gets what stores messages that are due at once, if there is that.
    """

    name: str
    put_transforms: tuple[PutTransform, ...] = ()
    stored_elsewhere: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    services: tuple[Service, ...] = ()
    loop_services: tuple[Service, ...] = ()
    states: tuple[PersistedState, ...] = ()
    release: Callable[[], None] = _nothing_held
    arrivals: Mapping[str, Callable[[int], None]] = field(default_factory=dict)
    listeners: tuple[ChannelListener, ...] = ()
    add_requests: Callable[[RequestTable], None] = _no_requests
    configure: Callable[[BrokerConfig], None] | None = None
    runtime_info: Callable[[], dict[str, str]] | None = None
    runs: BulkParticipant | None = None
    use_runs: Callable[[DueMessageWriter], None] | None = None
