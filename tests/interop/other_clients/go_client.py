"""The official Go client as a child process: tests/peer/go/actor.go, built from its module."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.other_clients.actor import Actor

SOURCE = Path(__file__).parents[2] / "peer" / "go"


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


class GoClient(Actor):
    """Process with any number of producers and consumers; see actor.go for the verbs."""

    def __init__(self, program: Path, namesrv: str, home: Path) -> None:
        environ = {**os.environ, "HOME": str(home)}
        super().__init__([str(program), namesrv], "go", environ=environ)

    def send(self, name: str, topic: str, body: str, **options: object) -> list[str]:
        """Send; every message must be stored. Returns the ids, or the answers to a request."""
        sent: list[str] = self.do("send", name=name, topic=topic, body=body, **options)
        return sent

    def pull(self, group: str, topic: str, **options: object) -> str:
        """Start a pull consumer that is polled all the time; returns its name."""
        return self.started("pull", "Puller", group=group, topic=topic, **options)
