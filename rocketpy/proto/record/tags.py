"""Java's string hash, for tag filters, the index file and ordered sends.

Source: java.lang.String.hashCode; MessageExtBrokerInner.tagsString2tagsCode and
IndexFile.indexKeyHashMethod of 5.4.0.
"""

from collections.abc import Sequence
from operator import mul
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_MAX_HASH: Final = 0x7FFFFFFF
_CACHE_LIMIT: Final = 65_536
_HEADS_LIMIT: Final = 1_024
"""Most cached prefixes: each client uses a new one each millisecond."""
_SHORTEST: Final = 5
"""Characters at the end of a key that are hashed from cached parts."""
_MAX_PAIR: Final = 127 * 31 + 127
"""Largest hash of two ASCII characters."""

# 31**0, 31**1, ... reduced to 32 bits; sums of products stay exact Python integers.
_POWERS: Final[tuple[int, ...]] = tuple(pow(31, n, 1 << 32) for n in range(256))
_DESCENDING: Final[tuple[int, ...]] = _POWERS[::-1]
_POWER_2: Final = _POWERS[2]
_POWER_4: Final = _POWERS[4]
_POWER_8: Final = _POWERS[8]


def _hash_unsigned(text: str) -> int:
    """Return the hash of `text` as an unsigned 32-bit number."""
    if text.isascii():
        units: bytes | memoryview = text.encode("ascii")
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    length = len(units)
    if length <= 256:
        return int(sum(map(mul, units, _DESCENDING[256 - length :]))) & _MASK
    value = 0
    for start in range(0, length, 256):
        block = units[start : start + 256]
        size = len(block)
        value *= pow(31, size, 1 << 32)
        value += sum(map(mul, block, _DESCENDING[256 - size :]))
        value &= _MASK
    return value


def java_string_hash(text: str) -> int:
    """Return `String.hashCode()` of `text`: over UTF-16 units, as a signed 32-bit number."""
    value = _hash_unsigned(text)
    return value - (1 << 32) if value & _SIGN else value


_tags_codes: dict[str, int] = {}


def tags_code(tag: str | None) -> int:
    """Return the tags code of a consume queue entry: the tag's hash, 0 without a tag."""
    if not tag:
        return 0
    code = _tags_codes.get(tag)
    if code is None:
        if len(_tags_codes) >= _CACHE_LIMIT:
            _tags_codes.clear()
        code = _tags_codes[tag] = java_string_hash(tag)
    return code


class IndexKeyHasher:
    """Hasher of index keys that caches the common parts of unique ids.

    The index stores `abs(hash("topic#key"))`. Each message's unique id is such a key: 32 or more
    characters, of which the last four count messages and those before them milliseconds. So the
    hash is combined from cached parts: the prefix before the last four characters, for the last
    topic, and two pairs of characters. For a new prefix, it uses the prefix before the last eight
    characters and four pairs. All ids use the same 256 pairs. Every cache is bounded, and cleared
    when full.

    Not synchronised: use one for each thread, or a lock. (Concurrent use would still return correct
    values; only the bounds could be exceeded.)
    """

    __slots__ = ("_heads", "_high_pairs", "_low_pairs", "_prefixes", "_topics")

    def __init__(self) -> None:
        self._heads: tuple[str, dict[str, int]] = ("", {})
        self._topics: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        # ASCII only: other keys are hashed from the beginning.
        self._low_pairs: dict[str, int] = {}
        self._high_pairs: dict[str, int] = {}

    def hash(self, topic: str, key: str) -> int:
        """Return the index hash of `topic#key`, from 0 to 2**31 - 1."""
        head_topic, heads = self._heads
        if head_topic == topic:
            try:
                value = (
                    heads[key[:-4]] + self._high_pairs[key[-4:-2]] + self._low_pairs[key[-2:]]
                ) & _MASK
            except KeyError:
                value = self._put_together(topic, key)
        else:
            value = self._put_together(topic, key)
        # Math.abs of the smallest int is itself; Java then uses its bits below the sign, 0.
        return value if value < _SIGN else -value & _MAX_HASH

    def hash_run(self, topic: str, keys: Sequence[str]) -> list[int]:
        """Return the hashes of several keys of one topic; see `hash`.

        Ids of a batch usually differ in their last two or three characters.
        """
        samples = {key[:-2]: key for key in keys}
        if 4 * len(samples) > len(keys):
            return [self.hash(topic, key) for key in keys]
        for key in samples.values():
            self.hash(topic, key)  # its prefix is cached from here on, unless it is not ASCII
        head_topic, heads = self._heads
        if head_topic != topic:
            return [self.hash(topic, key) for key in keys]
        high, low = self._high_pairs, self._low_pairs
        try:
            befores = {head: heads[head[:-2]] + high[head[-2:]] for head in samples}
            if len(befores) == 1:
                before = befores.popitem()[1] & _MASK
                # As in `hash`, with one decision for all keys.
                if before < _SIGN - _MAX_PAIR:
                    return [before + low[key[-2:]] for key in keys]
                if _SIGN < before < _MASK - _MAX_PAIR:
                    negated = _MASK + 1 - before
                    return [negated - low[key[-2:]] for key in keys]
                sums = [before + low[key[-2:]] for key in keys]
            else:
                sums = [befores[key[:-2]] + low[key[-2:]] for key in keys]
        except KeyError:
            return [self.hash(topic, key) for key in keys]
        return [value if (value := each & _MASK) < _SIGN else -value & _MAX_HASH for each in sums]

    def _put_together(self, topic: str, key: str) -> int:
        """Return the unsigned hash of a key with uncached parts, and cache these."""
        head_topic, heads = self._heads
        topic_hash = self._topics.get(topic)
        if topic_hash is None:
            topic_hash = self._remember(self._topics, topic, _hash_unsigned(topic + "#"))
        length = len(key)
        if length < _SHORTEST or length >= 256 or not key.isascii():
            return self._hash_plain(topic_hash, key)
        prefix = key[:-8]
        prefix_hash = self._prefixes.get(prefix)
        if prefix_hash is None:
            prefix_hash = self._remember(self._prefixes, prefix, _hash_unsigned(prefix))
        above = self._four(key[-8:-6], key[-6:-4])
        before = (topic_hash * _POWERS[length] + prefix_hash * _POWER_8 + above * _POWER_4) & _MASK
        if head_topic != topic:
            self._heads = (topic, {key[:-4]: before})
        else:
            self._remember(heads, key[:-4], before, _HEADS_LIMIT)
        return (before + self._four(key[-4:-2], key[-2:])) & _MASK

    def _four(self, high: str, low: str) -> int:
        """Return the hash of two pairs of ASCII characters, and cache them."""
        if high not in self._high_pairs:
            self._remember(self._high_pairs, high, _hash_unsigned(high) * _POWER_2)
        if low not in self._low_pairs:
            self._remember(self._low_pairs, low, _hash_unsigned(low))
        return self._high_pairs[high] + self._low_pairs[low]

    @staticmethod
    def _hash_plain(topic_hash: int, key: str) -> int:
        units = len(key) if key.isascii() else len(key.encode("utf-16-le", "surrogatepass")) // 2
        return (topic_hash * pow(31, units, 1 << 32) + _hash_unsigned(key)) & _MASK

    @staticmethod
    def _remember(cache: dict[str, int], text: str, value: int, limit: int | None = None) -> int:
        if len(cache) >= (limit or _CACHE_LIMIT):
            cache.clear()
        cache[text] = value
        return value
