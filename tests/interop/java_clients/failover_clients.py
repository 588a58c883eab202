"""JVM with producers and consumers that run while masters change, and their events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.java_clients.jvm import wait_for
from tests.peer.apache import PEER
from tests.peer.classes import SMALL, compiled
from tests.peer.lines import LineProcess

TOPIC = "orders"
GROUPS = ("concurrent", "ordered", "popped")
_SOURCES = (Path(__file__).parent / "java" / "FailOver.java", PEER.parent / "src" / "Lines.java")


@dataclass(frozen=True)
class Delivery:
    """Delivery of a message to a consumer group."""

    body: str
    at_ms: int
    queue_id: int
    offset: int
    born_ms: int

    @property
    def kind(self) -> str:
        """First part of the body, as in FailOver.java."""
        return self.body.split("-")[0]


@dataclass
class Events:
    """Events of producers and consumers.

    Attributes:
        attempted: bodies of all sends.
        sent: time of the answer in ms by body, for sends with SEND_OK.
        failed: time in ms and error of each other send.
        deliveries: of each group, in their order.
    """

    attempted: set[str] = field(default_factory=set)
    sent: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[int, str]] = field(default_factory=list)
    deliveries: dict[str, list[Delivery]] = field(
        default_factory=lambda: {group: [] for group in GROUPS}
    )

    def add(self, kind: str, body: str, at_ms: int, *rest: object) -> None:
        """Add an event as FailOver.java reports it."""
        match kind, *rest:
            case "sent", "SEND_OK":
                self.attempted.add(body)
                self.sent[body] = at_ms
            case "sent" | "failed", str(error):
                self.attempted.add(body)
                self.failed.append((at_ms, error))
            case _, int(queue_id), int(offset), int(born_ms):
                found = Delivery(body, at_ms, queue_id, offset, born_ms)
                self.deliveries[kind].append(found)
            case _:
                raise AssertionError((kind, body, at_ms, *rest))

    def missing(self, group: str) -> set[str]:
        """Return the bodies that a group must still receive."""
        wanted = {body for body in self.sent if "rollback" not in body}
        return wanted - {one.body for one in self.deliveries[group]}


class FailoverClients(LineProcess):
    """JVM with FailOver.java.

    Args:
        namesrv: address of the name server.
        home: where the client keeps files.
        poll_ms: interval of the clients' route requests and heartbeats; Java's default is 30 s.
        consumers: push consumers in each group.

    Attributes:
        seen: all events.
    """

    def __init__(self, namesrv: str, home: Path, *, poll_ms: int, consumers: int) -> None:
        flags = [f"-Duser.home={home}", "-Drocketmq.client.logUseSlf4j=false"]
        words = [namesrv, TOPIC, str(poll_ms), str(consumers)]
        path = compiled("failover", _SOURCES)
        super().__init__(["java", *SMALL, *flags, "-cp", path, "FailOver", *words])
        self.seen = Events()

    @contextmanager
    def running(self) -> Iterator["FailoverClients"]:
        """End the JVM in any case."""
        try:
            yield self
        finally:
            self.close()

    def wait_for(self, condition: Callable[[Events], bool]) -> None:
        """Wait until it holds for the events."""

        def holds() -> bool:
            for event in self.ask_line("events"):
                self.seen.add(*event)
            return condition(self.seen)

        wait_for(holds)

    def more(self, count: int) -> None:
        """Wait until so many more messages are acknowledged, and as many received by each group."""
        seen = self.seen
        sent = len(seen.sent) + count
        received = {name: len(each) + count for name, each in seen.deliveries.items()}

        def has_more(seen: Events) -> bool:
            return len(seen.sent) >= sent and all(
                len(each) >= received[name] for name, each in seen.deliveries.items()
            )

        self.wait_for(has_more)
