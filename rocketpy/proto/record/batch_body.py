"""Encodes the body of a batch (320) from columns, with few calls for many messages.

Source: MessageDecoder.encodeMessages of 5.4.0.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Final

_HEAD: Final = struct.Struct(">iiiii")
_SHORT: Final = struct.Struct(">h")
_FIXED_BYTES: Final = _HEAD.size + _SHORT.size


def batch_body(bodies: Sequence[bytes], properties: Sequence[bytes], flags: Sequence[int]) -> bytes:
    """Encode columns of equal length; the result is that of `encode_batch` for their rows.

    Args:
        bodies: of the messages.
        properties: as stored.
        flags: of the applications.

    Raises:
        struct.error: properties of more than 32,767 bytes.
    """
    if not bodies:
        return b""
    size, text_size, flag = len(bodies[0]), len(properties[0]), flags[0]
    is_even = _are_all(size, map(len, bodies)) and _are_all(text_size, map(len, properties))
    if is_even and _are_all(flag, flags):
        head = _HEAD.pack(_FIXED_BYTES + size + text_size, 0, 0, flag, size)
        between = _SHORT.pack(text_size)
        rows = zip(repeat(head), bodies, repeat(between), properties, strict=False)
        return b"".join(chain.from_iterable(rows))
    parts: list[bytes] = []
    for body, text, flag in zip(bodies, properties, flags, strict=True):
        total = _FIXED_BYTES + len(body) + len(text)
        parts += (_HEAD.pack(total, 0, 0, flag, len(body)), body, _SHORT.pack(len(text)), text)
    return b"".join(parts)


def _are_all(wanted: int, found: Iterable[int]) -> bool:
    return set(found) == {wanted}
