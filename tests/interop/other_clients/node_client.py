"""A JavaScript client that speaks the remoting protocol: tests/peer/node/actor.js with ali-ons."""

import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.java_clients.jvm import LIMIT_S, wait_for
from tests.peer.lines import LineProcess

SOURCE = Path(__file__).parents[2] / "peer" / "node"
_names = itertools.count(1)


def install(directory: Path) -> Path:
    """Install the client beside a copy of the program; returns the program."""
    if shutil.which("npm") is None:
        pytest.skip("needs Node.js with npm")
    source = directory / "source"
    shutil.copytree(SOURCE, source)
    installed = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if installed.returncode and "network" in installed.stderr:
        pytest.skip("needs the npm registry")
    assert installed.returncode == 0, installed.stderr
    return source / "actor.js"


class NodeError(Exception):
    """A verb failed, in the words of the JavaScript client."""


class NodeClient(LineProcess):
    """One process with any number of producers and consumers; see actor.js for the verbs."""

    def __init__(self, program: Path, namesrv: str) -> None:
        # What it says of routes that change beside its tests is of no use in a report.
        super().__init__(["node", str(program), namesrv], stderr=subprocess.DEVNULL)

    def do(self, verb: str, **options: object) -> Any:
        """One verb; an error raises `NodeError`. `property_x` is the property x."""
        words = [verb]
        for key, value in options.items():
            words.append(f"{key.replace('property_', 'property.')}={value}")
        found = self.ask_line("\t".join(words))
        if "error" in found:
            raise NodeError(found["error"])
        return found["result"]

    def producer(self, **options: object) -> str:
        """Start a producer; returns its name."""
        name = f"nodeProducer{next(_names)}"
        self.do("producer", name=name, **options)
        return name

    def send(self, name: str, topic: str, body: str, **options: object) -> list[str]:
        """Send to a topic that exists; every message must be stored. Returns the ids."""
        sent = self.do("send", name=name, topic=topic, body=body, **options)
        assert {one["status"] for one in sent} == {"SEND_OK"}
        return [one["msgId"] for one in sent]

    def push(self, group: str, topic: str, **options: object) -> str:
        """Start a push consumer from the first offset; returns its name."""
        name = f"nodeConsumer{next(_names)}"
        self.do("push", name=name, group=group, topic=topic, **options)
        return name

    def take(self, name: str, count: int, timeout_s: float = LIMIT_S) -> list[dict[str, Any]]:
        """Wait for exactly so many messages."""
        got: list[dict[str, Any]] = []

        def has_all() -> bool:
            got.extend(self.do("taken", name=name))
            return len(got) >= count

        wait_for(has_all, timeout_s)
        assert len(got) == count, [one["body"] for one in got]
        return got

    def stop(self, *names: str) -> None:
        """Close producers or consumers."""
        for name in names:
            self.do("stop", name=name)
