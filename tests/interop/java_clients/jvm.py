"""The official Java client as a child process: 5.4.0 or 4.9.8, JSON or binary headers."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.peer.apache import PEER
from tests.peer.classes import SMALL, compiled
from tests.peer.lines import LineProcess, escaped

SOURCES = (Path(__file__).parent / "java" / "Interop.java", PEER.parent / "src" / "Lines.java")
LIMIT_S = 100.0
"""For what a client does in its own time: some look for routes and members once in 30 s."""

_REBALANCE = "-Drocketmq.client.rebalance.waitInterval"

_names = itertools.count(1)


class JavaError(Exception):
    """A verb failed; `code` is the response code the client saw."""

    def __init__(self, response: dict[str, Any]) -> None:
        super().__init__(f"{response['error']}: {response['text']}")
        self.name = str(response["error"])
        self.code = int(response["code"])


class JavaClient(LineProcess):
    """JVM with any number of producers and consumers; see Interop.java for the verbs.

    Args:
        version: of the client: 5.4.0 or 4.9.8.
        namesrv: addresses of the name servers.
        home: where the client keeps files.
        binary: headers in RocketMQ's binary form instead of JSON.
        tls: whether to connect with TLS.
        rebalance_ms: how often consumers share queues out; None for the client's own 20 s.
    """

    def __init__(
        self,
        version: str,
        namesrv: str,
        home: Path,
        *,
        binary: bool = False,
        tls: bool = False,
        rebalance_ms: int | None = 1_000,
    ) -> None:
        self.version = version
        self.offset_dir = home / "offsets"
        self.binary = binary
        flags = [
            f"-Duser.home={home}",
            f"-Drocketmq.client.localOffsetStoreDir={self.offset_dir}",
            "-Drocketmq.client.logUseSlf4j=false",
            f"-Drocketmq.serialize.type={'ROCKETMQ' if binary else 'JSON'}",
            f"-Dtls.enable={str(tls).lower()}",
            *([f"{_REBALANCE}={rebalance_ms}"] if rebalance_ms else []),
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
        ]
        path = compiled("interop", SOURCES, version)
        super().__init__(["java", *SMALL, *flags, "-cp", path, "Interop", namesrv])

    def do(self, verb: str, **options: object) -> dict[str, Any]:
        """Run one verb; an error raises `JavaError`. `user_x` is the user property x."""
        words = [verb]
        for key, value in options.items():
            name = "user." + key.removeprefix("user_") if key.startswith("user_") else key
            words.append(f"{name}={value}")
        found: dict[str, Any] = self.ask_line(escaped(words))
        if "error" in found:
            raise JavaError(found)
        return found

    def producer(self, **options: object) -> str:
        """Start a producer; returns its name."""
        name = f"producer{next(_names)}"
        self.do("producer", name=name, **options)
        return name

    def send(self, name: str, topic: str, **options: object) -> list[dict[str, Any]]:
        """Send; every message must be stored. Returns the results."""
        response = self.do("send", name=name, topic=topic, **options)
        assert response["errors"] == [], response
        sent: list[dict[str, Any]] = response["sent"]
        assert {one.get("status", "SEND_OK") for one in sent} == {"SEND_OK"}
        return sent

    def refused(self, name: str, topic: str, **options: object) -> dict[str, Any]:
        """Send one message that must fail; returns the error."""
        response = self.do("send", name=name, topic=topic, **options)
        assert response["sent"] == [], response
        (error,) = response["errors"]
        found: dict[str, Any] = error
        return found

    def push(self, group: str, topic: str, **options: object) -> str:
        """Start a push consumer, under a name that another had when `name` is given; returns it."""
        name = str(options.pop("name", "")) or f"consumer{next(_names)}"
        self.do("push", name=name, group=group, topic=topic, **options)
        return name

    def received(self, name: str) -> list[dict[str, Any]]:
        """Return the messages of a push consumer since the last call."""
        found: list[dict[str, Any]] = self.do("received", name=name)["messages"]
        return found

    def receive(
        self, name: str, count: int, timeout_s: float = LIMIT_S, *, only: str = ""
    ) -> list[dict[str, Any]]:
        """Wait for exactly so many messages; `only` skips bodies that begin otherwise."""
        got: list[dict[str, Any]] = []

        def has_all() -> bool:
            got.extend(one for one in self.received(name) if (one["body"] or "").startswith(only))
            return len(got) >= count

        wait_for(has_all, timeout_s)
        assert len(got) == count, [one["body"] for one in got]
        return got

    def owned(self, name: str) -> list[int]:
        """Queue ids that a push consumer owns, retry topics left out."""
        queues = self.do("owned", name=name)["queues"]
        return [one["queueId"] for one in queues if not one["topic"].startswith("%")]

    def poll(self, name: str, count: int, timeout_s: float = LIMIT_S) -> list[dict[str, Any]]:
        """Poll a lite pull consumer until it gave so many messages."""
        got: list[dict[str, Any]] = []

        def has_all() -> bool:
            got.extend(self.do("poll", name=name, wait=500)["messages"])
            return len(got) >= count

        wait_for(has_all, timeout_s)
        return got

    def stop(self, name: str) -> None:
        """Shut a producer or consumer down."""
        assert self.do("stop", name=name)["ok"]


def wait_for(condition: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    """The bodies, sorted."""
    return sorted(one["body"] for one in messages)
