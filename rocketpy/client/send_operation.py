"""One send from its first attempt to its result, as a state machine: retries and back-off.

Driven by callbacks, so that a pipelined send costs no task. What leads from one state to another:

    from            event                                              to
    NEW             start                                              ROUTING
    ROUTING         the topic has queues to write to                   SENDING
    ROUTING         it has none, or nobody waits for the result        DONE
    SENDING         stored, or an error that another try cannot mend   DONE
    SENDING         a retriable error, with attempts and time left     SENDING
    SENDING         flow control, with attempts and time left          BACKING_OFF
    BACKING_OFF     the pause is over                                  SENDING
    BACKING_OFF     it is, and nobody waits for the result             DONE
    SENDING         no time left when it begins                        DONE

Every send leaves the window exactly once: when it is DONE.

Step 2 of a message's life (docs/ARCHITECTURE.md).

Source: DefaultMQProducerImpl.sendDefaultImpl (5.4.0), with flow control as its own case.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from rocketpy.client.config import FlowControlRetry
from rocketpy.client.outgoing import Outgoing
from rocketpy.client.send_result import SendResult, read_send_response
from rocketpy.client.send_transport import SendTransport
from rocketpy.client.send_window import SendWindow
from rocketpy.errors import BrokerError, RequestTimeoutError, RocketPyError
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.message_queue import MessageQueue

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
    """Return the pause after the n-th flow-control response in a row, n from 1."""
    pause = min(INITIAL_BACKOFF_MS * BACKOFF_FACTOR ** (failures - 1), MAX_BACKOFF_MS)
    return int(pause * (1 + rng.uniform(-BACKOFF_JITTER, BACKOFF_JITTER)))


class State(Enum):
    """Where a send stands; `after` are the states that may follow."""

    after: tuple["State", ...]

    NEW = auto()
    ROUTING = auto()
    SENDING = auto()
    BACKING_OFF = auto()
    DONE = auto()


TRANSITIONS: Final[dict[State, tuple[State, ...]]] = {
    State.NEW: (State.ROUTING,),
    State.ROUTING: (State.SENDING, State.DONE),
    State.SENDING: (State.SENDING, State.BACKING_OFF, State.DONE),
    State.BACKING_OFF: (State.SENDING, State.DONE),
    State.DONE: (),
}
# On the members themselves, because looking an enum's member up in a dict costs each send 2 us.
for _state, _after in TRANSITIONS.items():
    _state.after = _after


class SendOperation:
    """One message (or batch) on its way.

    Args:
        window: what it counts in.
        transport: what attempts are made with.
        topic: where to.
        message: the wire's parts.
        timeout_ms: for all attempts.
        attempts: at most this many.
        choose: picks the one queue allowed; None takes the queues in turn.
        flow_control_retry: what to do when a broker is over its capacity.
    """

    __slots__ = (
        "_attempt", "_attempts", "_choose", "_deadline_ms", "_flow_control_retry",
        "_flow_controlled", "_last_broker", "_message", "_notes", "_queue", "_started_ms",
        "_state", "_topic", "_transport", "_window", "future",
    )  # fmt: skip

    def __init__(
        self,
        window: SendWindow,
        transport: SendTransport,
        topic: str,
        message: Outgoing,
        *,
        timeout_ms: int,
        attempts: int,
        choose: QueueChooser | None,
        flow_control_retry: FlowControlRetry,
    ) -> None:
        self._window = window
        self._transport = transport
        self._topic = topic
        self._message = message
        self._deadline_ms = transport.clock.monotonic_ms() + timeout_ms
        self._attempts = attempts
        self._choose = choose
        self._flow_control_retry = flow_control_retry
        self._attempt = 0
        self._flow_controlled = 0
        self._last_broker: str | None = None
        self._notes: list[str] | None = None
        self._queue: MessageQueue | None = None
        self._started_ms = 0
        self._state = State.NEW
        self.future: asyncio.Future[SendResult] = transport.loop.create_future()

    def start(self) -> None:
        """Enter the window and make the first attempt, once the topic's route is known.

        Raises:
            ClosedError: the producer is closed.
        """
        self._window.enter(len(self._message.body))
        self._go(State.ROUTING)
        self._transport.when_routed(self._topic, self._routed)

    def _go(self, state: State) -> None:
        assert state in self._state.after, f"{self._state} -> {state}"
        self._state = state

    def _routed(self, error: Exception | None) -> None:
        if error is None:
            self._try()
        else:
            self._finish_error(error)

    def _try(self) -> None:
        """Make the next attempt, unless time is up or the caller has cancelled."""
        if self.future.done():
            self._leave()
            return
        self._go(State.SENDING)
        self._queue = None
        transport = self._transport
        now = self._started_ms = transport.clock.monotonic_ms()
        left_ms = self._deadline_ms - now
        if left_ms <= 0:
            self._finish_error(RequestTimeoutError(f"sending to {self._topic} ran out of time"))
            return
        self._attempt += 1
        try:
            if self._choose is None:
                queue = transport.next_queue(self._topic, self._last_broker)
            else:
                queue = self._choose(transport.queues(self._topic))
            self._queue = queue
            response = transport.transmit(queue, self._message, left_ms)
        except RocketPyError as error:
            self._failed(error, reachable=False)
            return
        except Exception as error:  # noqa: BLE001 - the user's selector may raise anything
            self._finish_error(error)
            return
        response.add_done_callback(self._responded)

    def _responded(self, future: asyncio.Future[RemotingCommand]) -> None:
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
        self._transport.note_success(queue.broker_name, self._elapsed_ms())
        self._leave()
        if not self.future.done():
            self.future.set_result(result)

    def _failed(self, error: RocketPyError, *, reachable: bool) -> None:
        """Note a failed attempt, then try again or give up."""
        broker = self._queue.broker_name if self._queue is not None else None
        self._transport.note_failure(broker, self._elapsed_ms(), reachable=reachable)
        if self.future.done() or self._attempt >= self._attempts or not self._is_retryable(error):
            self._finish_error(error)
            return
        pause_ms = self._pause_ms(error)
        if self._transport.clock.monotonic_ms() + pause_ms >= self._deadline_ms:
            self._finish_error(error)
            return
        if self._notes is None:
            self._notes = []
        self._notes.append(f"attempt {self._attempt} on {broker}: {error!r}")
        if broker is not None:
            self._last_broker = broker
        if pause_ms > 0:
            self._go(State.BACKING_OFF)
            self._transport.loop.call_later(pause_ms / 1000, self._try)
        else:
            self._try()

    def _elapsed_ms(self) -> int:
        return self._transport.clock.monotonic_ms() - self._started_ms

    def _is_retryable(self, error: RocketPyError) -> bool:
        if not isinstance(error, BrokerError):
            return error.retriable
        if error.code in FLOW_CONTROL_CODES:
            return self._flow_control_retry != "none"
        return error.code in RETRYABLE_CODES

    def _pause_ms(self, error: RocketPyError) -> int:
        if not isinstance(error, BrokerError) or error.code not in FLOW_CONTROL_CODES:
            return 0
        self._flow_controlled += 1
        if self._flow_control_retry == "immediate":
            return 0
        return backoff_ms(self._flow_controlled, self._transport.rng)

    def _finish_error(self, error: BaseException) -> None:
        self._leave()
        if self.future.done():
            return
        for note in self._notes or ():
            error.add_note(note)
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)

    def _leave(self) -> None:
        self._go(State.DONE)
        self._window.leave(len(self._message.body))
