"""A cluster in use, and how to read what mqadmin prints."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.interop.java_clients.jvm import LIMIT_S
from tests.interop.mqadmin.cluster import LocalCluster
from tests.interop.mqadmin.jvm import Actor, Mqadmin

T = TypeVar("T")


@dataclass
class World:
    """A cluster of ours with a topic, sent messages, and a Java producer and consumer."""

    cluster: LocalCluster
    mqadmin: Mqadmin
    actor: Actor
    topic: str = "AdmT"
    group: str = "admG"
    producer: str = "admP"
    sent: list[dict[str, Any]] = field(default_factory=list)
    client_id: str = ""

    def run(self, *words: object) -> str:
        """Run an mqadmin command against this cluster."""
        return self.mqadmin.run(*words)

    def send(
        self, topic: str, count: int, tag: str = "tag", key: str = "key"
    ) -> list[dict[str, Any]]:
        """Send messages named body-0, body-1, ..."""
        response = self.actor.do("send", self.producer, topic, count, "body", tag, key)
        sent: list[dict[str, Any]] = response["sent"]
        assert all(one["status"] == "SEND_OK" for one in sent)
        return sent

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic with mqadmin and wait until the name server knows it."""
        broker = self.cluster.broker
        out = self.run("updateTopic", "-b", broker, "-t", topic, "-r", queues, "-w", queues)
        assert "success" in out, out
        wait_for(lambda: '"queueDatas"' in self.run("topicRoute", "-t", topic))

    def receive(self, group: str, count: int, timeout_s: float = LIMIT_S) -> list[dict[str, Any]]:
        """Wait for `count` messages of a consumer."""
        got: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_s
        while len(got) < count and time.monotonic() < deadline:
            got += self.actor.do("received", group)["received"]
            time.sleep(0.2)
        assert len(got) == count, got
        return got


def wait_for(condition: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.3)


def settled(look: Callable[[], T]) -> T:
    """Return the result of `look` when totals are stable; they are updated every second."""
    before = look()
    while True:
        time.sleep(2)
        if (now := look()) == before:
            return now
        before = now


def rows(text: str) -> list[list[str]]:
    """The columns of every line of a table, headings and blank lines left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line.split() for line in lines]
