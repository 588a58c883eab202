"""Prefetch of items on another thread."""

import threading
import weakref
from collections.abc import Iterator

import pytest

from rocketpy.spark.prefetch import AHEAD, ahead


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_ahead_yields_all_items_in_order(count: int) -> None:
    assert list(ahead(iter(range(count)))) == list(range(count))


def test_ahead_raises_after_the_previous_items() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    seen: list[int] = []
    with pytest.raises(ValueError, match="no more"):  # noqa: PT012 - the items before count
        for item in ahead(failing()):
            seen.append(item)  # noqa: PERF402
    assert seen == [1]


def test_ahead_closed_early_ends_its_thread() -> None:
    made: list[int | str] = []

    def counted() -> Iterator[int]:
        try:
            for number in range(1000):
                made.append(number)
                yield number
        finally:
            made.append("closed")

    items = ahead(counted())
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]

    assert made.pop() == "closed"
    assert len(made) <= 2 + AHEAD + 1
    assert not [each for each in threading.enumerate() if "rocketpy-decode" in each.name]


def test_ahead_releases_consumed_items() -> None:
    """A batch is megabytes, and a worker's memory is limited: consumed ones must be freed."""
    alive: weakref.WeakSet[threading.Event] = weakref.WeakSet()
    most = 0

    def made() -> Iterator[threading.Event]:
        nonlocal most
        for _ in range(50):
            each = threading.Event()
            alive.add(each)
            most = max(most, len(alive))
            yield each
            del each

    for each in ahead(made()):
        del each
    assert most <= AHEAD + 2
    assert not alive
