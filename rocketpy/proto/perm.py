"""Permission bits of a topic and of a broker.

Source: PermName of 5.4.0.
"""

from typing import Final

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4


def is_readable(perm: int) -> bool:
    """Return whether consumers may read."""
    return perm & PERM_READ != 0


def is_writeable(perm: int) -> bool:
    """Return whether producers may write."""
    return perm & PERM_WRITE != 0


def is_inherited(perm: int) -> bool:
    """Return whether topics may be created from this one (TBW102)."""
    return perm & PERM_INHERIT != 0


def perm_to_string(perm: int) -> str:
    """Return the permission as three letters, such as `RW-`."""
    read = "R" if is_readable(perm) else "-"
    write = "W" if is_writeable(perm) else "-"
    inherit = "X" if is_inherited(perm) else "-"
    return read + write + inherit
