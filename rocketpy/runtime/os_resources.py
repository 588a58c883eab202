"""File descriptors: as many as the system allows, and how many are left.

Sockets and store files share them. Whoever takes many (a server's connections) stops before the
last ones are gone, so that those who must have one (the store) still get it.

How the C library's heap gives memory back, for daemons.

What this machine has.
"""

import os
import resource
from typing import Final

from rocketpy.runtime.clock import Clock

_MAX_RESERVE = 1_024
_LISTED_FOR_MS = 100
_LISTED_FOR_TAKEN = 32
_DESCRIPTORS_DIR = "/dev/fd"


def raise_descriptor_limit() -> int:
    """Raise the soft limit of this process to its hard limit; return what is now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # Some systems name a hard limit (infinity) that they do not grant.
        return soft
    return hard


class DescriptorGauge:
    """Tells when the process comes near its limit of descriptors.

    A quarter of the limit, at most 1,024, is the reserve. Listing what is open costs time, so a
    listing serves for a while and counts on with what has been taken since.
    """

    def __init__(self, clock: Clock) -> None:
        """Set up; the limit is read when asked, it may change."""
        self._clock = clock
        self._listed_ms: int | None = None
        self._open_count = 0
        self._taken_count = 0

    def take(self) -> bool:
        """Count one more descriptor; return whether only the reserve is left."""
        now_ms = self._clock.monotonic_ms()
        self._taken_count += 1
        if (
            self._listed_ms is None
            or now_ms - self._listed_ms >= _LISTED_FOR_MS
            or self._taken_count >= _LISTED_FOR_TAKEN
        ):
            self._listed_ms = now_ms
            self._taken_count = 0
            try:
                self._open_count = len(os.listdir(_DESCRIPTORS_DIR))  # noqa: PTH208 - only counted
            except OSError:
                # Not even one is left to look with.
                self._listed_ms = None
                return True
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return self._open_count + self._taken_count > limit - min(limit // 4, _MAX_RESERVE)


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

BIG_BLOCK_BYTES: Final = 1 << 20
"""Blocks from this size on are given back to the system as soon as they are freed."""

_TRIM_BYTES: Final = 16 << 20
"""Free memory at the end of the heap that is kept for the next small blocks."""


def set_mmap_threshold() -> bool:
    """Let big blocks (frames, responses) live apart from the heap; return whether it is possible.

    By itself glibc puts them into the heap once it has seen a few: one small block behind them then
    keeps hundreds of MiB from the system after a burst is over.
    """
    import ctypes  # noqa: PLC0415 - 2 ms, and servers are ready before that

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, BIG_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    )


def total_memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
