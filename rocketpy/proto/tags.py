"""Java's string hash, which tag filters, the index file and ordered sending rest on.

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

# 31**0, 31**1, ... reduced to 32 bits; sums of products stay exact Python integers.
_POWERS: Final[tuple[int, ...]] = tuple(pow(31, n, 1 << 32) for n in range(256))
_DESCENDING: Final[tuple[int, ...]] = _POWERS[::-1]
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
    """Return what a consume queue stores for a message's tag: its hash, 0 without a tag."""
    if not tag:
        return 0
    code = _tags_codes.get(tag)
    if code is None:
        if len(_tags_codes) >= _CACHE_LIMIT:
            _tags_codes.clear()
        code = _tags_codes[tag] = java_string_hash(tag)
    return code


class IndexKeyHasher:
    """Hashes index keys, remembering what client ids have in common.

    The index stores `abs(hash("topic#key"))`. Each message's unique id is such a
    key: 32 or more characters of which only the last few change from one message to
    the next. So the hash is put together from remembered parts: the last 4 characters
    and, of the topic last asked for, all that is before them; where that is new, all
    but the last 8 characters and two chunks of 4. Every memory is bounded, and is
    emptied when full.

    Not synchronised: give each thread its own, or call it under one lock. (Concurrent use
    would still return right values; only the bound could be overshot.)
    """

    __slots__ = ("_chunks", "_heads", "_prefixes", "_topics")

    def __init__(self) -> None:
        self._heads: tuple[str, dict[str, int]] = ("", {})
        self._topics: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._chunks: dict[str, int] = {}

    def hash(self, topic: str, key: str) -> int:
        """Return the index hash of `topic#key`, from 0 to 2**31 - 1."""
        head_topic, heads = self._heads
        if head_topic == topic:
            try:
                value = (heads[key[:-4]] + self._chunks[key[-4:]]) & _MASK
            except KeyError:
                value = self._put_together(topic, key)
        else:
            value = self._put_together(topic, key)
        # Math.abs of the smallest int is itself; Java then takes 0, as the bits below its sign are.
        return value if value < _SIGN else -value & _MAX_HASH

    def hash_run(self, topic: str, keys: Sequence[str]) -> list[int]:
        """Return the hashes of several keys of one topic; see `hash`.

        The ids of a batch differ in their last 4 characters, as a rule.
        """
        head_topic, heads = self._heads
        head = keys[0][:-4]
        lows = [key[-4:] for key in keys]
        if head_topic != topic or head not in heads or {key[:-4] for key in keys} != {head}:
            return [self.hash(topic, key) for key in keys]
        before, chunks = heads[head], self._chunks
        try:
            values = [(before + chunks[low]) & _MASK for low in lows]
        except KeyError:
            return [self.hash(topic, key) for key in keys]
        return [value if value < _SIGN else -value & _MAX_HASH for value in values]

    def _put_together(self, topic: str, key: str) -> int:
        """Return the unsigned hash of a key of which some part is new, and remember its parts."""
        head_topic, heads = self._heads
        topic_hash = self._topics.get(topic)
        if topic_hash is None:
            topic_hash = self._remember(self._topics, topic, _hash_unsigned(topic + "#"))
        length = len(key)
        if length < 5 or length >= 256 or not key.isascii():
            value = self._hash_plain(topic_hash, key)
        else:
            prefix = key[:-8]
            prefix_hash = self._prefixes.get(prefix)
            if prefix_hash is None:
                prefix_hash = self._remember(self._prefixes, prefix, _hash_unsigned(prefix))
            chunk = key[-8:-4]
            high = self._chunks.get(chunk)
            if high is None:
                high = self._remember(self._chunks, chunk, _hash_unsigned(chunk))
            chunk = key[-4:]
            low = self._chunks.get(chunk)
            if low is None:
                low = self._remember(self._chunks, chunk, _hash_unsigned(chunk))
            before = topic_hash * _POWERS[length] + prefix_hash * _POWER_8 + high * _POWER_4
            value = (before + low) & _MASK
            if head_topic != topic:
                self._heads = (topic, {key[:-4]: before & _MASK})
            else:
                self._remember(heads, key[:-4], before & _MASK)
        return value

    @staticmethod
    def _hash_plain(topic_hash: int, key: str) -> int:
        units = len(key) if key.isascii() else len(key.encode("utf-16-le", "surrogatepass")) // 2
        return (topic_hash * pow(31, units, 1 << 32) + _hash_unsigned(key)) & _MASK

    @staticmethod
    def _remember(cache: dict[str, int], text: str, value: int) -> int:
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        cache[text] = value
        return value
