"""Bit positions of a consumer group in a Bloom filter, as Apache computes and stores them.

Source: BloomFilter.java, BloomFilterData.java (5.4.0); MurmurHash3 (x64, 128 bits) of Guava.
"""

import math
from typing import Final, NamedTuple

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK_BYTES: Final = 16


class BloomFilterData(NamedTuple):
    """Positions of a group's bits.

    Attributes:
        bit_count: bits of the filter.
        positions: of the group's bits.
    """

    bit_count: int
    positions: tuple[int, ...]


class BloomFilter:
    """Size of a filter, from its error rate and the number of groups.

    Args:
        error_percent: rate of false positives, 1 to 99.
        groups: number of groups that share it.

    Attributes:
        bit_count: bits, a multiple of 8.
        hash_count: bits of each group.
    """

    def __init__(self, error_percent: int, groups: int) -> None:
        error = error_percent / 100.0
        self.hash_count: int = math.ceil(math.log(error) / math.log(0.5))
        bits = math.ceil(groups * (math.log(1 / error) / math.log(2)) * (1 / math.log(2)))
        self.bit_count: int = 8 * math.ceil(bits / 8.0)

    def data_of(self, group: str, topic: str) -> BloomFilterData:
        """Return the positions of the bits for a group and topic."""
        return BloomFilterData(self.bit_count, self.positions_of(f"{group}#{topic}"))

    def positions_of(self, text: str) -> tuple[int, ...]:
        """Return the positions of a text's bits."""
        hashed = murmur3_low(text.encode())
        low, high = _signed(hashed), _signed(hashed >> 32)
        combined = (_signed(low + i * high) for i in range(1, self.hash_count + 1))
        return tuple((one if one >= 0 else ~one) % self.bit_count for one in combined)


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def murmur3_low(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3_x64_128 with seed 0."""
    one = two = 0
    whole = len(data) - len(data) % _BLOCK_BYTES
    for at in range(0, whole, _BLOCK_BYTES):
        one ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        one = (_rotated(one, 27) + two) * 5 + 0x52DCE729 & _MASK
        two ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        two = (_rotated(two, 31) + one) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    one ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    two ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    one ^= len(data)
    two ^= len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    return _finished(one) + _finished(two) & _MASK


def _mixed(block: int, first: int, shift: int, second: int) -> int:
    return _rotated(block * first & _MASK, shift) * second & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _MASK


def _finished(number: int) -> int:
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
