"""The client without `await`: the same names, driven by an event loop on a thread of its own.

For scripts, Django, Flask, Celery. Objects are safe to use from several threads. A process that
forks must connect again in the child.

Methods take and return what their namesakes of `rocketpy` do, and block meanwhile: signatures and
docstrings are theirs.

Example:
    ::

        from rocketpy.sync import connect

        with connect("127.0.0.1:9876", group="script") as client:
            client.producer().send("orders", b"o1")
            with client.consumer("orders", group="script", start="earliest") as consumer:
                for message in consumer:
                    print(message.body)
                    break
"""

import asyncio
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from rocketpy.client.client import Client as AsyncClient
from rocketpy.client.config import ClientConfig
from rocketpy.client.group_consumer import GroupConsumer
from rocketpy.client.health import ClientHealth
from rocketpy.client.message import Message, ReceivedMessage
from rocketpy.client.options import function_options
from rocketpy.client.outgoing import SendOptions
from rocketpy.client.pop_consumer import PopConsumer as AsyncPopConsumer
from rocketpy.client.popped_message import PoppedMessage
from rocketpy.client.producer import Producer as AsyncProducer
from rocketpy.client.pull_consumer import PullConsumer as AsyncPullConsumer
from rocketpy.client.push_consumer import Consumer as AsyncConsumer
from rocketpy.client.send_result import SendResult
from rocketpy.client.transaction import Transaction as AsyncTransaction
from rocketpy.client.transaction import TxState
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue

__all__ = [
    "Client",
    "Consumer",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "Transaction",
    "connect",
]


class _Closing(Protocol):
    async def close(self) -> None: ...


A_co = TypeVar("A_co", bound=_Closing, covariant=True)
A = TypeVar("A", bound=_Closing)
G_co = TypeVar("G_co", bound=GroupConsumer[Any], covariant=True)
F = TypeVar("F")
P = ParamSpec("P")
T = TypeVar("T")


