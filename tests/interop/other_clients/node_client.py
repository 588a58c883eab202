"""A JavaScript client that speaks the remoting protocol: tests/peer/node/actor.js with ali-ons."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.other_clients.actor import Actor

SOURCE = Path(__file__).parents[2] / "peer" / "node"


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


class NodeClient(Actor):
    """Process with any number of producers and consumers; see actor.js for the verbs."""

    def __init__(self, program: Path, namesrv: str) -> None:
        # What it says of routes that change beside its tests is of no use in a report.
        super().__init__(["node", str(program), namesrv], "node", stderr=subprocess.DEVNULL)

    def send(self, name: str, topic: str, body: str, **options: object) -> list[str]:
        """Send to a topic that exists; every message must be stored. Returns the ids."""
        sent = self.do("send", name=name, topic=topic, body=body, **options)
        assert {one["status"] for one in sent} == {"SEND_OK"}
        return [one["msgId"] for one in sent]
