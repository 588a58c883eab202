"""Items made by another thread."""

import threading
import weakref
from collections.abc import Iterator

import pytest

from rocketpy.spark.prefetch import AHEAD, ahead


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_all_items_in_order(count: int) -> None:
    assert list(ahead(iter(range(count)))) == list(range(count))


def test_what_is_raised_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    seen: list[int] = []
    with pytest.raises(ValueError, match="no more"):  # noqa: PT012 - what came before counts
        for item in ahead(failing()):
            seen.append(item)  # noqa: PERF402
    assert seen == [1]


def test_who_leaves_early_leaves_no_thread_and_little_is_made() -> None:
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


def test_what_was_taken_is_not_kept() -> None:
    """Made, waiting and taken: a batch is megabytes, and a worker's memory has a limit."""
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
