"""A child process that answers each line with a line of JSON: Java's and Go's clients and tools."""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_END_LIMIT_S = 60.0


def escaped(words: Iterable[object]) -> str:
    """Return words as one line with tabs between them, as tests/peer/src/Lines.java reads it."""
    return "\t".join(
        str(word).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for word in words
    )


class LineProcess:
    """Child process that exchanges lines; it ends when its input is closed.

    Args:
        command: what to run.
        environ: its environment; the test's own when None.
        stderr: where its error output goes; the test's own when None.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        stderr: int | None = subprocess.DEVNULL,
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environ,
            text=True,
            bufsize=1,
        )

    def ask_line(self, line: str) -> Any:
        """Send one line, and return what its answer says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        response = self._process.stdout.readline()
        assert response, f"the child ended at {line!r}"
        return json.loads(response)

    def close(self) -> None:
        """End the child by closing its input, or kill it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_LIMIT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            self._process.stdout.close()
