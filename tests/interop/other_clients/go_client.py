"""The official Go client as a child process: tests/peer/go/actor.go, built from its module."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.java_clients.jvm import LIMIT_S, wait_for
from tests.peer.lines import LineProcess

SOURCE = Path(__file__).parents[2] / "peer" / "go"
_names = itertools.count(1)


def build(directory: Path) -> Path:
    """Build the program from a copy, so that nothing is written beside the sources."""
    if shutil.which("go") is None:
        pytest.skip("needs Go (make go)")
    source = directory / "source"
    shutil.copytree(SOURCE, source)
    target = directory / "actor"
    built = subprocess.run(
        ["go", "build", "-o", str(target), "."],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip("needs the Go module proxy")
    assert built.returncode == 0, built.stderr
    return target


class GoError(Exception):
    """A verb failed, in the words of the Go client."""


class GoClient(LineProcess):
    """One process with any number of producers and consumers; see actor.go for the verbs."""

    def __init__(self, program: Path, namesrv: str, home: Path) -> None:
        environ = {**os.environ, "HOME": str(home)}
        super().__init__([str(program), namesrv], environ=environ, stderr=None)

    def do(self, verb: str, **options: object) -> Any:
        """One verb; an error raises `GoError`. `property_x` is the property x."""
        words = [verb]
        for key, value in options.items():
            words.append(f"{key.replace('property_', 'property.')}={value}")
        found = self.ask_line("\t".join(words))
        if "error" in found:
            raise GoError(found["error"])
        return found["result"]

    def producer(self, **options: object) -> str:
        """Start a producer; returns its name."""
        name = f"goProducer{next(_names)}"
        self.do("producer", name=name, **options)
        return name

    def send(self, name: str, topic: str, body: str, **options: object) -> list[str]:
        """Send; every message must be stored. Returns the ids, or the answers to a request."""
        sent: list[str] = self.do("send", name=name, topic=topic, body=body, **options)
        return sent

    def push(self, group: str, topic: str, **options: object) -> str:
        """Start a push consumer from the first offset; returns its name."""
        name = f"goConsumer{next(_names)}"
        self.do("push", name=name, group=group, topic=topic, **options)
        return name

    def pull(self, group: str, topic: str, **options: object) -> str:
        """Start a pull consumer that is polled all the time; returns its name."""
        name = f"goPuller{next(_names)}"
        self.do("pull", name=name, group=group, topic=topic, **options)
        return name

    def taken(self, name: str) -> list[dict[str, Any]]:
        """What a consumer got, or a producer was asked, since the last call."""
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
