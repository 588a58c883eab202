"""Verified ranges are few for a queue, and kept for a bounded number of queues."""

from types import SimpleNamespace
from typing import cast

import pytest

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.read.selection import VerifiedRanges


def queue() -> ConsumeQueue:
    return cast("ConsumeQueue", SimpleNamespace(life=object()))


@pytest.mark.parametrize(
    ("added", "known"),
    [
        ([], set()),
        ([(3, 5)], {3, 4}),
        ([(3, 5), (5, 9)], {3, 4, 5, 6, 7, 8}),
        ([(3, 5), (4, 6), (1, 3)], {1, 2, 3, 4, 5}),
        ([(3, 9), (4, 6)], {3, 4, 5, 6, 7, 8}),
        ([(3, 5), (6, 8)], {3, 4, 6, 7}),
        ([(0, 3), (5, 8), (3, 5)], set(range(8))),  # asked ahead, and then the rest of a pull
        ([(0, 3), (5, 8), (2, 6)], set(range(8))),
        ([(0, 4), (5, 6), (8, 11)], {0, 1, 2, 3, 8, 9, 10}),  # one too many
    ],
)
def test_ranges_that_touch_become_one(added: list[tuple[int, int]], known: set[int]) -> None:
    proven, wanted = VerifiedRanges(max_ranges=2), queue()
    for start, end in added:
        proven.add(wanted, start, end)
    assert {each for each in range(12) if proven.covers(wanted, each, each + 1)} == known
    for start in range(12):
        for end in range(start + 1, 12):
            assert proven.covers(wanted, start, end) == (set(range(start, end)) <= known)
            assert (end <= proven.end_behind(wanted, start)) == (set(range(start, end)) <= known)


def test_queues_have_nothing_in_common_and_only_so_many_are_remembered() -> None:
    proven = VerifiedRanges(max_queues=2)
    first, second, third = queue(), queue(), queue()
    proven.add(first, 0, 9)
    proven.add(second, 20, 29)
    assert not proven.covers(second, 0, 9)
    proven.add(first, 9, 10)
    proven.add(third, 0, 9)
    assert proven.covers(first, 0, 10)
    assert not proven.covers(second, 20, 29)
    assert proven.covers(third, 0, 9)
