"""Keys of several messages equal the keys of each."""

import pytest

from rocketpy.proto.record.tags import IndexKeyHasher
from rocketpy.store.index.index_keys import index_keys, keys_of_run


@pytest.mark.parametrize(
    ("keys", "tags"),
    [
        ([None, None, None], [None, None, None]),
        (["order-1", "order-2", "o"], ["a", "TagB", "a"]),
        (["order-1", "order-2 order-3", "o"], ["a", "b", "a"]),
        (["order-1", None, "o"], ["a", "b", "a"]),
        (["order-1", "\u00e9", " "], [None, "b", "a"]),
        ([" ", "  ", "k"], ["b", "b", "\u00e9"]),
    ],
)
def test_keys_of_a_run(keys: list[str | None], tags: list[str | None]) -> None:
    ids = [f"7F0000010F2A3C1D4E5F00A1B2C3{n:04X}" for n in range(3)]
    hasher = IndexKeyHasher()
    found = keys_of_run(hasher, "T", ids, keys, tags)

    texts = [*map(index_keys, ids, keys, tags)]
    assert [*found.hashes] == [hasher.hash("T", text) for each in texts for text in each]
    assert [*found.numbers] == [number for number, each in enumerate(texts) for _ in each]
