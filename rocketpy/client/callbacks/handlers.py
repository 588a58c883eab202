"""Calls of the user's handler: coroutine or function, one message or a list, decoded or not.

A consumer that is closed inside its own handler would deadlock: the close waits for the handler.
This is detected in two ways. A coroutine function runs in the worker's task. A plain function runs
on a thread in a copy of the worker's context. A task that a handler starts has a copy of the
context too, but the handler need not wait for it: such a task may close the consumer.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from types import AsyncGeneratorType, CoroutineType, GeneratorType, coroutine
from typing import Any, Final, Protocol, TypeVar

from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.callbacks.handler_threads import HandlerThreads
from rocketpy.client.callbacks.loop_watch import HandlerWatch
from rocketpy.client.callbacks.middleware import HandleMiddleware, surrounded
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import (
    DEAD_LETTER,
    ENDS_PROGRAM,
    Rejection,
    Retry,
    ToDLQ,
    decision_of,
    ends_task,
    running_task,
    shown,
    text_of,
)
from rocketpy.errors import ClientError, RocketPyError, UnreadableBodyError

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

Handler = Callable[..., Any]
Invoke = Callable[[list[ReceivedMessage]], Coroutine[Any, Any, Any]]
ErrorHandler = Callable[[ReceivedMessage, Exception], Any]
"""Gets a message and its error; returns when the message is handled, or raises as a handler."""


class Answer(Protocol):
    """Sends the outcome of a responder's handler to the requester."""

    async def __call__(self, message: ReceivedMessage, body: Any, /) -> None:  # noqa: ANN401
        """Send what the handler returned."""
        ...

    async def fail(self, message: ReceivedMessage, error: BaseException) -> bool:
        """Send the error of a handler; return whether the requester takes errors."""
        ...

    def is_late(self, message: ReceivedMessage) -> bool:
        """Return whether the requester has given up."""
        ...


_UNDONE: Final = (CoroutineType, GeneratorType, AsyncGeneratorType)


def make_invoke(
    handler: Handler,
    *,
    batch: int,
    threads: HandlerThreads,
    on_error: ErrorHandler | None = None,
    middlewares: Sequence[HandleMiddleware] = (),
    answer: Answer | None = None,
    failed: Mapping[ReceivedMessage, BaseException] | None = None,
) -> Invoke:
    """Return what calls the handler with a list of messages.

    A plain function runs in one of `threads`, so that it cannot block the loop. With `batch` above
    1 it gets the list, else one message. A handler of two parameters gets the decoded body (or
    bodies) first; a message whose body cannot be read goes to `on_error`, or to the dead letters,
    and the handler gets the others. Middlewares see neither such a message nor `on_error`.
    With `answer`, what the handler returns for its one message is sent with it, unless it is None.
    What it raises is sent, too, and the message is done then: the requester may ask again. A
    request whose time is over is not handled. A message in `failed` has failed before its call,
    with that exception, as if the handler had raised it.
    """
    wants_body = _positional_count(handler) >= 2
    call: Invoke
    if answer is None and is_coroutine_function(handler) and not wants_body:
        call = _awaiting(handler, HandlerWatch(threads.clock, handler), is_list=batch > 1)
    else:
        call = _Call(handler, threads, is_list=batch > 1, wants_body=wants_body, answer=answer)
    if failed is not None:
        call = _unless_failed(call, failed)
    if on_error is None and not wants_body and not middlewares and answer is None:
        return call
    safe = _SafeInvoke(call, on_error, threads, middlewares, answer)
    return safe if answer is None else _without_late(safe, answer)


def _without_late(invoke: Invoke, answer: Answer) -> Invoke:
    """Return what skips the requests that have no requester any more; they are done."""

    async def call(messages: list[ReceivedMessage]) -> Any:  # noqa: ANN401
        given = [each for each in messages if not answer.is_late(each)]
        return await invoke(given) if given else None

    return call


def _unless_failed(invoke: Invoke, failed: Mapping[ReceivedMessage, BaseException]) -> Invoke:
    """Return what raises the exception of a message that has failed before its call."""

    async def call(messages: list[ReceivedMessage]) -> Any:  # noqa: ANN401
        for message in messages:
            error = failed.get(message)
            if error is not None:
                raise error
        return await invoke(messages)

    return call


def _awaiting(handler: Handler, watch: HandlerWatch, *, is_list: bool) -> Invoke:
    """Return what awaits a coroutine function with the list, or its one message."""

    async def call(messages: list[ReceivedMessage]) -> Any:  # noqa: ANN401
        watch.begin()
        try:
            return check_awaited(await handler(messages if is_list else messages[0]))
        finally:
            watch.end()

    return call


