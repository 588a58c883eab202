"""One send from its first attempt to its result, as a state machine: retries, pauses, back-off.

Driven by callbacks, so that a pipelined send costs no task. What leads from one state to another:

    from            event                                                        to
    NEW             start                                                        ROUTING
    ROUTING         the topic has queues to write to                             SENDING
    ROUTING         it has none now, with time left                              PAUSING
    ROUTING         time is up, nobody waits, or an error that no time mends     DONE
    SENDING         a retriable error, or its share is over, with attempts left  SENDING
    SENDING         flow control, with attempts and time left                    BACKING_OFF
    SENDING         every broker refuses the connection, with time left          PAUSING
    SENDING         no attempts left, and an earlier one is unanswered           LISTENING
    SENDING         stored, no attempts or time left, or a lasting error         DONE
    LISTENING       an earlier attempt is stored after all, or the last fails    DONE
    BACKING_OFF     the pause is over                                            SENDING
    BACKING_OFF     an earlier attempt is stored after all, or nobody waits      DONE
    PAUSING         the pause is over                                            ROUTING
    PAUSING         an earlier attempt is stored after all, or nobody waits      DONE

An attempt whose share of the time is over is not given up: its response still counts until the
whole time is. So a broker that is slow costs a second copy, and a frozen one a share of the time.
Every send leaves the window exactly once: when it is DONE.

What a send promises is in docs/sending.md.

Source: DefaultMQProducerImpl.sendDefaultImpl (5.4.0); flow control, shares and pauses are ours.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from rocketpy.client.sending.attempt import SendAttempt, SendFailures
from rocketpy.client.sending.backoff import backoff_ms, share_ms, wait_to_look_again_ms
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.queue_selection import RoundRobin, checked_choice
from rocketpy.client.sending.result import SendResult, read_send_response, result_of
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import (
    BrokerError,
    ConnectError,
    FlowControlError,
    IllegalMessageError,
    NoRouteError,
    RequestTimeoutError,
    RocketPyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.compiled_requests import StoredAnswer

QueueChooser = Callable[[Sequence[MessageQueue]], MessageQueue]

RETRYABLE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Codes that another broker may not answer with; those of flow control come on top."""

LOOKS_FOR_UNKNOWN: Final = 3
"""Pauses, of half a second in all, in which a broker that a caller names may turn up in routes."""


class State(Enum):
    """Where a send stands; `after` are the states that may follow."""

    after: tuple["State", ...]

    NEW = auto()
    ROUTING = auto()
    SENDING = auto()
    BACKING_OFF = auto()
    PAUSING = auto()
    LISTENING = auto()
    DONE = auto()


