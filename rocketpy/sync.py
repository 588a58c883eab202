"""The client without `await`: the same names, driven by an event loop on a thread of its own.

For scripts, Django, Flask, Celery. Objects are safe to use from several threads. A process that
forks must connect again in the child. Handlers are plain functions, run on threads; an `async def`
handler runs on the client's own thread, where a blocking call is an error.

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

import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from rocketpy.client.blocking.facade import BlockingFacade, awaited, called
from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.blocking.message import (
    PoppedMessage,
    ReceivedMessage,
    blocking,
    blocking_handler,
    followed,
)
from rocketpy.client.blocking.send_queue import BlockingSendQueue, follow
from rocketpy.client.callbacks.handlers import check_not_on_own_thread, is_coroutine_function
from rocketpy.client.client import Client as AsyncClient
from rocketpy.client.config import ClientConfig
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.group_consumer import GroupConsumer
from rocketpy.client.consumer.pull_consumer import PullConsumer as AsyncPullConsumer
from rocketpy.client.consumer.push_consumer import Consumer as AsyncConsumer
from rocketpy.client.health import ClientHealth
from rocketpy.client.lifecycle import AsyncClosable
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import Duration
from rocketpy.client.options.keyword_options import function_options
from rocketpy.client.options.validation import BATCH, refuse_generators
from rocketpy.client.pop.pop_consumer import PopConsumer as AsyncPopConsumer
from rocketpy.client.producer.middleware_producer import MiddlewareProducer
from rocketpy.client.producer.producer import Producer as AsyncProducer
from rocketpy.client.producer.transaction import Transaction as AsyncTransaction
from rocketpy.client.sending.result import SendResult, SendStats
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue

__all__ = [
    "Client",
    "Consumer",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "Transaction",
    "connect",
]


A = TypeVar("A", bound=AsyncClosable)
G_co = TypeVar("G_co", bound=GroupConsumer[Any, Any], covariant=True)
F = TypeVar("F")
P = ParamSpec("P")


class Transaction:
    """One transaction, for `with`; see `rocketpy.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: AsyncTransaction) -> None:
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


class Producer(BlockingFacade[AsyncProducer]):
    """Sends messages; see `rocketpy.Producer`."""

    def __init__(self, thread: LoopThread, producer: AsyncProducer) -> None:
        super().__init__(thread, producer)
        # What goes through middlewares is theirs to build, on the loop.
        is_plain = not isinstance(producer, MiddlewareProducer)
        self._sends = BlockingSendQueue(thread, producer) if is_plain else None

    send: Final = awaited(AsyncProducer.send)
    send_batch: Final = awaited(AsyncProducer.send_batch)
    flush: Final = awaited(AsyncProducer.flush)
    reply: Final = awaited(AsyncProducer.reply)
    recall: Final = awaited(AsyncProducer.recall)

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> Future[SendResult]:
        """Start a send and return a future of its result; many may be in flight.

        Waits first until one more fits into `max_in_flight` and `max_in_flight_bytes`; once they
        are reached, until some do. Ten times as fast as one `send` after the other.

        Raises:
            IllegalMessageError: it breaks a limit; nothing was sent.
            ClosedError: the client is closed, or of a parent process.
        """
        if self._sends is not None:
            return self._sends.send(topic, body, options)

        async def begun() -> Future[SendResult]:
            await self._wrapped.ready()
            result: Future[SendResult] = Future()
            result.set_running_or_notify_cancel()  # what is sent cannot be called back
            sent = self._wrapped.send_nowait(topic, body, **options)
            sent.add_done_callback(functools.partial(follow, result))
            return result

        return self._thread.run(begun())

    def ready(self) -> None:
        """Wait until one more `send_nowait` or `send_oneway` fits into the limits."""
        if self._sends is not None:
            self._sends.wait_for_room()
        else:
            self._thread.run(self._wrapped.ready())

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        """Send without waiting for a response; see `rocketpy.Producer.send_oneway`.

        Waits first until one more fits into the limits.
        """
        if self._sends is not None:
            self._sends.send_oneway(topic, body, options)
            return

        async def sent() -> None:
            await self._wrapped.ready()
            self._wrapped.send_oneway(topic, body, **options)

        self._thread.run(sent())

    def request(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> ReceivedMessage:
        """Send a message that somebody answers, and wait for the answer."""
        answer = self._thread.run(self._wrapped.request(topic, body, **options))
        return ReceivedMessage(self._thread, answer)

    @property
    def in_flight(self) -> int:
        """Sends that wait for their result, and one-way sends that are not written yet."""
        return self._thread.call(lambda: self._wrapped.in_flight)

    @property
    def stats(self) -> SendStats:
        """Counts of what was sent so far."""
        return self._thread.call(lambda: self._wrapped.stats)

    @property
    def lost_oneway(self) -> int:
        """One-way sends that are known to be lost."""
        return self._thread.call(lambda: self._wrapped.lost_oneway)

    def transaction(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        check_after: Duration | None = None,
        **options: Unpack[SendOptions],
    ) -> Transaction:
        """Return a transaction: a message that consumers get if the block of code goes well."""
        wrapped = self._wrapped.transaction(topic, body, check_after=check_after, **options)
        return Transaction(self._thread, wrapped)


class _GroupFace(BlockingFacade[G_co]):
    """The blocking face of a member of a group."""

    start: Final = awaited(GroupConsumer.start)
    subscribe: Final = called(GroupConsumer.subscribe)
    wait_closed: Final = awaited(GroupConsumer.wait_closed)
    health: Final = called(GroupConsumer.health)
    stop: Final = called(GroupConsumer.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def close(self) -> None:
        """Finish what is in hand and close; see `rocketpy.Consumer.close`."""
        check_not_on_own_thread(self._wrapped._workers())  # noqa: SLF001 - of one family
        super().close()

    @property
    def assignment(self) -> list[MessageQueue]:
        """What this member reads now."""
        return self._thread.call(lambda: self._wrapped.assignment)

    @property
    def stats(self) -> ConsumeStats:
        """Counts and rates by topic."""
        return self._wrapped.stats

    def _each(self, loop: Callable[[], Any]) -> Iterator[Any]:
        """Yield what a loop of its own yields; leaving it gives what is in hand again."""
        yield from followed(self._thread, self._thread.call(loop))

    def _one(self, timeout: Duration | None) -> Any:  # noqa: ANN401 - a message of the kind
        return blocking(self._thread, self._thread.run(self._wrapped.getone(timeout)))

    def _many(self, max_messages: int, timeout: Duration | None) -> Any:  # noqa: ANN401
        return blocking(
            self._thread, self._thread.run(self._wrapped.getmany(max_messages, timeout))
        )


class Consumer(_GroupFace[AsyncConsumer]):
    """Receives a group's messages; see `rocketpy.Consumer`."""

    pause: Final = called(AsyncConsumer.pause)
    resume: Final = called(AsyncConsumer.resume)
    commit: Final = awaited(AsyncConsumer.commit)
    seek: Final = awaited(AsyncConsumer.seek)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._each(lambda: aiter(self._wrapped))

    def getone(self, timeout: Duration | None = None) -> ReceivedMessage | None:
        """Return the next message, None when none comes in time."""
        message: ReceivedMessage | None = self._one(timeout)
        return message

    def getmany(
        self, max_messages: int = BATCH, timeout: Duration | None = None
    ) -> list[ReceivedMessage]:
        """Return up to `max_messages` that are there, waiting for the first."""
        messages: list[ReceivedMessage] = self._many(max_messages, timeout)
        return messages

    def batches(self, max_messages: int = BATCH) -> Iterator[list[ReceivedMessage]]:
        """Return a loop over lists of messages, of 1 to `max_messages` that are there."""
        return self._each(lambda: self._wrapped.batches(max_messages))


class PullConsumer(BlockingFacade[AsyncPullConsumer]):
    """Asked for messages; see `rocketpy.PullConsumer`."""

    start: Final = awaited(AsyncPullConsumer.start)
    queues: Final = awaited(AsyncPullConsumer.queues)
    subscribe: Final = awaited(AsyncPullConsumer.subscribe)
    assign: Final = awaited(AsyncPullConsumer.assign)
    seek: Final = awaited(AsyncPullConsumer.seek)
    seek_to_begin: Final = awaited(AsyncPullConsumer.seek_to_begin)
    seek_to_end: Final = awaited(AsyncPullConsumer.seek_to_end)
    seek_to_time: Final = awaited(AsyncPullConsumer.seek_to_time)
    commit: Final = awaited(AsyncPullConsumer.commit)
    committed: Final = awaited(AsyncPullConsumer.committed)
    position: Final = called(AsyncPullConsumer.position)
    pause: Final = called(AsyncPullConsumer.pause)
    resume: Final = called(AsyncPullConsumer.resume)
    health: Final = called(AsyncPullConsumer.health)

    stop: Final = called(AsyncPullConsumer.stop)

    def poll(self, max_messages: int = 32, timeout: Duration | None = 5.0) -> list[ReceivedMessage]:
        """Return up to `max_messages`, waiting up to `timeout` for the first."""
        messages = self._thread.run(self._wrapped.poll(max_messages, timeout))
        return [ReceivedMessage(self._thread, message) for message in messages]

    def getone(self, timeout: Duration | None = None) -> ReceivedMessage | None:
        """Return the next message, None when none comes in time."""
        message = self._thread.run(self._wrapped.getone(timeout))
        return None if message is None else ReceivedMessage(self._thread, message)

    def getmany(
        self, max_messages: int = BATCH, timeout: Duration | None = None
    ) -> list[ReceivedMessage]:
        """Do as `poll`, with no limit of time unless one is given."""
        messages = self._thread.run(self._wrapped.getmany(max_messages, timeout))
        return [ReceivedMessage(self._thread, message) for message in messages]

    def batches(self, max_messages: int = BATCH) -> Iterator[list[ReceivedMessage]]:
        """Yield lists of 1 to `max_messages` messages, until `stop`."""
        return followed(self._thread, self._wrapped.batches(max_messages))

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
        return self._each(lambda: aiter(self._wrapped))

    @property
    def in_hand(self) -> int:
        """Messages popped and not settled."""
        return self._thread.call(lambda: self._wrapped.in_hand)

    def getone(self, timeout: Duration | None = None) -> PoppedMessage | None:
        """Return the next message, None when none comes in time."""
        message: PoppedMessage | None = self._one(timeout)
        return message

    def getmany(
        self, max_messages: int = BATCH, timeout: Duration | None = None
    ) -> list[PoppedMessage]:
        """Return up to `max_messages` that are there, waiting for the first."""
        messages: list[PoppedMessage] = self._many(max_messages, timeout)
        return messages

    def batches(self, max_messages: int = BATCH) -> Iterator[list[PoppedMessage]]:
        """Return a loop over lists of messages, of 1 to `max_messages` that are there."""
        return self._each(lambda: self._wrapped.batches(max_messages))


def _making(
    method: Callable[Concatenate[AsyncClient, P], A], face: Callable[[LoopThread, A], F]
) -> Callable[Concatenate["Client", P], F]:
    """Return a method that makes an object on the loop's thread and returns its blocking face."""

    @functools.wraps(method)
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> F:
        thread = self._running()
        handler = kwargs.get("handler")
        refuse_generators({"handler": handler})  # the function that wraps it hides that
        if callable(handler) and not is_coroutine_function(handler):
            kwargs["handler"] = blocking_handler(thread, handler)
        return face(thread, thread.call(lambda: method(self._wrapped, *args, **kwargs)))

    return call


class Client:
    """A client on a thread of its own; see `rocketpy.Client`."""

    def __init__(self, client: AsyncClient) -> None:
        self._wrapped = client
        self._thread: LoopThread | None = None
        self._turn = threading.RLock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(lambda: self._wrapped.__aexit__(exc_type, exc, traceback))

    def start(self) -> None:
        """Start the thread and the client's timers.

        Raises:
            ClosedError: it was closed; connect() makes another.
        """
        if self._thread is not None:
            return
        thread = LoopThread()
        try:
            thread.run(self._wrapped.start())
        except BaseException:
            thread.close()
            raise
        self._thread = thread

    def close(self) -> None:
        """Close consumers, producers and connections, and stop the thread.

        Every call waits for the one close; in a forked child there is nothing to close.
        """
        self._end(self._wrapped.close)

    def _end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        thread = self._thread
        if thread is None or thread.is_of_parent:
            return
        thread.check()
        check_not_on_own_thread(self._wrapped._workers())  # noqa: SLF001 - of one family
        with self._turn:
            if self._thread is None:
                return
            try:
                thread.run(close())
            finally:
                self._thread = None
                thread.close()

    producer: Final = _making(AsyncClient.producer, Producer)
    consumer: Final = _making(AsyncClient.consumer, Consumer)
    responder: Final = _making(AsyncClient.responder, Consumer)
    pull_consumer: Final = _making(AsyncClient.pull_consumer, PullConsumer)
    pop_consumer: Final = _making(AsyncClient.pop_consumer, PopConsumer)

    @property
    def client_id(self) -> str:
        """What brokers know this client by."""
        return self._running().call(lambda: self._wrapped.client_id)

    def health(self) -> ClientHealth:
        """Return what works and what does not, the consumers' queues included."""
        return self._running().call(self._wrapped.health)

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise ClosedError("the client is not started: use `with`, or start()")
        return self._thread


@function_options(ClientConfig)
def connect(config: ClientConfig) -> Client:
    """Describe a client, as `rocketpy.connect` does; `with` or `start()` starts it."""
    return Client(AsyncClient(config))
