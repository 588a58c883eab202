"""The blocking face of an object: its methods run on a thread that has the event loop."""

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from rocketpy.client.blocking.loop_thread import LoopThread


class Closable(Protocol):
    """What a face is of."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    async def close(self) -> None:
        """Finish what is in hand and close."""
        ...


A_co = TypeVar("A_co", bound=Closable, covariant=True)
A = TypeVar("A", bound=Closable)
P = ParamSpec("P")
T = TypeVar("T")


class BlockingFacade(Generic[A_co]):
    """The blocking face of an object.

    Args:
        thread: where its methods run.
        wrapped: the object.
    """

    def __init__(self, thread: LoopThread, wrapped: A_co) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __repr__(self) -> str:
        """Say what the object says, and that this one blocks."""
        return f"<blocking {self._wrapped!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._thread.is_of_parent:
            self._thread.run(self._wrapped.__aexit__(exc_type, exc, traceback))

    def close(self) -> None:
        """Finish what is in hand and close; every call waits for the one close.

        In a forked child there is nothing to close.
        """
        if not self._thread.is_of_parent:
            self._thread.run(self._wrapped.close())


def awaited(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingFacade[Any], P], T]:
    """Return a method that runs a coroutine method of the wrapped object on the loop's thread."""

    @functools.wraps(method)
    def call(self: BlockingFacade[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        of_wrapped = getattr(self._wrapped, method.__name__)
        result: T = self._thread.run(of_wrapped(*args, **kwargs))
        return result

    return call


def called(
    method: Callable[Concatenate[A, P], T],
) -> Callable[Concatenate[BlockingFacade[A], P], T]:
    """Return a method that calls a plain method of the wrapped object on the loop's thread."""

    @functools.wraps(method)
    def call(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        of_wrapped = getattr(self._wrapped, method.__name__)
        result: T = self._thread.call(lambda: of_wrapped(*args, **kwargs))
        return result

    return call
