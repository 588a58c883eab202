"""For any behaviour of routes, brokers and callers, a send ends once and in time."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.client.callbacks.hooks import RetryReporter
from rocketpy.client.sending.attempt import AttemptTimeouts, SendAttempt
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.pending_send import PendingSend, State
from rocketpy.client.sending.queue_selection import Destination, RoundRobin
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import (
    ConnectError,
    ConnectionLostError,
    NoRouteError,
    NotSentError,
    RequestTimeoutError,
    RocketPyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import make_request, make_response
from rocketpy.testing.sim_loop import LoopClock, SimLoop
from tests.unit.client.sends import destination

STORED = {"msgId": "ID", "queueId": "0", "queueOffset": "7"}
REQUEST = make_request(310)
REQUEST.opaque = 1  # it was written
ROUNDING_MS = 2


@dataclass(frozen=True)
class Plan:
    """Script of a send; outcomes are (kind, after ms), and the last ones repeat."""

    brokers: int
    attempts: int
    timeout_ms: int
    flow_control_retry: str
    attempt_timeout_ms: int
    waits_for_broker: bool
    is_chosen: bool
    is_heard_of: bool
    routes: list[tuple[str, int]]
    answers: list[tuple[str, int]]
    route_changes_ms: list[int]
    cancelled_at_ms: int | None


DELAYS = st.one_of(st.integers(0, 50), st.integers(0, 70_000))
PLANS = st.builds(
    Plan,
    brokers=st.integers(1, 4),
    attempts=st.integers(1, 5),
    timeout_ms=st.one_of(st.integers(0, 10), st.integers(0, 5000), st.integers(0, 200_000)),
    flow_control_retry=st.sampled_from(["backoff", "immediate", "none"]),
    attempt_timeout_ms=st.sampled_from([0, 0, 30, 5000]),
    waits_for_broker=st.booleans(),
    is_chosen=st.booleans(),
    is_heard_of=st.booleans(),
    routes=st.lists(
        st.tuples(st.sampled_from(["known", "none", "fault", "illegal"]), DELAYS), max_size=4
    ),
    answers=st.lists(
        st.tuples(
            st.sampled_from(
                ["stored", "1", "13", "2", "530", "refused", "lost", "silent", "no master"]
            ),
            DELAYS,
        ),
        min_size=1,
        max_size=8,
    ),
    route_changes_ms=st.lists(DELAYS, max_size=4),
    cancelled_at_ms=st.one_of(st.none(), DELAYS),
)


class FakeTransport:
    """Brokers and name servers that follow a plan."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.rng = random.Random(1)
        self.watch = AttemptTimeouts(loop, self.clock)
        self.tracks_latency = True
        self.attempt_timeout_ms = plan.attempt_timeout_ms
        self.flow_control_retry = plan.flow_control_retry
        self.retry_when_not_ok = False
        self.retries = RetryReporter(None, self.clock)
        self.plan = plan
        self.sent_ms: list[int] = []
        self.reached = 0
        self.unanswered = 0
        self.stored = 0
        self.paused: list[PendingSend] = []
        self._routes = list(plan.routes)
        self._answers = list(plan.answers)
        names = "abcd"[: plan.brokers]
        queues = [MessageQueue("t", name, n) for name in names for n in range(2)]
        self._round = RoundRobin(queues, self.rng, None, destination)

    def cached_route(self, topic: str) -> RoundRobin | None:
        return None if self._routes else self._round

    def route(self, topic: str) -> RoundRobin:
        return self._round

    def when_routed(self, topic: str, callback: Any) -> None:
        if not self._routes:
            callback(None)
            return
        kind, after_ms = self._routes.pop(0)
        errors = {
            "none": NoRouteError("none"),
            "fault": ZeroDivisionError("ours"),
            "illegal": RocketPyError("lasting"),
        }
        self.loop.call_later(after_ms / 1000, callback, errors.get(kind))

    def refresh_routes_soon(self, *, is_urgent: bool) -> None:
        """Do nothing: the routes of a plan do not change."""

    def pause(self, topic: str, send: PendingSend) -> None:
        assert send not in self.paused
        self.paused.append(send)

    def resume(self, topic: str, send: PendingSend) -> None:
        if send in self.paused:
            self.paused.remove(send)

    def change_route(self) -> None:
        paused, self.paused = self.paused, []
        for send in paused:
            send.route_changed()

    def has_heard_of(self, broker_name: str) -> bool:
        return self.plan.is_heard_of

    def describe_broker(self, broker_name: str) -> str:
        return f"{broker_name} at {broker_name}:10911"

    def transmit(self, attempt: SendAttempt, destination: Destination, message: Outgoing) -> None:
        timeout_ms = attempt.timeout_ms
        assert timeout_ms > 0
        attempt.command = REQUEST
        self.sent_ms.append(self.clock.monotonic_ms())
        kind, after_ms = self._answers[0]
        if len(self._answers) > 1:
            self._answers.pop(0)
        if kind == "no master":
            raise NoRouteError("no master")
        self.reached += kind != "refused"
        self.unanswered += kind in {"silent", "lost"}
        if kind == "silent" or after_ms >= timeout_ms:
            self._later(attempt, timeout_ms, RequestTimeoutError("silent"))
        elif kind == "refused":
            self._later(attempt, min(after_ms, 100), ConnectError("refused", retry_in_ms=after_ms))
        elif kind == "lost":
            self._later(attempt, after_ms, ConnectionLostError("lost"))
        elif kind == "stored":
            self.stored += 1
            self._later(attempt, after_ms, make_response(REQUEST, ext_fields=dict(STORED)))
        else:
            self._later(attempt, after_ms, make_response(REQUEST, int(kind), "no"))

    def _later(self, attempt: SendAttempt, after_ms: int, end: Any) -> None:
        def settle() -> None:
            if isinstance(end, Exception):
                attempt.fail(end)
            else:
                attempt.answer(end)

        self.loop.call_later(after_ms / 1000, settle)

    def note_success(self, broker: str, elapsed_ms: int) -> None:
        assert elapsed_ms >= 0

    def note_failure(self, broker: str | None, elapsed_ms: int, *, reachable: bool) -> None:
        assert elapsed_ms >= 0


