"""`facade_of` derives a blocking class: methods, properties, loops and results."""

import inspect
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

import pytest

from rocketpy.client.blocking.facade import ClosableFacade, blocking_handler, facade_of
from rocketpy.client.blocking.loop_thread import NAME, LoopThread
from rocketpy.errors import ConfigError


class AsyncPart:
    """Result of another object, with a facade."""

    async def value(self) -> int:
        return 7


class AsyncThing:
    """Object with each kind of member."""

    def __init__(self) -> None:
        self.is_open = False
        self.threads: list[str] = []

    async def __aenter__(self) -> Self:
        self.is_open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close."""
        self.is_open = False

    async def __aiter__(self) -> AsyncIterator[AsyncPart]:
        yield AsyncPart()
        yield AsyncPart()

    async def add(self, left: int, *, right: int = 1) -> int:
        """Add numbers."""
        self.threads.append(threading.current_thread().name)
        return left + right

    def parts(self, count: int) -> list[AsyncPart]:
        """Return parts."""
        self.threads.append(threading.current_thread().name)
        return [AsyncPart() for _ in range(count)]

    @property
    def thread(self) -> str:
        """Name of the thread that reads it."""
        return threading.current_thread().name

    @property
    def direct(self) -> str:
        """Name of the thread that reads it."""
        return threading.current_thread().name

    async def numbers(self) -> AsyncIterator[int]:
        for number in range(3):
            yield number

    def call(self, *, handler: Any) -> Any:
        return handler(AsyncPart())

    def internal(self) -> None:
        """Not for users."""


@facade_of(AsyncPart)
class Part(ClosableFacade):
    """Blocking part."""


@facade_of(AsyncThing, direct=("direct",), without=("internal",))
class Thing(ClosableFacade):
    """Blocking thing."""


@pytest.fixture
def thing() -> Iterator[Any]:
    thread = LoopThread()
    yield Thing(thread, AsyncThing())
    thread.close()


def test_facade_methods_run_on_the_loop_thread_and_return_results(thing: Any) -> None:
    assert thing.add(2, right=3) == 5
    assert [part.value() for part in thing.parts(2)] == [7, 7]
    assert thing._wrapped.threads == [NAME, NAME]


def test_facade_properties_are_read_on_the_loop_thread_unless_direct(thing: Any) -> None:
    assert thing.thread == NAME
    assert thing.direct == threading.current_thread().name


def test_facade_loops_yield_blocking_items(thing: Any) -> None:
    assert [part.value() for part in thing] == [7, 7]
    assert list(thing.numbers()) == [0, 1, 2]


def test_facade_block_enters_and_closes_the_object(thing: Any) -> None:
    with thing as entered:
        assert entered is thing
        assert thing._wrapped.is_open
    assert not thing._wrapped.is_open


def test_facade_members_have_signature_and_docstring_of_the_async_ones() -> None:
    derived: Any = Thing
    assert inspect.signature(derived.add) == inspect.signature(AsyncThing.add)
    assert (derived.add.__doc__, derived.thread.__doc__) == (
        AsyncThing.add.__doc__,
        AsyncThing.thread.__doc__,
    )
    assert not hasattr(derived, "internal")


def test_facade_handlers_get_blocking_objects(thing: Any) -> None:
    assert isinstance(thing.call(handler=lambda part: part), Part)


def test_blocking_handler_leaves_coroutine_functions_and_refuses_generators() -> None:
    thread = LoopThread()

    async def coroutine(_part: object) -> None:
        """Runs on the loop."""

    def generator(part: object) -> Iterator[object]:
        yield part

    assert blocking_handler(thread, coroutine) is coroutine
    with pytest.raises(ConfigError):
        blocking_handler(thread, generator)
    thread.close()


def test_closing_after_the_thread_has_ended_does_nothing() -> None:
    thread = LoopThread()
    thing = Thing(thread, AsyncThing())
    with thing:
        thread.close()
    for _ in range(2):
        thing.close()


def test_facades_and_their_thread_cannot_be_pickled() -> None:
    thread = LoopThread()
    try:
        for part in (thread, Thing(thread, AsyncThing())):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                pickle.dumps(part)
    finally:
        thread.close()