class _LoopThread:
    """An event loop that runs on a daemon thread until closed."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="rocketpy-sync", daemon=True
        )
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine there and return a future of its result."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            coroutine.close()
            raise ClosedError("the client is closed, or of a parent process: connect() again")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function there."""

        async def called() -> T:
            return function()

        return self.run(called())

    def close(self) -> None:
        """Stop the loop and wait for the thread."""
        if self._thread.is_alive() and os.getpid() == self._pid:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class _Face(Generic[A_co]):
    """The blocking face of one of the client's objects."""

    def __init__(self, thread: _LoopThread, wrapped: A_co) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is in hand and close; a second call does nothing."""
        self._thread.run(self._wrapped.close())


@overload
def _blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[A], P], T]: ...


@overload
def _blocking(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[_Face[A], P], T]: ...


def _blocking(method: Any) -> Any:
    """Return a method that runs `method` of the wrapped object on the loop's thread."""

    @functools.wraps(method)
    def call(self: _Face[Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        async def called() -> Any:  # noqa: ANN401
            outcome = getattr(self._wrapped, method.__name__)(*args, **kwargs)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return self._thread.run(called())

    return call


class Transaction:
    """One transaction, for `with`; see `rocketpy.Transaction`."""

    def __init__(self, thread: _LoopThread, transaction: AsyncTransaction) -> None:
        self._thread = thread
        self._wrapped = transaction

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

    @property
    def id(self) -> str:
        """The transaction's id."""
        return self._wrapped.id

    @property
    def half(self) -> SendResult:
        """Where the half message is stored."""
        return self._wrapped.half

    @property
    def state(self) -> TxState | None:
        """How it ended; None before that."""
        return self._wrapped.state

    @property
    def is_confirmed(self) -> bool:
        """The broker has taken a commit or rollback."""
        return self._wrapped.is_confirmed

    def commit(self) -> None:
        """Let consumers have the message."""
        self._thread.run(self._wrapped.commit())

    def rollback(self) -> None:
        """Drop the message."""
        self._thread.run(self._wrapped.rollback())

    def unknown(self) -> None:
        """Leave it to the check-back."""
        self._wrapped.unknown()


class Producer(_Face[AsyncProducer]):
    """Sends messages; see `rocketpy.Producer`."""

    send = _blocking(AsyncProducer.send)
    send_batch = _blocking(AsyncProducer.send_batch)
    send_oneway = _blocking(AsyncProducer.send_oneway)
    flush = _blocking(AsyncProducer.flush)
    request = _blocking(AsyncProducer.request)
    reply = _blocking(AsyncProducer.reply)
    recall = _blocking(AsyncProducer.recall)

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> Future[SendResult]:
        """Start a send and return a future of its result."""
        return self._thread.submit(self._wrapped.send(topic, body, **options))

    def transaction(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        check_after: float | None = None,
        **options: Unpack[SendOptions],
    ) -> Transaction:
        """Return a transaction: a message that consumers get if the block of code goes well."""
        wrapped = self._wrapped.transaction(topic, body, check_after=check_after, **options)
        return Transaction(self._thread, wrapped)


def _iterate(thread: _LoopThread, messages: AsyncIterator[T]) -> Iterator[T]:
    """Yield what an asynchronous iterator of the loop's thread yields."""

    async def following() -> T:
        return await anext(messages)

    while True:
        try:
            yield thread.run(following())
        except StopAsyncIteration:
            return


class _GroupFace(_Face[G_co]):
    """The blocking face of a member of a group."""

    start = _blocking(GroupConsumer.start)
    subscribe = _blocking(GroupConsumer.subscribe)
    wait_closed = _blocking(GroupConsumer.wait_closed)
    health = _blocking(GroupConsumer.health)

    def __enter__(self) -> Self:
        self.start()
        return self

    @property
    def assignment(self) -> list[MessageQueue]:
        """What this member reads now."""
        return self._thread.call(lambda: self._wrapped.assignment)


class Consumer(_GroupFace[AsyncConsumer]):
    """Receives a group's messages; see `rocketpy.Consumer`."""

    pause = _blocking(AsyncConsumer.pause)
    resume = _blocking(AsyncConsumer.resume)
    commit = _blocking(AsyncConsumer.commit)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return _iterate(self._thread, aiter(self._wrapped))

    def ack(self, message: ReceivedMessage) -> None:
        """Mark a message as done."""
        self._thread.run(message.ack())

    def nack(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Give a message back, to be delivered again later; see `ReceivedMessage.nack`."""
        self._thread.run(message.nack(delay_level))


class PullConsumer(_Face[AsyncPullConsumer]):
    """Asked for messages; see `rocketpy.PullConsumer`."""

    start = _blocking(AsyncPullConsumer.start)
    queues = _blocking(AsyncPullConsumer.queues)
    subscribe = _blocking(AsyncPullConsumer.subscribe)
    assign = _blocking(AsyncPullConsumer.assign)
    poll = _blocking(AsyncPullConsumer.poll)
    seek = _blocking(AsyncPullConsumer.seek)
    seek_to_begin = _blocking(AsyncPullConsumer.seek_to_begin)
    seek_to_end = _blocking(AsyncPullConsumer.seek_to_end)
    seek_to_time = _blocking(AsyncPullConsumer.seek_to_time)
    commit = _blocking(AsyncPullConsumer.commit)
    committed = _blocking(AsyncPullConsumer.committed)
    position = _blocking(AsyncPullConsumer.position)
    pause = _blocking(AsyncPullConsumer.pause)
    resume = _blocking(AsyncPullConsumer.resume)
    health = _blocking(AsyncPullConsumer.health)

    def __enter__(self) -> Self:
        self.start()
        return self

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues read now."""
        return self._thread.call(lambda: self._wrapped.assignment)


class PopConsumer(_GroupFace[AsyncPopConsumer]):
    """Pops a group's messages; see `rocketpy.PopConsumer`."""

    def __iter__(self) -> Iterator[PoppedMessage]:
        return _iterate(self._thread, aiter(self._wrapped))

    def ack(self, message: PoppedMessage) -> None:
        """Tell the broker that a message is done."""
        self._thread.run(message.ack())

    def nack(
        self, message: PoppedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> None:
        """Give a message back, to be delivered again later; see `PoppedMessage.nack`."""
        self._thread.run(message.nack(delay_level, delay_s=delay_s))

    def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Keep a message for so many seconds from now on."""
        self._thread.run(message.change_invisible(seconds))


def _making(
    method: Callable[Concatenate[AsyncClient, P], A], face: Callable[[_LoopThread, A], F]
) -> Callable[Concatenate["Client", P], F]:
    """Return a method that makes an object on the loop's thread and returns its blocking face."""

    @functools.wraps(method)
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> F:
        thread = self._running()
        return face(thread, thread.call(lambda: method(self._wrapped, *args, **kwargs)))

    return call


class Client:
    """A client on a thread of its own; see `rocketpy.Client`."""

    def __init__(self, client: AsyncClient) -> None:
        self._wrapped = client
        self._thread: _LoopThread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the thread and the client's timers."""
        if self._thread is not None:
            return
        thread = _LoopThread()
        try:
            thread.run(self._wrapped.start())
        except BaseException:
            thread.close()
            raise
        self._thread = thread

    def close(self) -> None:
        """Close consumers, producers and connections, and stop the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._wrapped.close())
            finally:
                thread.close()

    producer = _making(AsyncClient.producer, Producer)
    consumer = _making(AsyncClient.consumer, Consumer)
    responder = _making(AsyncClient.responder, Consumer)
    pull_consumer = _making(AsyncClient.pull_consumer, PullConsumer)
    pop_consumer = _making(AsyncClient.pop_consumer, PopConsumer)

    @property
    def client_id(self) -> str:
        """What brokers know this client by."""
        return self._running().call(lambda: self._wrapped.client_id)

    def health(self) -> ClientHealth:
        """Return what works and what does not, the consumers' queues included."""
        return self._running().call(self._wrapped.health)

    def _running(self) -> _LoopThread:
        if self._thread is None:
            raise ClosedError("the client is not started: use `with`, or start()")
        return self._thread


@function_options(ClientConfig)
def connect(config: ClientConfig) -> Client:
    """Describe a client, as `rocketpy.connect` does; `with` or `start()` starts it."""
    return Client(AsyncClient(config))