@coroutine
def in_own_context(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run a coroutine in a copy of the context, within the task that awaits this.

    A worker's task calls the handler with many messages: a variable that is set for one of them,
    such as the fields of `structlog.contextvars`, must not be seen by the next one.
    """
    run = copy_context().run
    try:
        awaited = run(work.send, None)
        while True:
            try:
                value = yield awaited
            except GeneratorExit:
                run(work.close)
                raise
            except BaseException as error:  # noqa: BLE001 - raised where the coroutine waits
                awaited = run(work.throw, error)
            else:
                awaited = run(work.send, value)
    except StopIteration as returned:
        result: T = returned.value
        return result


def check_awaited(result: Any) -> Any:  # noqa: ANN401 - what a handler returns
    """Return the result of a handler, unless it is work that was never run, or a decision.

    Raises:
        TypeError: a coroutine that was not awaited, or a generator that was not iterated.
        Retry, ToDLQ: it was returned, as a value or a class: the message is not done.
    """
    if isinstance(result, Retry | ToDLQ) or result is Retry or result is ToDLQ:
        raise result
    if isinstance(result, _UNDONE):
        kind = type(result).__name__.replace("_", " ")
        if not isinstance(result, AsyncGeneratorType):
            result.close()  # avoids the warning "coroutine was never awaited" beside the error
        raise TypeError(
            f"handler returned a {kind} that was never awaited; did you forget `await`?"
        )
    return result


class _UnreadableError(Exception):
    """Raised for messages with unreadable bodies; `rest` is the outcome of the others."""

    def __init__(
        self, bad: list[tuple[ReceivedMessage, BaseException]], rest: BaseException | None
    ) -> None:
        super().__init__(bad, rest)
        self.bad = bad
        self.rest = rest


class _Call:
    """Decodes what the handler wants decoded, and calls it: here, or in a thread."""

    def __init__(
        self,
        handler: Handler,
        threads: HandlerThreads,
        *,
        is_list: bool,
        wants_body: bool,
        answer: Answer | None,
    ) -> None:
        self._answer = answer
        self._handler = handler
        self._threads = threads
        self._is_list = is_list
        self._wants_body = wants_body
        self._is_async = is_coroutine_function(handler)
        self._watch = HandlerWatch(threads.clock, handler)

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        bad: list[tuple[ReceivedMessage, BaseException]] = []
        failure: BaseException | None = None
        task = running_task()
        try:
            if self._is_async:
                result = await self._watched(self._begun, messages, bad)
            else:
                # In a copy of the context: what a middleware has set is seen there too.
                result = await self._threads.call(self._begun, messages, bad)
                # Of a lambda or partial around a coroutine function.
                if result is not None and inspect.isawaitable(result):
                    result = await self._watched(lambda: result)
            check_awaited(result)
            if self._answer is not None and result is not None:
                await self._answer(messages[0], result)
        except BaseException as error:
            if ends_task(error, task):
                raise
            failure = error
        if bad:
            raise _UnreadableError(bad, failure)
        if failure is not None:
            raise failure

    async def _watched(self, begin: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        """Return the result of a function and of the awaitable it returns, with a watch of both."""
        watch = self._watch
        watch.begin()
        try:
            result = begin(*args)
            return await result if inspect.isawaitable(result) else result
        finally:
            watch.end()

    def _begun(
        self, messages: list[ReceivedMessage], bad: list[tuple[ReceivedMessage, BaseException]]
    ) -> Any:  # noqa: ANN401 - what the handler returns
        if not self._wants_body:
            return self._handler(messages if self._is_list else messages[0])
        bodies, good = [], []
        for message in messages:
            try:
                bodies.append(message.decode())
            except ENDS_PROGRAM:
                raise
            except BaseException as error:  # noqa: BLE001 - the serializer is the user's
                bad.append((message, error))
            else:
                good.append(message)
        if not good:
            return None
        return self._handler(bodies, good) if self._is_list else self._handler(bodies[0], good[0])


class _SafeInvoke:
    """Settles messages whose body cannot be read, or all that failed when there is `on_error`."""

    def __init__(
        self,
        call: Invoke,
        on_error: ErrorHandler | None,
        threads: HandlerThreads,
        middlewares: Sequence[HandleMiddleware],
        answer: Answer | None = None,
    ) -> None:
        self._answer = answer
        self._call = call
        self._middlewares = middlewares
        self._on_error = on_error
        self._threads = threads
        self._failures = FailureLog(threads.clock, "on_error")
        self._answered_failures = FailureLog(threads.clock, outcome="answered")

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        failure: BaseException | None = None
        bad: list[tuple[ReceivedMessage, BaseException]] = []
        task = running_task()

        async def handle(given: Sequence[ReceivedMessage]) -> Any:  # noqa: ANN401
            if not given:
                return None
            try:
                return await self._call(list(given))
            except _UnreadableError as found:
                bad.extend(found.bad)
                if found.rest is not None:
                    raise found.rest from None
                return None

        try:
            check_awaited(await surrounded(self._middlewares, handle)(messages))
        except BaseException as error:
            if ends_task(error, task):
                raise
            failure = decision_of(error)  # raised, or passed to the error handler
        await self._settle_unreadable(bad)
        if failure is None or await self._is_answered(messages[0], failure):
            return
        if self._on_error is None or isinstance(failure, Retry | ToDLQ):
            raise failure
        unread = [id(message) for message, _ in bad]
        for message in messages:
            if id(message) not in unread:
                await self._settle(message, failure)

    async def _settle_unreadable(self, bad: list[tuple[ReceivedMessage, BaseException]]) -> None:
        for message, cause in bad:
            unreadable = UnreadableBodyError(
                f"the body cannot be read: {text_of(cause)}; {message!r}"
            )
            unreadable.__cause__ = cause
            if self._answer is not None:
                await self._answer.fail(message, unreadable)
            await self._settle(message, unreadable)

    async def _is_answered(self, message: ReceivedMessage, failure: BaseException) -> bool:
        """Send the error to the requester; return whether the message is done with that."""
        if self._answer is None or isinstance(failure, Retry):
            return False
        is_told = await self._answer.fail(message, failure)
        if not is_told or self._on_error is not None or isinstance(failure, ToDLQ):
            return False
        # The requester decides whether to ask again: a redelivery would come too late.
        self._answered_failures.note([message], failure)
        return True

    async def _settle(self, message: ReceivedMessage, error: BaseException) -> None:
        """Settle a message by the error handler: its return acknowledges it, an exception nacks."""
        rejection = Rejection.of(error)._replace(delay_level=DEAD_LETTER)
        if self._on_error is None:
            logger.error("message sent to the dead letter queue: error=%(error)s", {"error": error})
        else:
            task = running_task()
            try:
                await self._call_error_handler(message, _as_exception(error))
            except BaseException as raised:
                if ends_task(raised, task):
                    raise
                failure = decision_of(raised)
                rejection = Rejection.of(failure)
                if isinstance(failure, ToDLQ):
                    logger.info(
                        "message sent to the dead letter queue: message=%(message)r "
                        "reason=%(reason)s",
                        {"message": message, "reason": failure.reason},
                    )
                elif not isinstance(failure, Retry):
                    self._failures.note([message], failure)
            else:
                return
        try:
            await message._reject(rejection)  # noqa: SLF001 - the reason is not for users to give
        except RocketPyError as refused:
            logger.warning(
                "nack failed, message may be delivered again: message=%(message)r error=%(error)r",
                {"message": message, "error": refused},
            )

    async def _call_error_handler(self, message: ReceivedMessage, error: Exception) -> None:
        handle = self._on_error
        assert handle is not None
        if is_coroutine_function(handle):
            result = await handle(message, error)
        else:
            result = await self._threads.call(handle, message, error)
            if inspect.isawaitable(result):  # of a lambda or partial around a coroutine function
                result = await result
        check_awaited(result)


def _as_exception(error: BaseException) -> Exception:
    """Return an error for an error handler, which is promised an Exception."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"the handler raised {shown(error)}, which is no Exception")
    wrapped.__cause__ = error
    return wrapped


def is_coroutine_function(handler: Handler) -> bool:
    """Whether calling a handler makes a coroutine: it runs on the loop then, not on a thread."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _positional_count(handler: Handler) -> int:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return 1
    return sum(
        1
        for parameter in parameters
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        and parameter.default is parameter.empty
    )


CURRENT_WORKER: Final[ContextVar[asyncio.Task[Any] | None]] = ContextVar(
    "CURRENT_WORKER", default=None
)
"""The worker that calls the handler; each sets it once, for itself."""
_REASON: Final = (
    "a handler cannot close its own consumer, which waits for handlers to end: call its stop(), "
    "and close it where wait_closed() returns"
)


def check_not_in_own_handler(workers: Collection[asyncio.Task[Any]]) -> None:
    """Raise ClientError in a handler that is a coroutine function.

    Args:
        workers: of the consumer that is to be closed.
    """
    if workers and asyncio.current_task() in workers:
        raise ClientError(_REASON)


def check_not_on_own_thread(workers: Collection[asyncio.Task[Any]]) -> None:
    """Raise ClientError in a handler that is a plain function, before it blocks."""
    if workers and CURRENT_WORKER.get() in workers:
        raise ClientError(_REASON)
