"""Flag bits of stored messages and of pull requests.

Message system flag, an i32 in every stored record::

    0 compressed         4 IPv6 born host     7 inner batch
    1 several tags       5 IPv6 store host    8-10 compression type
    2-3 transaction      6 needs unwrapping

Source: MessageSysFlag, PullSysFlag and CompressionType of 5.4.0.
"""

from enum import IntEnum
from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
COMPRESSION_TYPE_MASK: Final = 0x700

PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4


class CompressionType(IntEnum):
    """Codec of a compressed body, bits 8 to 10 of the system flag."""

    LEGACY_ZLIB = 0
    """Type of clients before 5.0, which use zlib."""
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_type(sys_flag: int) -> int:
    """Return the codec number in the flag; see `CompressionType`."""
    return (sys_flag & COMPRESSION_TYPE_MASK) >> 8


def with_compression(sys_flag: int, codec: CompressionType) -> int:
    """Return the flag saying that the body is compressed with `codec`."""
    return (sys_flag & ~COMPRESSION_TYPE_MASK) | COMPRESSED | (codec << 8)


def clear_compressed(sys_flag: int) -> int:
    """Return the flag without the compressed bit; the codec bits stay, as in Java."""
    return sys_flag & ~COMPRESSED
