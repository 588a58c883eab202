"""Long work in steps: a generator that pauses every few milliseconds, so that others get a turn."""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Work that pauses at each `yield`, and returns something in the end."""


def run_to_end(steps: Steps[_T]) -> _T:
    """Do all steps without a pause and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


async def in_turns(steps: Steps[_T]) -> _T:
    """Do a step in each turn of the running loop and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        await asyncio.sleep(0)


def some_at_a_time(items: Iterable[_T], count: int) -> Iterator[list[_T]]:
    """Yield the items in lists of at most so many."""
    rest = iter(items)
    while some := list(islice(rest, count)):
        yield some
