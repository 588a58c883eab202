"""Accumulation of single sends into batches (option `linger`).

Messages for a named queue are batched per queue, the others per topic. Only single, uncompressed
messages without special options are batched (`can_be_batched`). Everything else is sent alone,
after the waiting messages of the same named queue.

A batch is sent when its oldest message has waited for `linger`, when it is full, or when the
producer is flushed or closed. Each caller has a separate future. A message whose caller cancels
before the batch is sent is left out. Each message counts in the producer's window from the call to
its result.

Source: `ProduceAccumulator` (5.4.0) has other rules; batches are made by
`rocketpy.client.producer.batch`.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from rocketpy.client.config import ProducerConfig
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import to_ms, to_s
from rocketpy.client.producer.batch import BatchPart, stored_bytes
from rocketpy.client.sending.in_flight_window import UNLIMITED, InFlightWindow
from rocketpy.client.sending.outgoing_message import SEND, Outgoing
from rocketpy.client.sending.pending_send import PendingSend
from rocketpy.client.sending.result import SendResult
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import MessageIllegalError, own_copy
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.properties import PROPERTY_INSTANCE_ID
from rocketpy.proto.topic_names import RETRY_PREFIX

# What a batch can carry for each message. Any other option, also a future one, is sent alone.
_BATCHED_OPTIONS: Final = frozenset(
    {"tag", "keys", "headers", "flag", "serializer", "queue", "properties"}
)


def can_be_batched(topic: str, message: Outgoing, options: SendOptions) -> bool:
    """Return whether a message may share a request with others.

    Batches, replies, half messages, compressed bodies, redeliveries, ordered or delayed messages,
    separate time-outs and system properties require a separate request.

    Args:
        topic: where it goes.
        message: the wire's parts.
        options: of the send.
    """
    # A batch has one request code and no flags, times or counts of a single message.
    if message.code != SEND or message.sys_flag or message.moment or message.retries:
        return False
    if topic.startswith(RETRY_PREFIX):
        return False
    if not options:
        return True
    if any(value is not None for name, value in options.items() if name not in _BATCHED_OPTIONS):
        return False
    queue = options.get("queue")
    if queue is not None and queue.topic != topic:  # must fail without the rest of a batch
        return False
    return options.get("properties", {}).keys() <= {PROPERTY_INSTANCE_ID}


_Waiting: TypeAlias = tuple[Outgoing, asyncio.Future[SendResult]]
"""Message, and the future of its result."""


_BatchKey: TypeAlias = str | MessageQueue
"""Key of a batch: a topic, or one queue."""


class _PendingBatch:
    """Messages of one topic or queue that wait to be sent.

    Attributes:
        items: messages in the order of the calls.
        bytes: size of their records.
        deadline_ms: the deadline of the oldest message.
        is_pipelined: whether a caller sent a message before it had its earlier results. A batch for
            a named queue then fails at once while its broker cannot be reached: if it waited,
            later batches could overtake it.
        timer: sends the batch.
    """

    __slots__ = ("bytes", "deadline_ms", "is_pipelined", "items", "timer")

    def __init__(self, timer: asyncio.TimerHandle, deadline_ms: int) -> None:
        self.items: list[_Waiting] = []
        self.bytes = 0
        self.deadline_ms = deadline_ms
        self.is_pipelined = False
        self.timer = timer


class BatchAccumulator:
    """Accumulates messages of one producer into batches.

    Args:
        window: counts the messages.
        transport: sends the batches.
        config: linger time and limits of a batch.
        next_msg_id: makes the ids of batches.
    """

    def __init__(
        self,
        window: InFlightWindow,
        transport: SendTransport,
        config: ProducerConfig,
        next_msg_id: Callable[[], str],
    ) -> None:
        self._window = window
        self._transport = transport
        self._loop = transport.loop
        self._linger_s = to_s(config.linger)
        self._timeout_ms = to_ms(config.timeout)
        self._max_messages = config.linger_messages
        self._max_bytes = min(config.linger_bytes, config.max_message_bytes)
        self._attempts = 1 + config.retries
        self._next_msg_id = next_msg_id
        self._pending: dict[_BatchKey, _PendingBatch] = {}
        # Batches count in a window without limits: their messages count in the producer's.
        self._requests = InFlightWindow(UNLIMITED, UNLIMITED)

    def add(
        self,
        topic: str,
        message: Outgoing,
        queue: MessageQueue | None = None,
        *,
        is_pipelined: bool = False,
    ) -> asyncio.Future[SendResult]:
        """Add a message, and return the future of its result.

        Args:
            topic: destination.
            message: the message.
            queue: its queue; None for any.
            is_pipelined: whether the caller sends more before it has the result.

        Raises:
            ClosedError: the producer is closed.
        """
        self._window.enter(len(message.body))
        future: asyncio.Future[SendResult] = self._loop.create_future()
        key = topic if queue is None else queue
        size_bytes = stored_bytes(message, topic)
        batch = self._pending.get(key)
        if batch is not None and batch.bytes + size_bytes > self._max_bytes:
            self._send(key)
            batch = None
        if batch is None:
            timer = self._loop.call_later(self._linger_s, self._send, key)
            # All messages of a batch have the producer's timeout: the oldest ends first.
            deadline_ms = self._transport.clock.monotonic_ms() + self._timeout_ms
            batch = self._pending[key] = _PendingBatch(timer, deadline_ms)
        items = batch.items
        items.append((message, future))
        batch.bytes += size_bytes
        if is_pipelined:
            batch.is_pipelined = True
        if len(items) >= self._max_messages or batch.bytes >= self._max_bytes:
            self._send(key)
        return future

    def send_queue(self, queue: MessageQueue) -> None:
        """Send the waiting messages of a named queue now.

        A message that is sent alone to the queue would overtake them.
        """
        if queue in self._pending:
            self._send(queue)

    def send_all(self) -> None:
        """Send all waiting messages now."""
        for key in list(self._pending):
            self._send(key)

    def _send(self, key: _BatchKey) -> None:
        batch = self._pending.pop(key)
        batch.timer.cancel()
        wanted = []
        for waiting in batch.items:
            if waiting[1].done():  # its caller cancelled
                self._window.leave(len(waiting[0].body))
            else:
                wanted.append(waiting)
        if wanted:
            self._start_send(key, wanted, batch.deadline_ms, is_pipelined=batch.is_pipelined)

    def _start_send(
        self, key: _BatchKey, items: list[_Waiting], deadline_ms: int, *, is_pipelined: bool
    ) -> None:
        topic, queue = (key, None) if isinstance(key, str) else (key.topic, key)
        part = BatchPart([message for message, _ in items])
        is_batch = len(items) > 1
        operation = PendingSend(
            self._requests,
            self._transport,
            topic,
            part.outgoing(self._next_msg_id()) if is_batch else items[0][0],
            timeout_ms=max(0, deadline_ms - self._transport.clock.monotonic_ms()),
            attempts=self._attempts if queue is None else 1,
            choose=None if queue is None else lambda _: queue,
            waits_for_broker=queue is None or not is_pipelined,
        )

        def ended(future: asyncio.Future[SendResult]) -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            if error is None:
                stored = future.result()
                self._settle(items, part.results(stored) if is_batch else [stored])
            elif is_batch and isinstance(error, MessageIllegalError):
                # Nothing of the batch is stored, and a single message may be the cause: send each
                # alone, so that the others succeed.
                for each in items:
                    self._start_send(key, [each], deadline_ms, is_pipelined=is_pipelined)
            else:
                self._fail(items, error)

        operation.future.add_done_callback(ended)
        operation.start()

    def _settle(self, items: list[_Waiting], results: list[SendResult]) -> None:
        for (_, future), result in zip(items, results, strict=True):
            if not future.done():
                future.set_result(result)
        self._window.leave(sum(len(message.body) for message, _ in items), len(items))

    def _fail(self, items: list[_Waiting], error: BaseException) -> None:
        for message, future in items:
            self._window.leave(len(message.body))
            if future.done():
                continue
            self._window.failed += 1
            if isinstance(error, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(own_copy(error))
