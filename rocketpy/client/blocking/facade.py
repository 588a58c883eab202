"""Blocking facades: classes that run the methods of an asynchronous object on another thread.

`facade_of` derives their methods, properties and loops from the asynchronous class, so that no
signature is written twice. Type checkers read the stubs that `make stubs` writes
(`rocketpy/sync.pyi`, `rocketpy/admin/sync.pyi`).
"""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar, get_origin

from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.callbacks.handlers import is_coroutine_function
from rocketpy.client.lifecycle import ProcessBound
from rocketpy.client.options.validation import refuse_generators
from rocketpy.errors import ClosedError

C = TypeVar("C", bound=type[Any])

_facades: Final[dict[type, Callable[[LoopThread, Any], Any] | None]] = {}
"""Blocking class of each asynchronous one; None for a type without one, so that it is found once.

Written by the decorators while modules are imported, then only with equal values by any thread.
"""


class BlockingFacade(ProcessBound):
    """Blocking form of an asynchronous object.

    Args:
        thread: runs the object's methods.
        wrapped: the asynchronous object.
    """

    _thread: LoopThread
    _wrapped: Any

    def __init__(self, thread: LoopThread, wrapped: object) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return f"<blocking {self._wrapped!r}>"

    def __enter__(self) -> Self:
        self._thread.run(self._wrapped.__aenter__())
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.run(self._wrapped.__aexit__(exc_type, exc, traceback))


class ClosableFacade(BlockingFacade):
    """Blocking form of an object that can be closed."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(lambda: self._wrapped.__aexit__(exc_type, exc, traceback))

    def close(self) -> None:
        """Finish the work in progress and close; further calls wait for the same close.

        There is nothing to close in a forked child, or after the client was closed.
        """
        self._end(self._wrapped.close)

    def _end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        thread = self._thread
        if thread.is_of_parent or not thread.is_alive:
            return
        try:
            thread.run(close())
        except ClosedError:
            # Another thread has just closed the client, and this object with it.
            if thread.is_alive:
                raise


def facade_of(
    source: type, *, direct: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[C], C]:
    """Derive the blocking class of an asynchronous one.

    The decorated class gets each public method and property of `source` that neither it nor
    `ClosableFacade` defines. Results are made blocking by `blocking`. Of a class that inherits from
    an asynchronous one, only coroutine methods are replaced.

    Args:
        source: the asynchronous class.
        direct: plain members that are safe to use on the caller's thread.
        without: members that are not for users.
    """

    def derive(cls: C) -> C:
        for name in dir(source):
            member = inspect.getattr_static(source, name)
            if name.startswith("_") or name in without or name in vars(cls):
                continue
            if hasattr(ClosableFacade, name):
                continue
            if hasattr(cls, name) and not inspect.iscoroutinefunction(member):
                continue
            derived = _derive(name, member, is_direct=name in direct)
            if derived is not None:
                setattr(cls, name, derived)
        if hasattr(source, "__aiter__"):
            cls.__iter__ = _iterate
        _facades[source] = cls
        return cls

    return derive


def _derive(name: str, member: object, *, is_direct: bool) -> Any:  # noqa: ANN401 - a member
    """Return the blocking form of a method or property, None for any other member."""
    if isinstance(member, property) and member.fget is not None:
        return property(_blocking_call(name, member.fget, is_property=True, is_direct=is_direct))
    if inspect.isfunction(member):
        return _blocking_call(name, member, is_property=False, is_direct=is_direct)
    return None


def _blocking_call(
    name: str, function: Callable[..., Any], *, is_property: bool, is_direct: bool
) -> Callable[..., Any]:
    is_coroutine = inspect.iscoroutinefunction(function) or returns_coroutine(function)

    @functools.wraps(function)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as `function`
        thread, wrapped = self._thread, self._wrapped
        if "handler" in kwargs:
            kwargs["handler"] = blocking_handler(thread, kwargs["handler"])
        if is_coroutine:
            # Called on this thread: messages of a consumer belong to the thread that asks for them.
            return blocking(thread, thread.run(getattr(wrapped, name)(*args, **kwargs)))

        def plain() -> object:
            member = getattr(wrapped, name)
            return member if is_property else member(*args, **kwargs)

        return blocking(thread, plain() if is_direct else thread.call(plain))

    return call


def returns_coroutine(function: Callable[..., Any]) -> bool:
    """Return whether a plain function is annotated to return a coroutine."""
    return get_origin(inspect.get_annotations(function).get("return")) is Coroutine


def _iterate(self: Any) -> Iterator[Any]:  # noqa: ANN401 - a facade
    return iterate(self._thread, self._thread.call(lambda: aiter(self._wrapped)))


def blocking(thread: LoopThread, value: Any) -> Any:  # noqa: ANN401 - any result
    """Return the blocking form of a result: of an object with a facade, a loop, or a list of them.

    Any other value is returned unchanged.
    """
    kind = type(value)
    try:
        make = _facades[kind]
    except KeyError:
        make = next((_facades[base] for base in kind.__mro__ if _facades.get(base)), None)
        _facades[kind] = make
    if make is not None:
        return make(thread, value)
    if kind is list:
        return [blocking(thread, each) for each in value]
    if isinstance(value, AsyncIterator):
        return iterate(thread, value)
    return value


def iterate(thread: LoopThread, items: AsyncIterator[Any]) -> Iterator[Any]:
    """Return a loop over the items of an asynchronous one, in their blocking form."""
    return (
        _Generator(thread, items) if inspect.isasyncgen(items) else BlockingIterator(thread, items)
    )


class BlockingIterator(ProcessBound):
    """Blocking form of an asynchronous iterator; several threads may share it.

    Args:
        thread: runs the iterator.
        items: the asynchronous iterator.
    """

    def __init__(self, thread: LoopThread, items: AsyncIterator[Any]) -> None:
        self._thread = thread
        self._items = items

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - a message, or a list of them
        try:
            item = self._thread.run(self._next())
        except StopAsyncIteration:
            raise StopIteration from None
        return blocking(self._thread, item)

    def _next(self) -> Coroutine[Any, Any, Any]:
        # Called on this thread: messages of a consumer belong to the thread that asks for them.
        return _await(self._items.__anext__())


class _Generator(BlockingIterator):
    """Blocking form of an asynchronous generator, which belongs to the loop that first runs it."""

    def _next(self) -> Coroutine[Any, Any, Any]:
        async def following() -> Any:  # noqa: ANN401
            return await self._items.__anext__()

        return following()


async def _await(awaitable: Awaitable[Any]) -> Any:  # noqa: ANN401
    return await awaitable


def blocking_handler(thread: LoopThread, handler: Any) -> Any:  # noqa: ANN401 - checked later
    """Return a handler, called on worker threads, that gets messages whose methods block.

    A coroutine function runs on the loop and gets the messages of the asynchronous client.
    """
    refuse_generators({"handler": handler})  # the wrapper below would hide that it is one
    if not callable(handler) or is_coroutine_function(handler):
        return handler

    @functools.wraps(handler)
    def handle(*arguments: Any) -> Any:  # noqa: ANN401 - as the handler
        return handler(*(blocking(thread, each) for each in arguments))

    return handle
