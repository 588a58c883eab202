"""The official Java tools and clients as child processes that are spoken to line by line."""

import json
import subprocess
from pathlib import Path
from typing import Any

PEER = Path(__file__).resolve().parents[2] / "peer" / "peer.sh"


def _line(words: tuple[object, ...]) -> str:
    escaped = (
        str(word).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for word in words
    )
    return "\t".join(escaped) + "\n"


class JavaLines:
    """A child that responses every line with one line of JSON."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [str(PEER), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def ask(self, *words: object) -> dict[str, Any]:
        """Send one line and wait for its response."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(_line(words))
        self._process.stdin.flush()
        response = self._process.stdout.readline()
        assert response, f"the child ended at {words}"
        found: dict[str, Any] = json.loads(response)
        return found

    def close(self) -> None:
        """End the child by closing its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._process.stdout.close()


class Mqadmin(JavaLines):
    """The official mqadmin."""

    def __init__(self, namesrv: str) -> None:
        super().__init__("admins", namesrv)

    def run(self, *words: object) -> str:
        """Run one command; returns what it printed (both streams)."""
        response = self.ask(*words)
        return str(response["out"]) + str(response["err"])


class Actor(JavaLines):
    """Producers and consumers of the official Java client."""

    def __init__(self, namesrv: str) -> None:
        super().__init__("actor", namesrv)

    def do(self, *words: object) -> dict[str, Any]:
        """Run one verb; an error fails the test."""
        response = self.ask(*words)
        assert "error" not in response, (words, response)
        return response