TRANSITIONS: Final[dict[State, tuple[State, ...]]] = {
    State.NEW: (State.ROUTING,),
    State.ROUTING: (State.SENDING, State.PAUSING, State.DONE),
    State.SENDING: (
        State.SENDING,
        State.BACKING_OFF,
        State.PAUSING,
        State.LISTENING,
        State.DONE,
    ),
    State.BACKING_OFF: (State.SENDING, State.DONE),
    State.PAUSING: (State.ROUTING, State.DONE),
    State.LISTENING: (State.DONE,),
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
        timeout_ms: for everything, the look-up of the route included.
        attempts: at most so many that may have reached a broker; 1 for what must not be repeated.
        choose: picks the one queue allowed; None takes the queues in turn.
        waits_for_broker: go on while no broker can be reached; otherwise that is an error at once.
    """

    __slots__ = (
        "_attempt", "_attempts", "_brokers", "_choose", "_deadline_ms", "_is_heard", "_message",
        "_queue", "_slot", "_started_ms", "_state", "_timer", "_topic", "_transport", "_trouble",
        "_waits_for_broker", "_window", "future",
    )  # fmt: skip

    def __init__(
        self,
        window: InFlightWindow,
        transport: SendTransport,
        topic: str,
        message: Outgoing,
        *,
        timeout_ms: int,
        attempts: int,
        choose: QueueChooser | None,
        waits_for_broker: bool = True,
    ) -> None:
        self._window = window
        self._transport = transport
        self._topic = topic
        self._message = message
        self._started_ms = transport.clock.monotonic_ms()
        self._deadline_ms = self._started_ms + timeout_ms
        self._attempts = attempts
        self._choose = choose
        self._waits_for_broker = waits_for_broker
        self._trouble: SendFailures | None = None
        self._brokers: frozenset[str]
        self._queue: MessageQueue | None
        self._attempt: SendAttempt | None = None
        self._slot = 0
        self._timer: asyncio.Handle | None = None
        self._is_heard = False
        self._state = State.NEW
        self.future: asyncio.Future[SendResult] = transport.loop.create_future()

    def start(self) -> None:
        """Enter the window and make the first attempt, once the topic's route is known.

        Raises:
            ClosedError: the producer is closed.
        """
        self._window.enter(len(self._message.body))
        route = self._transport.cached_route(self._topic)
        if route is None:
            self._route()
        else:
            self._go(State.ROUTING)
            self._try_at(self._started_ms, route)

    def _go(self, state: State) -> None:
        assert state in self._state.after, f"{self._state} -> {state}"
        self._state = state

    # ---- waiting

    def _wait(self, wait_ms: int, then: Callable[[], None]) -> None:
        """Go on later, unless nobody waits for the result any more."""
        self._hear_of_cancelling()
        self._timer = self._transport.loop.call_later(wait_ms / 1000, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hear_of_cancelling(self) -> None:
        if not self._is_heard:
            self._is_heard = True
            self.future.add_done_callback(self._nobody_waits)

    def _nobody_waits(self, _: asyncio.Future[SendResult]) -> None:
        if self._state not in {State.SENDING, State.DONE}:
            self._leave()

    def _had_trouble(self) -> SendFailures:
        if self._trouble is None:
            self._trouble = SendFailures()
        return self._trouble

    def _left_ms(self) -> int:
        return self._deadline_ms - self._transport.clock.monotonic_ms()

    # ---- the route

    def _route(self) -> None:
        self._go(State.ROUTING)
        self._transport.when_routed(self._topic, self._routed)
        if self._state is State.ROUTING:  # nobody knows it yet
            self._wait(self._left_ms(), self._out_of_time)

    def _routed(self, error: Exception | None) -> None:
        if self._state is not State.ROUTING:  # out of time while it was asked for
            return
        self._stop_timer()
        if error is None:
            self._try()
        elif isinstance(error, RocketPyError) and error.retriable and self._waits_for_broker:
            self._pause(error)
        else:
            self._finish_error(error)

    def _out_of_time(self) -> None:
        """End with the last attempt's error."""
        error = None if self._trouble is None else self._trouble.error
        if error is None:
            text = f"sending to {self._topic} ran out of time"
            if self._state is State.ROUTING:
                text += ": no name server has said yet who serves the topic; nothing was sent"
            error = RequestTimeoutError(text)
        self._finish_error(error)

    def _pause(self, error: RocketPyError) -> None:
        """Nobody can be reached now: look again in a while, once more just before the end."""
        trouble = self._had_trouble()
        trouble.error = error
        left_ms = self._left_ms()
        if left_ms <= 0:
            self._finish_error(error)
            return
        trouble.pauses += 1
        wait_ms = wait_to_look_again_ms(trouble.pauses, error, left_ms)
        trouble.refused = frozenset()
        self._go(State.PAUSING)
        self._note_retry(wait_ms)
        self._wait(wait_ms, self._route)

    # ---- attempts

    def _try(self) -> None:
        """Make the next attempt, unless time is up or nobody waits for the result."""
        if self.future.done():
            self._leave()
        else:
            self._try_at(self._transport.clock.monotonic_ms())

    def _try_at(self, now: int, route: RoundRobin | None = None) -> None:
        self._go(State.SENDING)
        transport = self._transport
        self._started_ms = now
        left_ms = self._deadline_ms - now
        if left_ms <= 0:
            self._out_of_time()
            return
        self._queue = None
        trouble = self._trouble
        try:
            if route is None:
                route = transport.route(self._topic)
            self._brokers = route.brokers
            if self._choose is not None:
                destination = route.destination(
                    checked_choice(self._choose(route.queues), self._topic)
                )
            elif trouble is None:
                destination = route.next()
            else:
                destination = route.next(trouble.failed, trouble.refused)
            queue = self._queue = destination.queue
            attempt = self._attempt = SendAttempt(self, transport.loop, queue, now, left_ms)
            transport.transmit(attempt, destination, self._message)
        except RocketPyError as error:
            self._attempt = None
            self._attempt_failed(error)
            return
        except Exception as error:  # noqa: BLE001 - the user's selector may raise anything
            self._attempt = None
            self._finish_error(error)
            return
        if len(self._brokers) > 1:
            self._watch(left_ms, trouble)

    def _watch(self, left_ms: int, trouble: SendFailures | None) -> None:
        """Give the attempt its share of the time, if another one may follow."""
        attempts_left = self._attempts - (trouble.attempts if trouble is not None else 0)
        if attempts_left <= 1:
            return
        transport = self._transport
        is_controlled = trouble is not None and trouble.flow_control_count > 0
        share = transport.attempt_timeout_ms or share_ms(
            left_ms, attempts_left, flow_control_count=is_controlled
        )
        self._slot = transport.watch.add(self, self._started_ms + share)

    def share_over(self) -> None:
        """Try another broker, and keep listening: the attempt has had its share of the time."""
        self._slot = 0
        attempt = self._attempt
        assert attempt is not None
        self._had_trouble().late[attempt] = None
        self._attempt = None
        waited_ms = self._transport.clock.monotonic_ms() - self._started_ms
        broker = self._transport.describe_broker(attempt.queue.broker_name)
        words = f"no answer from {broker} to a send within {waited_ms} ms"
        self._attempt_failed(RequestTimeoutError(words))

    def responded(
        self,
        attempt: SendAttempt,
        response: RemotingCommand | None,
        error: BaseException | None,
    ) -> None:
        """Go on with what became of an attempt: a response or an error."""
        is_late = attempt is not self._attempt
        if not self._is_expected(attempt):
            return
        if response is not None:
            try:
                result = read_send_response(response, attempt.queue, self._message.msg_id)
            except RocketPyError as unreadable:
                self._finish_error(unreadable)
                return
            if result is not None:
                self._stored(attempt, result)
                return
            error = BrokerError.from_code(response.code, response.remark)
        assert error is not None
        if is_late:
            if self._state is State.LISTENING and not self._had_trouble().late:
                self._out_of_time()
        elif isinstance(error, RocketPyError):
            self._attempt_failed(error)
        else:
            self._finish_error(error)

    def stored(self, attempt: SendAttempt, answer: StoredAnswer) -> None:
        """End with the answer that an attempt is stored."""
        if self._is_expected(attempt):
            self._stored(attempt, result_of(answer, attempt.queue, self._message.msg_id))

    def _is_expected(self, attempt: SendAttempt) -> bool:
        """Wait for this attempt no more; False when another one has ended the send."""
        is_late = attempt is not self._attempt
        if not is_late:
            self._attempt = None
        if self._state is State.DONE:
            return False
        if is_late:
            del self._had_trouble().late[attempt]
        elif self._slot:
            self._unwatch()
        return True

    def _stored(self, attempt: SendAttempt, result: SendResult) -> None:
        transport = self._transport
        if transport.tracks_latency:
            elapsed_ms = transport.clock.monotonic_ms() - attempt.started_ms
            transport.note_success(attempt.queue.broker_name, elapsed_ms)
        self._leave()
        if not self.future.done():
            self.future.set_result(result)

    def _attempt_failed(self, error: RocketPyError) -> None:
        """Note how it failed, then try again, now or later, or give up."""
        queue = self._queue
        broker = queue.broker_name if queue is not None else None
        elapsed_ms = self._transport.clock.monotonic_ms() - self._started_ms
        is_answer = isinstance(error, BrokerError | IllegalMessageError)  # no fault of the network
        self._transport.note_failure(broker, elapsed_ms, reachable=is_answer)
        trouble = self._had_trouble()
        trouble.remember(broker, error)
        if isinstance(error, ConnectError | NoRouteError):  # nothing was sent: it does not count
            self._not_reached(trouble, broker, error)
            return
        trouble.refused = frozenset()
        trouble.attempts += 1
        has_attempts = trouble.attempts < self._attempts
        if isinstance(error, FlowControlError):
            self._back_off(trouble, error, has_attempts=has_attempts)
        elif not self._is_retryable(error):
            self._finish_error(error)
        elif has_attempts:
            self._again()
        else:
            self._give_up(error)

    def _not_reached(self, trouble: SendFailures, broker: str | None, error: RocketPyError) -> None:
        """Try another broker at once; when all have refused, wait for one to come back.

        A broker that no route has named is looked for in fresh routes only: it need not exist.
        """
        is_unheard_of = broker is not None and not self._transport.has_heard_of(broker)
        is_hopeless = is_unheard_of and trouble.pauses >= LOOKS_FOR_UNKNOWN
        if self.future.done() or not self._waits_for_broker or is_hopeless:
            self._give_up(error)
            return
        if broker is not None:
            trouble.refused |= {broker}
            if self._choose is None and self._brokers - trouble.refused:
                self._again()
                return
        self._pause(error)

    def _back_off(
        self, trouble: SendFailures, error: FlowControlError, *, has_attempts: bool
    ) -> None:
        """Wait as long as the busy broker has earned, if that is wanted and there is time."""
        trouble.flow_control_count += 1
        until_ms = self._started_ms + backoff_ms(trouble.flow_control_count, self._transport.rng)
        wait_ms = max(0, until_ms - self._transport.clock.monotonic_ms())
        error.retry_after = wait_ms / 1000
        wanted = self._transport.flow_control_retry
        if wanted == "none" or not has_attempts:
            self._give_up(error)
        elif wanted == "immediate":
            self._again()
        elif wait_ms >= self._left_ms():
            self._give_up(error)
        else:
            self._go(State.BACKING_OFF)
            self._note_retry(wait_ms)
            self._wait(wait_ms, self._try)

    @staticmethod
    def _is_retryable(error: RocketPyError) -> bool:
        if isinstance(error, BrokerError):
            return error.code in RETRYABLE_CODES
        return error.retriable

    def _again(self) -> None:
        """Make the next attempt from the loop: a round over many brokers is no recursion."""
        self._note_retry(0)
        self._timer = self._transport.loop.call_soon(self._try)

    def _note_retry(self, wait_ms: int) -> None:
        trouble = self._had_trouble()
        broker = trouble.failed[-1] if trouble.failed else None
        self._transport.retries.note(
            self._topic, self._message.msg_id, trouble.tries, broker, trouble.error, wait_ms
        )

    # ---- the end

    def _give_up(self, error: RocketPyError) -> None:
        """End with an error, unless an earlier attempt may still be answered."""
        trouble = self._had_trouble()
        if trouble.late and not self.future.done():
            trouble.error = error
            self._go(State.LISTENING)
            self._hear_of_cancelling()
        else:
            self._finish_error(error)

    def _finish_error(self, error: BaseException) -> None:
        self._leave()
        if self.future.done():
            return
        self._window.failed += 1
        if self._trouble is not None:
            self._trouble.add_notes(error)
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)

    def _unwatch(self) -> None:
        self._transport.watch.discard(self, self._slot)
        self._slot = 0

    def _leave(self) -> None:
        self._go(State.DONE)
        if self._slot:
            self._unwatch()
        if self._timer is not None:
            self._stop_timer()
        self._window.leave(len(self._message.body))
