"""Sends that threads start without waiting for them: queued, and started together on the loop.

A hop to the loop's thread and back costs more than the send itself. So the calling thread builds
the message, and refuses it if it breaks a limit; the loop is woken once for all queued messages.

    from       event                              to
    (none)     built, and within the limits       queued
    queued     the loop runs                      in flight
    in flight  stored, or failed                  the future has its result
"""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.producer.pipeline import PreparedSend
from rocketpy.client.producer.producer import Producer
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import ClosedError

_CHECK_S: Final = 0.1
"""Sends of coroutines on the loop count, too, and do not notify waiting threads."""


class _QueuedSend(NamedTuple):
    """A message in the queue; `result` is None for a one-way send."""

    prepared: PreparedSend
    result: Future[SendResult] | None


class BlockingSendQueue:
    """Starts sends of one producer for any threads.

    Args:
        thread: runs the producer.
        producer: sends the messages; it has no middlewares.
    """

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._config = producer.config
        self._pipeline = producer._pipeline()  # noqa: SLF001 - same package
        self._queue: deque[_QueuedSend] = deque()
        self._is_woken = False
        self._changed = threading.Condition()  # guards the queue's end and the fields below
        self._waiting = 0  # threads that wait for space
        self._queued_bytes = 0  # of all messages ever queued
        self._started_bytes = 0  # of all messages ever started; only the loop writes it

    def send(self, topic: str | Message, body: object, options: SendOptions) -> Future[SendResult]:
        """Queue a message, once it fits into the limits; see `sync.Producer.send_nowait`."""
        result: Future[SendResult] = Future()
        result.set_running_or_notify_cancel()  # a queued send cannot be cancelled
        self._add(topic, body, options, result)
        return result

    def send_oneway(self, topic: str | Message, body: object, options: SendOptions) -> None:
        """Queue a one-way message, once it fits into the limits."""
        self._add(topic, body, options, None)

    def wait_for_space(self) -> None:
        """Wait until one more message fits into the limits."""
        self._check()
        with self._changed:
            self._wait()

    def _add(
        self,
        topic: str | Message,
        body: object,
        options: SendOptions,
        result: Future[SendResult] | None,
    ) -> None:
        self._check()
        with self._changed:
            msg_id = self._pipeline.next_msg_id()
        prepared = self._pipeline.prepare(topic, body, options, msg_id)
        with self._changed:
            self._wait()
            self._queue.append(_QueuedSend(prepared, result))
            self._queued_bytes += len(prepared.message.body)
            if self._is_woken:
                return
            self._is_woken = True  # set first: the loop may run and clear it at once
            try:
                self._thread.call_soon(self._start_all)
            except ClosedError:
                self._is_woken = False
                self._queue.pop()
                raise

    def _check(self) -> None:
        self._thread.check()
        self._thread.check_alive()
        self._pipeline.check_open()

    def _has_space(self, spare: int) -> bool:
        config, window = self._config, self._pipeline.window
        count = window.messages + len(self._queue)
        if count and count >= config.max_in_flight - spare:
            return False
        size_bytes = window.bytes + self._queued_bytes - self._started_bytes
        return size_bytes < config.max_in_flight_bytes

    def _wait(self) -> None:
        """Wait for space, with the lock; once full, for a quarter: each wait costs a switch."""
        if self._has_space(0):
            return
        self._waiting += 1
        try:
            while not self._has_space(self._spare):
                self._check()
                self._changed.wait(_CHECK_S)
        finally:
            self._waiting -= 1

    @property
    def _spare(self) -> int:
        return self._config.max_in_flight // 4

    # ---- on the loop

    def _start_all(self) -> None:
        self._is_woken = False
        queue = self._queue
        while queue:
            prepared, result = queue.popleft()
            self._started_bytes += len(prepared.message.body)
            try:
                if result is None:
                    self._pipeline.start_oneway(prepared)
                else:
                    sent = self._pipeline.start(prepared)
                    sent.add_done_callback(partial(self._ended, result))
            except Exception as error:  # noqa: BLE001 - the future reports it
                if result is not None:
                    result.set_exception(error)

    def _ended(self, result: Future[SendResult], sent: asyncio.Future[SendResult]) -> None:
        copy_outcome(result, sent)
        if self._waiting and self._has_space(self._spare):
            with self._changed:
                self._changed.notify_all()


def copy_outcome(result: Future[SendResult], sent: asyncio.Future[SendResult]) -> None:
    """Complete a future of other threads with the outcome of one of the loop."""
    if sent.cancelled():
        result.set_exception(ClosedError("the client was closed before the send completed"))
    elif (error := sent.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(sent.result())
