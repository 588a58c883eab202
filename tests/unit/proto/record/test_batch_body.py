"""Batches encoded from columns equal those from rows."""

import random
import struct

import pytest

from rocketpy.proto.record.batch_body import batch_body
from rocketpy.proto.record.message import BatchItem, decode_batch, encode_batch


def by_columns(items: list[BatchItem]) -> bytes:
    return batch_body(
        [item.body for item in items], [item.properties for item in items],
        [item.flag for item in items],
    )  # fmt: skip


def test_any_messages() -> None:
    rng = random.Random(4)
    for _ in range(300):
        sizes, texts = rng.choice([(3, 4), (3, 1), (1, 4), (1, 1)])
        flags = rng.choice([[0], [7], [0, -1]])
        items = [
            BatchItem(flag, rng.randbytes(rng.randrange(sizes)), b"p" * rng.randrange(texts))
            for flag in rng.choices(flags, k=rng.randrange(6))
        ]
        assert by_columns(items) == encode_batch(items)
        assert decode_batch(by_columns(items)) == items


def test_properties_that_are_too_long() -> None:
    for items in (
        [BatchItem(0, b"", b"p" * 32_768)],
        [BatchItem(0, b"", b"p" * n) for n in (1, 32_768)],
    ):
        with pytest.raises(struct.error):
            by_columns(items)
