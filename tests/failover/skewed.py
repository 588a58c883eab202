"""Server of RocketPy whose clocks a test sets while it runs.

    python -m tests.failover.skewed FILE broker -n 127.0.0.1:9876 ...

FILE is written by `Skew`. Timers of the event loop run at the usual rate, as the kernel's do.
"""

import mmap
import struct
import sys
import threading
import time
from pathlib import Path
from unittest import mock

from rocketpy.runtime import clock

_LAYOUT = struct.Struct("<qd")
MODULE = "tests.failover.skewed"


class Skew:
    """Clocks of one process, as a test sets them.

    Args:
        path: the file; made here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.write_bytes(_LAYOUT.pack(0, 1.0))

    def set(self, *, step_ms: int = 0, rate: float = 1.0) -> None:
        """Set the wall clock so far from the real one, and the rate of the monotonic clock."""
        with self.path.open("r+b") as file:
            file.write(_LAYOUT.pack(step_ms, rate))


class SkewedClock:
    """Clocks that run as a file says; satisfies `Clock`."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), _LAYOUT.size, access=mmap.ACCESS_READ)
        self._lock = threading.Lock()
        real_ns = time.monotonic_ns()
        self._since = real_ns, real_ns, 1.0

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC."""
        return time.time_ns() // 1_000_000 + int(_LAYOUT.unpack_from(self._shared)[0])

    def monotonic_ms(self) -> int:
        """Monotonic time, ms; continues where it was when its rate changes."""
        real_ns = time.monotonic_ns()
        rate = float(_LAYOUT.unpack_from(self._shared)[1])
        if rate != self._since[2]:
            with self._lock:
                self._since = real_ns, self._at(real_ns), rate
        return self._at(real_ns) // 1_000_000

    def _at(self, real_ns: int) -> int:
        began_ns, ours_ns, rate = self._since
        return ours_ns + round((real_ns - began_ns) * rate)


def main() -> None:
    """Run the server of the command line."""
    skewed = SkewedClock(Path(sys.argv.pop(1)))
    with mock.patch.object(clock, "SystemClock", return_value=skewed):
        # It imports the name.
        from rocketpy.cli.main import main as run  # noqa: PLC0415

        run()


if __name__ == "__main__":
    main()
