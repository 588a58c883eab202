"""Progress bars of several parallel jobs, for demos, benchmarks and long tests.

On a terminal the bars are redrawn in place; elsewhere one line is printed every few seconds.
"""

import sys
import time
from collections.abc import Mapping
from typing import TextIO

_WIDTH = 30
_REDRAW_S = 0.1
_LINE_S = 5.0


class ProgressBars:
    """Progress bars, one per job; `update(name=done)` moves them.

    Args:
        totals: expected count by name; None while it is unknown.
        stream: output, standard error by default.

    Example:
        >>> bars = ProgressBars({"sent": 10})
        >>> bars.update(sent=10)
        >>> bars.close()
    """

    def __init__(self, totals: Mapping[str, int | None], stream: TextIO | None = None) -> None:
        self._totals = dict(totals)
        self._done = dict.fromkeys(totals, 0)
        self._stream = stream if stream is not None else sys.stderr
        self._in_place = self._stream.isatty()
        self._started = time.monotonic()
        self._drawn_at = 0.0
        self._lines = 0

    def set_total(self, name: str, total: int) -> None:
        """Set the expected count of a job."""
        self._totals[name] = total

    def update(self, **done: int) -> None:
        """Set the counts of jobs by name; draws at most ten times a second."""
        self._done.update(done)
        now = time.monotonic()
        if now - self._drawn_at >= (_REDRAW_S if self._in_place else _LINE_S):
            self._drawn_at = now
            self._draw()

    def close(self) -> None:
        """Draw the last state."""
        self._draw()

    def _draw(self) -> None:
        if self._in_place:
            back = f"\x1b[{self._lines}F" if self._lines else ""
            self._stream.write(back + "".join(f"\x1b[2K{self._bar(name)}\n" for name in self._done))
            self._lines = len(self._done)
        else:
            elapsed_s = time.monotonic() - self._started
            counts = "  ".join(f"{name} {self._count(name)}" for name in self._done)
            self._stream.write(f"[{elapsed_s:5.0f} s] {counts}\n")
        self._stream.flush()

    def _count(self, name: str) -> str:
        total = self._totals[name]
        return f"{self._done[name]:,}" + (f" of {total:,}" if total else "")

    def _bar(self, name: str) -> str:
        total, done = self._totals[name], self._done[name]
        filled = min(_WIDTH, done * _WIDTH // total) if total else 0
        elapsed_s = max(1e-9, time.monotonic() - self._started)
        bar = "#" * filled + "." * (_WIDTH - filled)
        return f"{name:>12} [{bar}] {self._count(name)}  {done / elapsed_s:,.0f}/s"
