"""Index keys of messages and their hashes.

Source: IndexService.buildIndex (5.4.0).
"""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias, cast

from rocketpy.proto.record.tags import IndexKeyHasher

_ThreeColumns: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[str]]


class KeysOfRun(NamedTuple):
    """Hashed keys of several messages.

    Attributes:
        hashes: hashes of all keys, in the order of the messages.
        numbers: for each hash the number of its message.
    """

    hashes: Sequence[int]
    numbers: Sequence[int]


def index_keys(uniq_key: str | None, keys: str | None, tags: str | None) -> list[str]:
    """Return the keys of a message: its id, its keys, its tag."""
    found = [] if uniq_key is None else [uniq_key]
    if keys:
        found += [key for key in keys.split(" ") if key]
    if tags:
        found.append("T#" + tags)
    return found


def keys_of_run(
    hasher: IndexKeyHasher,
    topic: str,
    uniq_keys: Sequence[str | None],
    keys: Sequence[str | None],
    tags: Sequence[str | None],
) -> KeysOfRun:
    """Return the hashed keys of messages of one topic; see `index_keys`."""
    if not any(keys) and not any(tags) and None not in uniq_keys:
        hashes = hasher.hash_run(topic, cast("Sequence[str]", uniq_keys))
        return KeysOfRun(hashes, range(len(uniq_keys)))
    if all(keys) and all(tags) and None not in uniq_keys:
        found = _hashes_of_three(hasher, topic, *cast("_ThreeColumns", (uniq_keys, keys, tags)))
        if found is not None:
            return found
    texts = [*map(index_keys, uniq_keys, keys, tags)]
    numbers = chain.from_iterable(repeat(number, len(each)) for number, each in enumerate(texts))
    return KeysOfRun([hasher.hash(topic, text) for each in texts for text in each], [*numbers])


def _hashes_of_three(
    hasher: IndexKeyHasher,
    topic: str,
    uniq_keys: Sequence[str],
    keys: Sequence[str],
    tags: Sequence[str],
) -> KeysOfRun | None:
    """Return the hashes of messages with an id, one key and a tag each; None for others."""
    if any(" " in key for key in keys):
        return None
    of_tags = {tag: hasher.hash(topic, "T#" + tag) for tag in set(tags)}
    columns = zip(
        hasher.hash_run(topic, uniq_keys),
        hasher.hash_run(topic, keys),
        map(of_tags.__getitem__, tags),
        strict=True,
    )
    numbers = chain.from_iterable(zip(*repeat(range(len(tags)), 3), strict=True))
    return KeysOfRun([*chain.from_iterable(columns)], [*numbers])
