"""The official Java tools and clients as child processes that are spoken to line by line."""

import os
from typing import Any

from tests.peer.apache import JVM, PEER
from tests.peer.lines import LineProcess, escaped


class JavaLines(LineProcess):
    """A verb of peer.sh that answers every line with one line of JSON."""

    def __init__(self, *words: str) -> None:
        # Consumers share queues out every second; Apache's default is 20 s.
        options = f"{JVM} -Drocketmq.client.rebalance.waitInterval=1000"
        environ = {**os.environ, "JAVA_TOOL_OPTIONS": options}
        super().__init__([str(PEER), *words], environ=environ)

    def ask(self, *words: object) -> dict[str, Any]:
        """Send one line; return its answer."""
        found: dict[str, Any] = self.ask_line(escaped(words))
        return found


class Mqadmin(JavaLines):
    """The official mqadmin."""

    def __init__(self, namesrv: str) -> None:
        super().__init__("admins", namesrv)

    def run(self, *words: object) -> str:
        """Run one command; returns what it printed (both streams)."""
        response = self.ask(*words)
        return str(response["out"]) + str(response["err"])


class Actor(JavaLines):
    """Producers and consumers of the official Java client, 5.4.0 or 4.9.8."""

    def __init__(self, namesrv: str, *, is_old: bool = False) -> None:
        super().__init__(*(["client498", "Actor"] if is_old else ["actor"]), namesrv)

    def do(self, *words: object) -> dict[str, Any]:
        """Run one verb; an error fails the test."""
        response = self.ask(*words)
        assert "error" not in response, (words, response)
        return response
