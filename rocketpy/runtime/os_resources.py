"""Resources of the operating system: file descriptors, heap of the C library, memory, address.

Sockets and store files share the limit of file descriptors. Connections stop before it is reached,
so that the store can still open files. glibc's heap is tuned so that memory of large buffers
returns to the system.
"""

import errno
import os
import resource
import socket
from typing import Final

from rocketpy.runtime.clock import Clock

_MAX_RESERVE = 1_024
DESCRIPTOR_LIMIT_NAMES: Final = "ulimit -n, LimitNOFILE= (systemd) or ulimits.nofile (containers)"
"""Names of the setting that limits descriptors."""
THREAD_LIMIT_NAMES: Final = (
    "ulimit -v (address space), ulimit -u, TasksMax= (systemd) or pids_limit (containers)"
)
"""Names of the settings that limit threads."""
_LISTED_FOR_MS = 100
_LISTED_FOR_TAKEN = 32
_DESCRIPTORS_DIR = "/dev/fd"
_UNASSIGNED: Final = ("192.0.2.1", 9)
"""Address without a host (RFC 5737): connecting a UDP socket selects a route and sends nothing."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of this process to its hard limit; return the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # Some systems report a hard limit (infinity) that they do not grant.
        return soft
    return hard


def shortage_of(error: BaseException) -> str | None:
    """Return a sentence about an error that a limit of the process has caused; None for others."""
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        return f"no file descriptor is left: raise {DESCRIPTOR_LIMIT_NAMES}"
    if isinstance(error, ImportError) and os.strerror(errno.EMFILE) in str(error):
        return f"no file descriptor is left: raise {DESCRIPTOR_LIMIT_NAMES}"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return f"the system starts no more threads: raise {THREAD_LIMIT_NAMES}"
    return None


def has_descriptor() -> bool:
    """Return whether this process can open another file."""
    try:
        check_descriptors(1)
    except OSError:
        return False
    return True


def check_descriptors(count: int) -> None:
    """Check that this process can open a number of files more.

    An event loop that lacks descriptors halfway cannot be closed, so this is checked before.

    Raises:
        OSError: it cannot; see `shortage_of`.
    """
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for descriptor in opened:
            os.close(descriptor)


class DescriptorGauge:
    """Estimates whether the process is near its limit of descriptors.

    A quarter of the limit, at most 1,024, is the reserve. Listing open descriptors is expensive, so
    a listing is reused for a while, and later openings are added.
    """

    def __init__(self, clock: Clock) -> None:
        """Create a gauge; it reads the limit on use, because it may change."""
        self._clock = clock
        self._listed_ms: int | None = None
        self._open_count = 0
        self._taken_count = 0

    def take(self) -> bool:
        """Count a new descriptor; return whether only the reserve is left."""
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
                # No descriptor is left for the listing.
                self._listed_ms = None
                return True
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return self._open_count + self._taken_count > limit - min(limit // 4, _MAX_RESERVE)


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

BIG_BLOCK_BYTES: Final = 1 << 20
"""Freed blocks of this size and more return to the system immediately."""

_TRIM_BYTES: Final = 16 << 20
"""Free memory at the end of the heap that is kept for small blocks."""


def set_mmap_threshold() -> bool:
    """Allocate large blocks (frames, responses) outside the heap; return whether it is supported.

    glibc's dynamic threshold would move them into the heap after a few. One small block behind them
    would then keep hundreds of MiB allocated after a burst.
    """
    import ctypes  # noqa: PLC0415 - takes 2 ms, which servers save at start

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, BIG_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    )


def total_memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def local_ip() -> str:
    """Return this machine's address on its default route; 127.0.0.1 without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_UNASSIGNED)
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
    return address