@given(PLANS)
@settings(max_examples=400)
def test_pending_send_ends_once_in_time_and_sends_nothing_later(plan: Plan) -> None:
    loop = SimLoop(1)  # type: ignore[abstract]
    try:
        loop.run_until_complete(follow(plan, loop))
        assert not loop.errors, loop.errors
    finally:
        loop.end_tasks()
        loop.close()


async def follow(plan: Plan, loop: SimLoop) -> None:
    transport = FakeTransport(plan, loop)
    window = InFlightWindow(10, 1000)
    attempts = 1 if plan.is_chosen else plan.attempts
    operation = PendingSend(
        window,
        transport,  # type: ignore[arg-type]
        "t",
        Outgoing(b"body", "", 0, 0, "id"),
        timeout_ms=plan.timeout_ms,
        attempts=attempts,
        choose=(lambda queues: queues[0]) if plan.is_chosen else None,
        waits_for_broker=plan.waits_for_broker,
    )
    began_ms = transport.clock.monotonic_ms()
    ended_ms: list[int] = []
    operation.future.add_done_callback(lambda _: ended_ms.append(transport.clock.monotonic_ms()))
    if plan.cancelled_at_ms is not None:
        loop.call_later(plan.cancelled_at_ms / 1000, operation.future.cancel)
    for after_ms in plan.route_changes_ms:
        loop.call_later(after_ms / 1000, transport.change_route)
    operation.start()
    (outcome,) = await asyncio.gather(operation.future, return_exceptions=True)
    await asyncio.sleep(1000)
    assert len(ended_ms) == 1
    assert ended_ms[0] - began_ms <= plan.timeout_ms + ROUNDING_MS
    assert all(at <= ended_ms[0] for at in transport.sent_ms)
    assert all(at < began_ms + plan.timeout_ms for at in transport.sent_ms)
    assert transport.reached <= attempts
    assert operation._state is State.DONE
    assert not transport.paused
    assert (window.messages, window.bytes, len(transport.watch)) == (0, 0, 0)
    assert not isinstance(outcome, SendResult) or transport.stored
    assert not isinstance(outcome, NotSentError) or not transport.unanswered
