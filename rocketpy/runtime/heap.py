"""How the C library's heap gives memory back, for daemons."""

from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

BIG_BLOCK_BYTES: Final = 1 << 20
"""Blocks from this size on are given back to the system as soon as they are freed."""

_TRIM_BYTES: Final = 16 << 20
"""Free memory at the end of the heap that is kept for the next small blocks."""


def give_back_big_blocks() -> bool:
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
