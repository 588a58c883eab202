"""Sends that threads start and do not wait for: gathered, and begun by one wake-up of the loop.

A hop to the loop's thread and back costs more than the send itself. So the message is built, and
refused if it breaks a limit, on the thread that sends; the loop hears of many with one wake-up.

    from       event                                                to
    (none)     sent: built, and it fits in what may be in flight    in line
    in line    the loop comes by                                    in flight, by the producer
    in flight  stored, or failed                                    the future has its result
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
from rocketpy.client.producer.producer import Producer
from rocketpy.client.producer.producer_base import PreparedSend
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import ClosedError

_LOOK_AGAIN_S: Final = 0.1
"""Others than we have sends in flight; nobody says when those end."""


class _Waiting(NamedTuple):
    """A message in line; `result` is None when nobody wants to know what becomes of it."""

    prepared: PreparedSend
    result: Future[SendResult] | None


class BlockingSendQueue:
    """Starts sends of one producer for any threads.

    Args:
        thread: where the producer runs.
        producer: sends; it has no middlewares.
    """

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._config = producer.config
        # Who prepares, begins and counts them is of one family with the producer.
        self._prepare = producer._prepare  # noqa: SLF001
        self._transport = producer._transport  # noqa: SLF001
        self._start = producer._start  # noqa: SLF001
        self._start_oneway = producer._start_oneway  # noqa: SLF001
        self._check_open = producer._check_open  # noqa: SLF001
        self._window = producer._window  # noqa: SLF001
        self._next_id = producer._other_msg_ids().next  # noqa: SLF001
        self._line: deque[_Waiting] = deque()
        self._is_told = False
        self._changed = threading.Condition()
        self._blocked = 0  # threads that wait for room
        self._added_bytes = 0  # counted by threads, under the lock
        self._begun_bytes = 0  # counted by the loop

    def send(self, topic: str | Message, body: object, options: SendOptions) -> Future[SendResult]:
        """Put a message in line, once it fits into the limits; as `sync.Producer.send_nowait`."""
        result: Future[SendResult] = Future()
        result.set_running_or_notify_cancel()  # what is sent cannot be called back
        self._add(topic, body, options, result)
        return result

    def send_oneway(self, topic: str | Message, body: object, options: SendOptions) -> None:
        """Put a message in line that nobody waits for."""
        self._add(topic, body, options, None)

    def wait_for_room(self) -> None:
        """Wait until one more fits into the limits."""
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
            msg_id = self._next_id()
        prepared = self._prepare(topic, body, options, msg_id)
        with self._changed:
            self._wait()
            self._line.append(_Waiting(prepared, result))
            self._added_bytes += len(prepared.message.body)
            if self._is_told:
                return
            self._is_told = True  # before the loop may say otherwise
            try:
                self._thread.call_soon(self._begin_all)
            except ClosedError:
                self._is_told = False
                self._line.pop()
                raise

    def _check(self) -> None:
        self._thread.check()
        self._thread.check_alive()
        self._check_open()

    def _has_room(self, spare: int) -> bool:
        config, window = self._config, self._window
        count = window.messages + len(self._line)
        if count and count >= config.max_in_flight - spare:
            return False
        size_bytes = window.bytes + self._added_bytes - self._begun_bytes
        return size_bytes < config.max_in_flight_bytes

    def _wait(self) -> None:
        """Wait for room, with the lock; once there is none, for some: each wait costs a switch."""
        if self._has_room(0):
            return
        self._blocked += 1
        try:
            while not self._has_room(self._spare):
                self._check()
                self._changed.wait(_LOOK_AGAIN_S)
        finally:
            self._blocked -= 1

    @property
    def _spare(self) -> int:
        return self._config.max_in_flight // 4

    # ---- on the loop

    def _begin_all(self) -> None:
        self._is_told = False
        line = self._line
        while line:
            prepared, result = line.popleft()
            self._begun_bytes += len(prepared.message.body)
            try:
                if result is None:
                    self._start_oneway(prepared)
                else:
                    sent = self._start(self._transport(), prepared, is_pipelined=True)
                    sent.add_done_callback(partial(self._ended, result))
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                if result is not None:
                    result.set_exception(error)

    def _ended(self, result: Future[SendResult], sent: asyncio.Future[SendResult]) -> None:
        follow(result, sent)
        if self._blocked and self._has_room(self._spare):
            with self._changed:
                self._changed.notify_all()


def follow(result: Future[SendResult], sent: asyncio.Future[SendResult]) -> None:
    """End a future of other threads as one of the loop has ended."""
    if sent.cancelled():
        result.set_exception(ClosedError("the client was closed meanwhile"))
    elif (error := sent.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(sent.result())
