"""What one capability adds to a broker: a delay, a timer, transactions, retries, pop.

A capability is built by one function that is handed only what it needs, and says in one value
what the broker has to do with it. So the broker knows no capability by name but in the list that
builds them (`rocketpy.broker.parts`).
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.part_in_runs import PartInRuns, StoresDue
from rocketpy.broker.operation.put_transforms import PutTransform
from rocketpy.broker.request_table import RequestTable
from rocketpy.lazy_dataclass import lazy_dataclass
from rocketpy.remoting.channel import ChannelListener
from rocketpy.runtime.service import Service


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


@lazy_dataclass(frozen=True, kw_only=True)
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
    runs: PartInRuns | None = None
    use_runs: Callable[[StoresDue], None] | None = None
