"""A client of another language as a child process: actor.go or actor.js of tests/peer."""

import itertools
from collections.abc import Mapping
from typing import Any

from tests.interop.java_clients.jvm import LIMIT_S, wait_for
from tests.peer.lines import LineProcess


class ActorError(Exception):
    """A verb failed, in the words of the client."""


class Actor(LineProcess):
    """Process with any number of producers and consumers; see its source for the verbs.

    Args:
        command: what to run.
        language: of the client; names of producers and consumers begin with it.
        environ: its environment; the test's own when None.
        stderr: where its error output goes; the test's own when None.
    """

    def __init__(
        self,
        command: list[str],
        language: str,
        *,
        environ: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        super().__init__(command, environ=environ, stderr=stderr)
        self._language = language
        self._numbers = itertools.count(1)

    def do(self, verb: str, **options: object) -> Any:
        """Run one verb; an error raises `ActorError`. `property_x` is the property x."""
        words = [verb]
        for key, value in options.items():
            words.append(f"{key.replace('property_', 'property.')}={value}")
        found = self.ask_line("\t".join(words))
        if "error" in found:
            raise ActorError(found["error"])
        return found["result"]

    def started(self, verb: str, role: str, /, **options: object) -> str:
        """Start a producer or a consumer; returns its name."""
        name = f"{self._language}{role}{next(self._numbers)}"
        self.do(verb, name=name, **options)
        return name

    def producer(self, **options: object) -> str:
        """Start a producer; returns its name."""
        return self.started("producer", "Producer", **options)

    def push(self, group: str, topic: str, **options: object) -> str:
        """Start a push consumer from the first offset; returns its name."""
        return self.started("push", "Consumer", group=group, topic=topic, **options)

    def taken(self, name: str) -> list[dict[str, Any]]:
        """Return messages of a consumer, or checks of a producer, since the last call."""
        found: list[dict[str, Any]] = self.do("taken", name=name)
        return found

    def take(self, name: str, count: int, timeout_s: float = LIMIT_S) -> list[dict[str, Any]]:
        """Wait for exactly so many messages."""
        got: list[dict[str, Any]] = []

        def has_all() -> bool:
            got.extend(self.taken(name))
            return len(got) >= count

        wait_for(has_all, timeout_s)
        assert len(got) == count, [one["body"] for one in got]
        return got

    def stop(self, *names: str) -> None:
        """Shut producers or consumers down."""
        for name in names:
            self.do("stop", name=name)
