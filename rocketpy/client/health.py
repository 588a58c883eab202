"""Health reports of clients, producers and consumers, for probes and for people."""

from dataclasses import dataclass, field

from rocketpy.proto.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """State of one queue of a consumer.

    Attributes:
        offset: what would be committed now.
        lag: messages on the broker not yet finished, as of the last pull.
        cached: messages pulled and not finished.
        last_pull_ms: when the last pull was sent (wall clock), 0 before the first.
        failure: why the last pull failed, empty when it did not.
    """

    offset: int
    lag: int
    cached: int
    last_pull_ms: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """A consumer: its queues, and what fails.

    Attributes:
        group: its group.
        queues: what it reads.
        failures: why it is not `ok`, by what fails: background jobs, queues, missing topics.
    """

    group: str
    queues: dict[MessageQueue, QueueHealth]
    failures: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{_verdict(self.group, self.failures)}, lag {self.lag} in {len(self.queues)} queues"

    @property
    def ok(self) -> bool:
        """Whether nothing fails."""
        return not self.failures

    @property
    def lag(self) -> int:
        """Messages this member has still to finish."""
        return sum(queue.lag for queue in self.queues.values())


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """A client: its name server, its consumers, and what fails in the background."""

    client_id: str
    name_server: str | None
    failures: dict[str, str]
    consumers: dict[str, ConsumerHealth]

    def __str__(self) -> str:
        """Say in a line what `repr` shows with every queue."""
        of_client = f"client {self.client_id} at {self.name_server or 'no name server'}"
        parts = [_verdict(of_client, self.failures), *map(str, self.consumers.values())]
        return "; ".join(parts)

    @property
    def ok(self) -> bool:
        """Whether nothing fails, the consumers included."""
        return not self.failures and all(entry.ok for entry in self.consumers.values())


def _verdict(name: str, failures: dict[str, str]) -> str:
    if not failures:
        return f"{name}: ok"
    return f"{name}: not ok ({', '.join(f'{what}: {why}' for what, why in failures.items())})"
