"""One send from its first attempt to its result: retries, back-off, fault notes.

A state machine driven by callbacks, so that a pipelined send costs no task.

Source: DefaultMQProducerImpl.sendDefaultImpl (5.4.0), with flow control as its own case.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocketpy.client.outgoing import Outgoing
from rocketpy.client.send_result import SendResult, read_send_response
from rocketpy.errors import BrokerError, NoRouteError, RequestTimeoutError, RocketPyError
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.message_queue import MessageQueue

if TYPE_CHECKING:
    from rocketpy.client.sender import Sender

QueueChooser = Callable[[Sequence[MessageQueue]], MessageQueue]

RETRYABLE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
FLOW_CONTROL_CODES = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.TOO_MANY_REQUESTS,
    }
)

INITIAL_BACKOFF_MS = 1000
BACKOFF_FACTOR = 1.6
BACKOFF_JITTER = 0.2
MAX_BACKOFF_MS = 120_000


def backoff_ms(failures: int, rng: random.Random) -> int:
    """Return the pause after the n-th flow-control answer in a row, n from 1."""
    pause = min(INITIAL_BACKOFF_MS * BACKOFF_FACTOR ** (failures - 1), MAX_BACKOFF_MS)
    return int(pause * (1 + rng.uniform(-BACKOFF_JITTER, BACKOFF_JITTER)))


class SendOperation:
    """One message (or batch) on its way.

    Args:
        sender: what attempts are made with.
        topic: where to.
        message: the wire's parts.
        code: SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE.
        timeout_ms: for all attempts.
        attempts: at most this many.
        choose: picks the one queue allowed; None takes the queues in turn.
    """

    __slots__ = (
        "_attempt", "_attempts", "_choose", "_code", "_deadline_ms", "_flow_controlled",
        "_last_broker", "_message", "_notes", "_queue", "_sender", "_started_ms", "future",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        sender: "Sender",
        topic: str,
        message: Outgoing,
        code: int,
        *,
        timeout_ms: int,
        attempts: int,
        choose: QueueChooser | None,
    ) -> None:
        self._sender = sender
        self.topic = topic
        self._message = message
        self._code = code
        self._deadline_ms = sender.clock.monotonic_ms() + timeout_ms
        self._attempts = attempts
        self._choose = choose
        self._attempt = 0
        self._flow_controlled = 0
        self._last_broker: str | None = None
        self._notes: list[str] | None = None
        self._queue: MessageQueue | None = None
        self._started_ms = 0
        self.future: asyncio.Future[SendResult] = sender.loop.create_future()

    @property
    def size_bytes(self) -> int:
        """What it counts for in the limit of bytes in flight."""
        return len(self._message.body)

    def attempt(self) -> None:
        """Make the next attempt, or fail if time is up."""
        sender = self._sender
        now = self._started_ms = sender.clock.monotonic_ms()
        left_ms = self._deadline_ms - now
        if left_ms <= 0:
            self._finish_error(RequestTimeoutError(f"sending to {self.topic} ran out of time"))
            return
        self._attempt += 1
        try:
            if self._choose is None:
                queue = sender.next_queue(self.topic, self._last_broker)
            else:
                queue = self._choose(sender.queues(self.topic))
            self._queue = queue
            response = sender.transmit(queue, self._message, self._code, left_ms)
        except RocketPyError as error:
            self._failed(error, reachable=False)
            return
        except Exception as error:  # noqa: BLE001 - the user's selector may raise anything
            self._finish_error(error)
            return
        response.add_done_callback(self._answered)

    def fail(self, error: BaseException) -> None:
        """End without a result."""
        self._finish_error(error)

    def _answered(self, future: asyncio.Future[RemotingCommand]) -> None:
        if future.cancelled():
            self._finish_error(asyncio.CancelledError())
            return
        error = future.exception()
        if error is not None:
            if isinstance(error, RocketPyError):
                self._failed(error, reachable=False)
            else:
                self._finish_error(error)
            return
        response = future.result()
        queue = self._queue
        assert queue is not None
        try:
            result = read_send_response(response, queue, self._message.msg_id)
        except RocketPyError as unreadable:
            self._finish_error(unreadable)
            return
        if result is None:
            self._failed(BrokerError.from_code(response.code, response.remark), reachable=True)
            return
        sender = self._sender
        if sender.faults is not None:
            elapsed_ms = sender.clock.monotonic_ms() - self._started_ms
            sender.faults.update(queue.broker_name, elapsed_ms)
        sender.release(self)
        if not self.future.done():
            self.future.set_result(result)

    def _failed(self, error: RocketPyError, *, reachable: bool) -> None:
        """Note a failed attempt, then try again or give up."""
        sender = self._sender
        broker = self._queue.broker_name if self._queue is not None else None
        if sender.faults is not None and broker is not None:
            elapsed_ms = sender.clock.monotonic_ms() - self._started_ms
            sender.faults.update(broker, elapsed_ms, failed=True, reachable=reachable)
        if isinstance(error, NoRouteError) or not reachable:
            sender.routes_doubtful()
        if self.future.done() or self._attempt >= self._attempts or not self._is_retryable(error):
            self._finish_error(error)
            return
        pause_ms = self._pause_ms(error)
        if sender.clock.monotonic_ms() + pause_ms >= self._deadline_ms:
            self._finish_error(error)
            return
        if self._notes is None:
            self._notes = []
        self._notes.append(f"attempt {self._attempt} on {broker}: {error!r}")
        self._last_broker = broker
        if pause_ms > 0:
            sender.loop.call_later(pause_ms / 1000, self.attempt)
        else:
            self.attempt()

    def _is_retryable(self, error: RocketPyError) -> bool:
        if not isinstance(error, BrokerError):
            return error.retriable
        if error.code in FLOW_CONTROL_CODES:
            return self._sender.config.flow_control_retry != "none"
        return error.code in RETRYABLE_CODES

    def _pause_ms(self, error: RocketPyError) -> int:
        if not isinstance(error, BrokerError) or error.code not in FLOW_CONTROL_CODES:
            return 0
        self._flow_controlled += 1
        if self._sender.config.flow_control_retry == "immediate":
            return 0
        return backoff_ms(self._flow_controlled, self._sender.rng)

    def _finish_error(self, error: BaseException) -> None:
        self._sender.release(self)
        if self.future.done():
            return
        for note in self._notes or ():
            error.add_note(note)
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)
