"""The official Java client's load driver: one virtual machine that drives every side."""

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.processes import PEER

__all__ = ["Driver", "Drivers"]

_SPARE_S: Final = 90.0
"""What a load may take beyond its own time: starting clients, first pulls, waiting for the last."""


class Driver:
    """A running driver; it has compiled for one side what it has compiled for the other.

    Args:
        java_options: for its virtual machine.
    """

    def __init__(self, *java_options: str) -> None:
        self._process = subprocess.Popen(
            ["bash", str(PEER), "driver", *java_options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._unread = b""

    def run(self, words: Sequence[str], seconds: float) -> dict[str, Any]:
        """Run one load and return what it reports.

        Args:
            words: class and arguments.
            seconds: how long it is meant to last.

        Raises:
            RuntimeError: the driver reports an error or has ended.
            TimeoutError: it takes much longer than it is meant to; the driver is ended then.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        end_s = time.monotonic() + seconds + _SPARE_S
        try:
            line = self._line(end_s)
            while not line.startswith(b"{"):  # libraries print lines, too
                line = self._line(end_s)
        except (TimeoutError, RuntimeError):
            self.close()  # a late answer must not be taken for the next load's
            raise
        report: dict[str, Any] = json.loads(line)
        if "error" in report:
            raise RuntimeError(f"{' '.join(words)}: {report['error']}")
        return report

    @property
    def is_running(self) -> bool:
        """Whether it can be given another load."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, end_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                raise TimeoutError("the driver does not answer")
            data = os.read(descriptor, 1 << 16)
            if not data:
                raise RuntimeError("the driver has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


class Drivers:
    """Drivers by the options of their virtual machines, each started when it is first needed."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, ...], Driver] = {}

    def get(self, *java_options: str) -> Driver:
        """Return the driver with these options."""
        running = self._running.get(java_options)
        if running is None or not running.is_running:
            self._running[java_options] = Driver(*java_options)
        return self._running[java_options]

    def close(self) -> None:
        """End all of them."""
        for driver in self._running.values():
            driver.close()
        self._running.clear()
