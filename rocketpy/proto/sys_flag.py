"""Flag bits of stored messages and of pull requests.

Message system flag, an i32 in every stored record::

    0 COMPRESSED        4 BORN_HOST_V6      7 INNER_BATCH
    1 MULTI_TAGS        5 STORE_HOST_V6     8-10 compression type
    2-3 transaction     6 NEED_UNWRAP

Source: MessageSysFlag, PullSysFlag and CompressionType of 5.4.0.
"""

from enum import IntEnum
from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_TYPE_MASK: Final = 0x700

PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10


class CompressionType(IntEnum):
    """The codec of a compressed body, bits 8 to 10 of the system flag."""

    LEGACY_ZLIB = 0
    """Clients before 5.0 set no type; it is zlib."""
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_type(sys_flag: int) -> int:
    """Return the codec number in the flag; see ``CompressionType``."""
    return (sys_flag & COMPRESSION_TYPE_MASK) >> 8


def with_compression(sys_flag: int, codec: CompressionType) -> int:
    """Return the flag saying that the body is compressed with ``codec``."""
    return (sys_flag & ~COMPRESSION_TYPE_MASK) | COMPRESSED | (codec << 8)


def clear_compressed(sys_flag: int) -> int:
    """Return the flag without the compressed bit; the codec bits stay, as in Java."""
    return sys_flag & ~COMPRESSED


def transaction_type(sys_flag: int) -> int:
    """Return one of the ``TRANSACTION_*`` values."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """Return the flag with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction


def pull_sys_flag(
    *,
    commit_offset: bool = False,
    suspend: bool = False,
    subscription: bool = False,
    class_filter: bool = False,
    lite_pull: bool = False,
) -> int:
    """Build the ``sysFlag`` of a pull request."""
    return (
        (PULL_COMMIT_OFFSET if commit_offset else 0)
        | (PULL_SUSPEND if suspend else 0)
        | (PULL_SUBSCRIPTION if subscription else 0)
        | (PULL_CLASS_FILTER if class_filter else 0)
        | (PULL_LITE if lite_pull else 0)
    )
