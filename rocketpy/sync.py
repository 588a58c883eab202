"""The client without ``await``: the same names, driven by an event loop on a thread of its own.

For scripts, Django, Flask, Celery. Objects are safe to use from several threads. A process that
forks must connect again in the child.

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
import os
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from rocketpy.client import client as async_client
from rocketpy.client.handlers import Handler
from rocketpy.client.health import ClientHealth, ConsumerHealth
from rocketpy.client.message import Message, ReceivedMessage
from rocketpy.client.options import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
)
from rocketpy.client.outgoing import SendOptions
from rocketpy.client.producer import Producer as AsyncProducer
from rocketpy.client.pull_consumer import PullConsumer as AsyncPullConsumer
from rocketpy.client.push_consumer import Consumer as AsyncConsumer
from rocketpy.client.send_result import SendResult
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.remoting.config import RemotingClientConfig

__all__ = ["Client", "Consumer", "Producer", "PullConsumer", "connect"]

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

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            coroutine.close()
            raise ClosedError("the client is closed, or of a parent process: connect() again")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and wait for the thread."""
        if self._thread.is_alive() and os.getpid() == self._pid:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


async def _call(function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any signature
    """Call a plain function on the loop's thread."""
    return function(*args, **kwargs)


def connect(
    name_servers: str | Sequence[str] | None = None,
    *,
    group: str = "",
    remoting: RemotingClientConfig | None = None,
    **options: Unpack[ClientOptions],
) -> "Client":
    """Describe a client, as :func:`rocketpy.connect` does; ``with`` or ``start()`` starts it.

    Args:
        name_servers: ``"host:9876;host2:9876"``; None takes ``NAMESRV_ADDR``.
        group: of producers and consumers that name none themselves.
        remoting: settings of the connections.
        **options: see :class:`~rocketpy.client.config.ClientConfig`.
    """
    return Client(async_client.connect(name_servers, group=group, remoting=remoting, **options))


class Client:
    """A client on a thread of its own; see :class:`rocketpy.client.client.Client`."""

    def __init__(self, client: async_client.Client) -> None:
        self._client = client
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
        if self._thread is None:
            self._thread = _LoopThread()
            self._thread.run(self._client.start())

    def close(self) -> None:
        """Close consumers, producers and connections, and stop the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._client.close())
            finally:
                thread.close()

    def producer(self, *, group: str = "", **options: Unpack[ProducerOptions]) -> "Producer":
        """Return a producer; see :meth:`rocketpy.client.client.Client.producer`."""
        thread = self._running()
        made = thread.run(_call(self._client.producer, group=group, **options))
        return Producer(thread, made)

    def consumer(
        self,
        topic: str | Sequence[str],
        *,
        group: str = "",
        filter: str = "*",  # noqa: A002
        handler: Handler | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> "Consumer":
        """Return a group member; see :meth:`rocketpy.client.client.Client.consumer`.

        A plain ``def`` handler runs on threads of the consumer's own, ``concurrency`` of them.
        """
        thread = self._running()
        made = thread.run(
            _call(
                self._client.consumer,
                topic,
                group=group,
                filter=filter,
                handler=handler,
                **options,
            )
        )
        return Consumer(thread, made)

    def pull_consumer(
        self, *, group: str = "", **options: Unpack[PullConsumerOptions]
    ) -> "PullConsumer":
        """Return a pull consumer; see :meth:`rocketpy.client.client.Client.pull_consumer`."""
        thread = self._running()
        made = thread.run(_call(self._client.pull_consumer, group=group, **options))
        return PullConsumer(thread, made)

    def health(self) -> ClientHealth:
        """Return what works and what does not."""
        found: ClientHealth = self._running().run(_call(self._client.health))
        return found

    def _running(self) -> _LoopThread:
        if self._thread is None:
            raise ClosedError("the client is not started: use `with`, or start()")
        return self._thread


class Producer:
    """Sends messages; see :class:`rocketpy.client.producer.Producer`."""

    def __init__(self, thread: _LoopThread, producer: AsyncProducer) -> None:
        self._thread = thread
        self._producer = producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send a message and wait until a broker has stored it."""
        return self._thread.run(self._producer.send(topic, body, **options))

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> Future[SendResult]:
        """Start a send; waits only while too many are in flight."""
        started: Future[SendResult] = asyncio.run_coroutine_threadsafe(
            self._producer.send(topic, body, **options), self._thread.loop
        )
        return started

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        """Send without waiting for a response."""
        self._thread.run(_call(self._producer.send_oneway, topic, body, **options))

    def send_batch(
        self, topic: str, bodies: Iterable[Any], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send many messages of one topic in few requests."""
        return self._thread.run(self._producer.send_batch(topic, bodies, **options))

    def flush(self) -> None:
        """Wait until every send in flight has its result."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """Take no more sends, wait for those in flight."""
        self._thread.run(self._producer.close())


class Consumer:
    """Receives a group's messages; see :class:`rocketpy.client.push_consumer.Consumer`."""

    def __init__(self, thread: _LoopThread, consumer: AsyncConsumer) -> None:
        self._thread = thread
        self._consumer = consumer

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
        """Join the group and begin to receive."""
        self._thread.run(self._consumer.start())

    def close(self) -> None:
        """Stop pulling, finish handlers in hand, store offsets, leave the group."""
        self._thread.run(self._consumer.close())

    def __iter__(self) -> Iterator[ReceivedMessage]:
        messages = self._consumer.__aiter__()
        while True:
            try:
                yield self._thread.run(_next(messages))
            except StopAsyncIteration:
                return

    def ack(self, message: ReceivedMessage) -> None:
        """Mark a message as done."""
        self._thread.run(message.ack())

    def nack(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Give a message back, to be delivered again later."""
        self._thread.run(message.nack(delay_level))

    def health(self) -> ConsumerHealth:
        """Return the state of every queue and what fails in the background."""
        found: ConsumerHealth = self._thread.run(_call(self._consumer.health))
        return found

    def wait_closed(self) -> None:
        """Wait until closed; raises the failure that stopped a background task, if one did."""
        self._thread.run(self._consumer.wait_closed())


async def _next(messages: Any) -> ReceivedMessage:  # noqa: ANN401 - an async iterator
    message: ReceivedMessage = await anext(messages)
    return message


class PullConsumer:
    """Asked for messages; see :class:`rocketpy.client.pull_consumer.PullConsumer`."""

    def __init__(self, thread: _LoopThread, consumer: AsyncPullConsumer) -> None:
        self._thread = thread
        self._consumer = consumer

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
        """Be ready for :meth:`assign` or :meth:`subscribe`."""
        self._thread.run(self._consumer.start())

    def close(self) -> None:
        """Stop pulling, commit what earlier polls handed out, leave."""
        self._thread.run(self._consumer.close())

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic."""
        return self._thread.run(self._consumer.queues(topic))

    def subscribe(self, topic: str, filter: str = "*", expression_type: str = "TAG") -> None:  # noqa: A002
        """Read this member's share of a topic."""
        self._thread.run(self._consumer.subscribe(topic, filter, expression_type))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues."""
        self._thread.run(self._consumer.assign(queues))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues read now."""
        return self._consumer.assignment

    def poll(self, max_messages: int = 32, timeout: float = 5.0) -> list[ReceivedMessage]:
        """Return up to ``max_messages``, waiting up to ``timeout`` seconds for the first."""
        return self._thread.run(self._consumer.poll(max_messages, timeout))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue with this offset of an assigned queue."""
        self._thread.run(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with the oldest message of each queue."""
        self._thread.run(self._consumer.seek_to_begin(queues))

    def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with messages that are not there yet."""
        self._thread.run(self._consumer.seek_to_end(queues))

    def seek_to_time(
        self, queues: Iterable[MessageQueue] | None, time: datetime | int | str
    ) -> None:
        """Continue with the first message stored at or after a time."""
        self._thread.run(self._consumer.seek_to_time(queues, time))

    def commit(self) -> None:
        """Store the positions after everything handed out."""
        self._thread.run(self._consumer.commit())

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue."""
        return self._thread.run(self._consumer.committed(queue))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Hand out nothing of these queues until :meth:`resume`."""
        self._thread.run(_call(self._consumer.pause, queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """End a :meth:`pause`."""
        self._thread.run(_call(self._consumer.resume, queues))
