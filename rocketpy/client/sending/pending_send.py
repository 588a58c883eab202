"""State machine of one send with its retries: attempts, pauses, back-off and the result.

Driven by callbacks, so that a pipelined send costs no task. Transitions:

    from            event                                                        to
    NEW             start                                                        ROUTING
    ROUTING         the topic has queues to write to                             SENDING
    ROUTING         it has none now, with time left                              PAUSING
    ROUTING         time is up, the caller left, or a lasting error              DONE
    SENDING         a retriable error, or its share is over, with attempts left  SENDING
    SENDING         flow control, with attempts and time left                    BACKING_OFF
    SENDING         every broker refuses the connection, with time left          PAUSING
    SENDING         no attempts left, and an earlier one is unanswered           LISTENING
    SENDING         stored, no attempts or time left, or a lasting error         DONE
    LISTENING       an earlier attempt is stored after all, or the last fails    DONE
    BACKING_OFF     the pause is over                                            SENDING
    BACKING_OFF     an earlier attempt is stored after all, or the caller left   DONE
    PAUSING         the pause is over, or the topic's route has changed          ROUTING
    PAUSING         an earlier attempt is stored after all, or the caller left   DONE

A response that arrives after the time-out of its attempt still ends the send, until the time of the
send is over. With a slow broker the message may therefore be stored twice; a frozen broker costs
only the time of one attempt. Every send leaves the window exactly once: when it is DONE.

The time of a send that waits for its topic's route begins with the next iteration of the loop. A
program that gathers thousands of sends keeps the loop busy until all of them are created, and
until then no response can be read.

The error says whether the message may be stored. One that is surely not sent raises
`NotSentError`; after an attempt without an answer, that attempt's error is raised, however the
later attempts failed.

docs/sending.md describes the guarantees of a send.

Source: DefaultMQProducerImpl.sendDefaultImpl (5.4.0); flow control, shares and pauses are ours.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from rocketpy.client.messages.outcomes import ENDS_PROGRAM
from rocketpy.client.sending.attempt import SendAttempt, SendFailures
from rocketpy.client.sending.backoff import (
    MAX_GRACE_MS,
    SHORT_PAUSES,
    STALL_MS,
    backoff_ms,
    retry_pause_ms,
    share_ms,
)
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.queue_selection import RoundRobin, checked_choice
from rocketpy.client.sending.result import (
    SendResult,
    SendStatus,
    read_send_response,
    result_of,
)
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import (
    BrokerError,
    ConnectError,
    FlowControlError,
    IllegalMessageError,
    InvalidParameterError,
    NoRouteError,
    NotSentError,
    RequestTimeoutError,
    RocketPyError,
    ServiceNotAvailableError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import ROLE_CHANGE, ResponseCode
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
"""Response codes after which another broker may succeed; flow control is separate."""

MAX_UNKNOWN_BROKER_PAUSES: Final = 3
"""Most pauses, half a second in all, for a broker that the caller names and no route contains."""


class State(Enum):
    """State of a send; `after` are the states that may follow."""

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
# On the members, because hashing an enum's member for a look-up costs each send 2 us.
for _state, _after in TRANSITIONS.items():
    _state.after = _after


def _is_of_old_route(error: RocketPyError) -> bool:
    """Return whether a refusal may come from an old route."""
    if isinstance(error, FlowControlError):  # of a broker that became a slave
        return error.remark.startswith("[REJECTREQUEST]")
    # The topic has fewer queues now; a slave acts for its master, and takes no messages; or the
    # broker hangs, and another one may have replaced it.
    return isinstance(error, InvalidParameterError | ServiceNotAvailableError | RequestTimeoutError)


def _is_nothing_stored(error: RocketPyError) -> bool:
    """Return whether no broker can have stored the message, so that it may be sent once more."""
    if isinstance(error, ServiceNotAvailableError):
        return error.remark.startswith(ROLE_CHANGE)
    return isinstance(error, ConnectError | NoRouteError)


class PendingSend:
    """Send of one message or batch.

    Args:
        window: counts the send.
        transport: makes the attempts.
        topic: destination.
        message: the message.
        timeout_ms: of the whole send, including the look-up of the route.
        attempts: most attempts that may reach a broker; 1 for a send that must not be repeated.
        choose: chooses the only queue allowed; None for a round robin.
        waits_for_broker: whether to keep trying while no broker can be reached; False raises at
            once.
    """

    __slots__ = (
        "_attempt", "_attempts", "_brokers", "_choose", "_deadline_ms", "_failures", "_is_watching",
        "_message", "_queue", "_slot", "_started_ms", "_state", "_timeout_ms", "_timer", "_topic",
        "_transport", "_waits_for_broker", "_window", "future",
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
        self._timeout_ms = timeout_ms
        self._deadline_ms = self._started_ms + timeout_ms
        self._attempts = attempts
        self._choose = choose
        self._waits_for_broker = waits_for_broker
        self._failures: SendFailures | None = None
        self._brokers: frozenset[str]
        self._queue: MessageQueue | None
        self._attempt: SendAttempt | None = None
        self._slot = 0
        self._timer: asyncio.Handle | None = None
        self._is_watching = False
        self._state = State.NEW
        self.future: asyncio.Future[SendResult] = transport.loop.create_future()

    def start(self) -> None:
        """Enter the window, and make the first attempt once the topic's route is known.

        Raises:
            ClosedError: the producer is closed.
        """
        # Before everything else: it is what raises when the producer is closed.
        self._window.enter(len(self._message.body))
        route = self._transport.cached_route(self._topic)
        if route is None:
            self._go(State.ROUTING)
            self._transport.when_routed(self._topic, self._routed)
            if self._state is State.ROUTING:
                self._watch_cancellation()
                # Not now: see the module's text on the time of a send.
                self._timer = self._transport.loop.call_soon(self._begin_time)
        else:
            self._go(State.ROUTING)
            self._try_at(self._started_ms, route)

    def _go(self, state: State) -> None:
        assert state in self._state.after, f"{self._state} -> {state}"
        self._state = state

    # ---- waiting

    def _wait(self, wait_ms: int, then: Callable[[], None]) -> None:
        """Call `then` later, unless the caller cancels its future."""
        self._watch_cancellation()
        self._timer = self._transport.loop.call_later(wait_ms / 1000, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_cancellation(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self.future.add_done_callback(self._caller_cancelled)

    def _caller_cancelled(self, _: asyncio.Future[SendResult]) -> None:
        if self._state not in {State.SENDING, State.DONE}:
            self._complete()

    def _failures_so_far(self) -> SendFailures:
        if self._failures is None:
            self._failures = SendFailures()
        return self._failures

    def _left_ms(self) -> int:
        return self._deadline_ms - self._transport.clock.monotonic_ms()

    # ---- the route

    def _begin_time(self) -> None:
        self._deadline_ms = self._transport.clock.monotonic_ms() + self._timeout_ms
        self._wait(self._timeout_ms, self._out_of_time)

    def _route(self) -> None:
        self._go(State.ROUTING)
        self._transport.when_routed(self._topic, self._routed)
        if self._state is State.ROUTING:  # the route is being fetched
            self._wait(self._left_ms(), self._out_of_time)

    def _routed(self, error: Exception | None) -> None:
        if self._state is not State.ROUTING:  # timed out while the route was fetched
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
        late_ms = -self._left_ms()
        if self._state is State.ROUTING and late_ms >= STALL_MS:
            # The loop stalled, so that a response may lie unread: the stall does not count.
            self._deadline_ms += late_ms + min(late_ms, MAX_GRACE_MS)
            self._wait(self._left_ms(), self._out_of_time)
            return
        error = None if self._failures is None else self._failures.error
        if error is None:
            text = f"sending to {self._topic} ran out of time"
            if self._state is State.ROUTING:
                text += ": no name server has answered with the topic's route"
            error = NotSentError(f"{text}; nothing was sent")
        self._finish_error(error)

    def _pause(self, error: RocketPyError) -> None:
        """Wait because no broker can be reached; try again, the last time just before the end."""
        failures = self._failures_so_far()
        failures.error = error
        left_ms = self._left_ms()
        if left_ms <= 0:
            self._finish_error(error)
            return
        failures.pauses += 1
        if failures.pauses <= SHORT_PAUSES:
            self._transport.refresh_routes_soon(is_urgent=True)
        # After a pause all brokers get another chance: each may be back.
        wait_ms = retry_pause_ms(failures.pauses, error, left_ms)
        failures.refused = frozenset()
        self._go(State.PAUSING)
        self._note_retry(wait_ms)
        self._transport.pause(self._topic, self)
        self._wait(wait_ms, self._resume)

    def _resume(self) -> None:
        self._transport.resume(self._topic, self)
        self._route()

    def route_changed(self) -> None:
        """End a pause: the route may have another master; the next pauses are short again."""
        if self._state is State.PAUSING and not self.future.done():
            self._stop_timer()
            self._failures_so_far().pauses = 0
            # Not at once: the routes are still being changed.
            self._timer = self._transport.loop.call_soon(self._route)

    # ---- attempts

    def _try(self) -> None:
        """Make the next attempt, unless time is up or the caller has cancelled."""
        if self.future.done():
            self._complete()
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
        failures = self._failures
        try:
            if route is None:
                route = transport.route(self._topic)
            self._brokers = route.brokers
            if self._choose is not None:
                destination = route.destination(
                    checked_choice(self._choose(route.queues), self._topic)
                )
            elif failures is None:
                destination = route.next()
            else:
                destination = route.next(failures.failed, failures.refused)
            queue = self._queue = destination.queue
            attempt = self._attempt = SendAttempt(self, transport.loop, queue, now, left_ms)
            transport.transmit(attempt, destination, self._message)
        except RocketPyError as error:
            self._attempt = None
            self._attempt_failed(error)
            return
        except ENDS_PROGRAM:
            raise
        except BaseException as error:  # noqa: BLE001 - the user's selector may raise anything
            self._attempt = None
            self._finish_error(error)
            return
        if len(self._brokers) > 1:
            self._watch(left_ms, failures)

    def _watch(self, left_ms: int, failures: SendFailures | None) -> None:
        """Set the time-out of the attempt, if another one may follow."""
        attempts_left = self._attempts - (failures.attempts if failures is not None else 0)
        if attempts_left <= 1:
            return
        transport = self._transport
        after_flow_control = failures is not None and failures.flow_control_count > 0
        share = transport.attempt_timeout_ms or share_ms(
            left_ms, attempts_left, after_flow_control=after_flow_control
        )
        self._slot = transport.watch.add(self, self._started_ms + share)

    def attempt_timed_out(self) -> None:
        """Try another broker after the attempt's time-out; its response still counts."""
        self._slot = 0
        attempt = self._attempt
        assert attempt is not None
        # Kept: its response ends the send if it comes before those of later attempts.
        self._failures_so_far().late[attempt] = None
        self._attempt = None
        waited_ms = self._transport.clock.monotonic_ms() - self._started_ms
        broker = self._transport.describe_broker(attempt.queue.broker_name)
        text = f"no answer from {broker} to a send within {waited_ms} ms"
        self._attempt_failed(RequestTimeoutError(text), attempt)

    def responded(
        self,
        attempt: SendAttempt,
        response: RemotingCommand | None,
        error: BaseException | None,
    ) -> None:
        """Handle the response of an attempt, or its error."""
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
                if is_late or not self._goes_elsewhere(attempt, result):
                    self._stored(attempt, result)
                return
            error = BrokerError.from_code(response.code, response.remark)
        assert error is not None
        if is_late:
            failures = self._failures_so_far()
            failures.record_doubt(attempt, error)
            if self._state is State.LISTENING and not failures.late:
                self._out_of_time()
        elif isinstance(error, RocketPyError):
            self._attempt_failed(error, attempt)
        else:
            self._finish_error(error)

    def stored(self, attempt: SendAttempt, answer: StoredAnswer) -> None:
        """End with the result of an attempt whose message is stored."""
        if self._is_expected(attempt):
            self._stored(attempt, result_of(answer, attempt.queue, self._message.msg_id))

    def _is_expected(self, attempt: SendAttempt) -> bool:
        """Remove the attempt; return False when another one has ended the send."""
        is_late = attempt is not self._attempt
        if not is_late:
            self._attempt = None
        if self._state is State.DONE:
            return False
        if is_late:
            del self._failures_so_far().late[attempt]
        elif self._slot:
            self._unwatch()
        return True

    def _stored(self, attempt: SendAttempt, result: SendResult) -> None:
        transport = self._transport
        if transport.tracks_latency:
            elapsed_ms = transport.clock.monotonic_ms() - attempt.started_ms
            transport.note_success(attempt.queue.broker_name, elapsed_ms)
        self._complete()
        if not self.future.done():
            self.future.set_result(result)

    def _goes_elsewhere(self, attempt: SendAttempt, result: SendResult) -> bool:
        """Send a message to another broker that is stored and not confirmed, if options say so."""
        if result.status is SendStatus.SEND_OK or not self._transport.retry_when_not_ok:
            return False
        failures, broker = self._failures_so_far(), attempt.queue.broker_name
        failures.unconfirmed = result
        failures.attempts += 1
        if failures.attempts >= self._attempts or not self._brokers - {broker}:
            return False
        failures.record_failure(
            broker, BrokerError.from_code(result.status, f"stored with status {result.status}")
        )
        self._retry_soon()
        return True

    def _attempt_failed(self, error: RocketPyError, attempt: SendAttempt | None = None) -> None:
        """Record the failure, then try again, now or later, or give up."""
        queue = self._queue
        broker = queue.broker_name if queue is not None else None
        elapsed_ms = self._transport.clock.monotonic_ms() - self._started_ms
        is_answer = isinstance(error, BrokerError | IllegalMessageError)  # the broker was reached
        self._transport.note_failure(broker, elapsed_ms, reachable=is_answer)
        if _is_of_old_route(error):
            self._transport.refresh_routes_soon(is_urgent=_is_nothing_stored(error))
        failures = self._failures_so_far()
        failures.record_failure(broker, error)
        if attempt is not None:
            failures.record_doubt(attempt, error)
        if _is_nothing_stored(error):
            self._not_reached(failures, broker, error)
            return
        failures.refused = frozenset()
        failures.attempts += 1
        has_attempts = failures.attempts < self._attempts
        if isinstance(error, FlowControlError):
            self._back_off(failures, error, has_attempts=has_attempts)
        elif not self._is_retryable(error):
            self._finish_error(error)
        elif has_attempts:
            self._retry_soon()
        else:
            self._end_attempts(error)

    def _not_reached(
        self, failures: SendFailures, broker: str | None, error: RocketPyError
    ) -> None:
        """Try another broker at once; when all have refused, pause.

        A broker that no route has named need not exist: the send waits for it shortly only.
        """
        # A queue that the caller names may be misspelt: waiting for it would take the whole time.
        is_unheard_of = broker is not None and not self._transport.has_heard_of(broker)
        is_hopeless = is_unheard_of and failures.pauses >= MAX_UNKNOWN_BROKER_PAUSES
        if self.future.done() or not self._waits_for_broker or is_hopeless:
            self._end_attempts(error)
            return
        if broker is not None:
            failures.refused |= {broker}
            if self._choose is None and self._brokers - failures.refused:
                self._retry_soon()
                return
        self._pause(error)

    def _back_off(
        self, failures: SendFailures, error: FlowControlError, *, has_attempts: bool
    ) -> None:
        """Pause after flow control, if the options allow it and time is left."""
        failures.flow_control_count += 1
        # From the start of the attempt, so that the time of a slow refusal is part of the pause.
        until_ms = self._started_ms + backoff_ms(failures.flow_control_count, self._transport.rng)
        wait_ms = max(0, until_ms - self._transport.clock.monotonic_ms())
        error.retry_after = wait_ms / 1000
        wanted = self._transport.flow_control_retry
        if wanted == "none" or not has_attempts:
            self._end_attempts(error)
        elif wanted == "immediate":
            self._retry_soon()
        elif wait_ms >= self._left_ms():
            self._end_attempts(error)
        else:
            self._go(State.BACKING_OFF)
            self._note_retry(wait_ms)
            self._wait(wait_ms, self._try)

    @staticmethod
    def _is_retryable(error: RocketPyError) -> bool:
        if isinstance(error, BrokerError):
            return error.code in RETRYABLE_CODES
        return error.retriable

    def _retry_soon(self) -> None:
        """Schedule the next attempt on the loop: many refusing brokers must not recurse."""
        self._note_retry(0)
        self._timer = self._transport.loop.call_soon(self._try)

    def _note_retry(self, wait_ms: int) -> None:
        failures = self._failures_so_far()
        broker = failures.failed[-1] if failures.failed else None
        self._transport.retries.note(
            self._topic, self._message.msg_id, failures.tries, broker, failures.error, wait_ms
        )

    # ---- the end

    def _end_attempts(self, error: RocketPyError) -> None:
        """End with an error, unless an earlier attempt may still be answered."""
        failures = self._failures_so_far()
        if failures.late and not self.future.done():
            failures.error = error
            self._go(State.LISTENING)
            self._watch_cancellation()
        else:
            self._finish_error(error)

    def _finish_error(self, error: BaseException) -> None:
        # First: from here on the send is DONE, and responses to other attempts are ignored.
        self._complete()
        if self.future.done():
            return
        if self._failures is not None and self._failures.unconfirmed is not None:
            self.future.set_result(self._failures.unconfirmed)
            return
        self._window.failed += 1
        if self._failures is not None:
            error = self._failures.final(error)
            self._failures.add_notes(error)
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)

    def _unwatch(self) -> None:
        self._transport.watch.discard(self, self._slot)
        self._slot = 0

    def _complete(self) -> None:
        if self._state is State.PAUSING:  # cancelled
            self._transport.resume(self._topic, self)
        self._go(State.DONE)
        # Timers hold the send and its body until they fire, which may be minutes later.
        if self._slot:
            self._unwatch()
        if self._timer is not None:
            self._stop_timer()
        self._window.leave(len(self._message.body))
