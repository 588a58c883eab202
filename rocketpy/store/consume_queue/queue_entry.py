"""One entry of a consume queue: where a message lies in the commit log.

::

    0                8             12             20
    | phy_offset: i64 | size: i32   | tags_code: i64 |

Two kinds of offset meet here and are never mixed: a *queue offset* counts entries, a *physical
offset* counts bytes in the commit log.

Source: ConsumeQueue.putMessagePositionInfo (5.4.0).
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

ENTRY: Final = struct.Struct(">qiq")
ENTRY_BYTES: Final = 20
BLANK_SIZE: Final = 0x7FFFFFFF
"""The size in entries that stand before the first message of a queue that begins late."""
BLANK_ENTRY: Final = ENTRY.pack(0, BLANK_SIZE, 0)
assert ENTRY.size == ENTRY_BYTES
MOST_QUEUE_OFFSET: Final = 1 << 56
"""No message has a higher place: positions in bytes, and the places of many queues together, fit
64 bits. A record that names a higher one is damaged."""

Entry = tuple[int, int, int]
"""Physical offset, size in bytes, tags code."""


@lru_cache(maxsize=256)
def _struct_of(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def columns_of(entries: memoryview) -> tuple[Sequence[int], Sequence[int]]:
    """Return the physical offset and the size of each of some whole entries.

    Unpacked in one go: a third of what it takes entry by entry.
    """
    fields: tuple[Any, ...] = _struct_of(len(entries) // ENTRY_BYTES).unpack(entries)
    return fields[::3], fields[1::3]
