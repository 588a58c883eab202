"""Service that elects masters when connections close, heartbeats are late, or members return.

Source: ControllerManager.onBrokerInactive, scanInactiveMasterAndTriggerReelect (5.4.0)
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from rocketpy.controller.elections import Decision, Elections
from rocketpy.controller.group_store import GroupStore
from rocketpy.controller.liveness import Liveness
from rocketpy.controller.rules import ACCEPTED, Verdict
from rocketpy.errors import RocketPyError
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet
from rocketpy.runtime.service import no_wake

_logger = structlog.get_logger(__name__)

_LATE_MS: Final = 500
"""Delay from which a step counts as late."""
_PAUSE_MS: Final = 1_000
"""Time for the loop to read heartbeats after a late step."""


class ElectionService:
    """Service that starts elections without a request.

    A late step shows that the event loop was blocked, and that heartbeats wait unread. The loop
    reads them first: otherwise a controller that was suspended would regard all replicas as dead.

    Args:
        store: the groups.
        liveness: the heartbeats.
        elections: decisions about elections.
        clock: the time of decisions.
        interval_ms: returns the longest time between two steps.
    """

    name = "controller-elections"

    def __init__(
        self,
        store: GroupStore,
        liveness: Liveness,
        elections: Elections,
        clock: Clock,
        interval_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._liveness = liveness
        self._elections = elections
        self._clock = clock
        self._interval_ms = interval_ms
        self._wake: Callable[[], None] = no_wake
        self._suspects: OrderedSet[str] = OrderedSet()
        self._due_ms: int | None = None
        self._without_master: set[str] = set()
        self._outdated: dict[str, str] = {}
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._electing: set[str] = set()
        self._is_stopping = False

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Store the function that requests a step."""
        self._wake = wake

    def suspect(self, groups: Iterable[str]) -> None:
        """Check groups soon, because a replica has appeared or ended."""
        for name in groups:
            self._suspects.add(name)
        if self._suspects:
            self._wake()

    def step(self, now_ms: int) -> int:
        """Start the elections that are due, and return when the next one may be."""
        due_ms, self._due_ms = self._due_ms, None
        if due_ms is not None and now_ms > due_ms + _LATE_MS:
            _logger.warning("election check late", late_ms=now_ms - due_ms)
            return now_ms + _PAUSE_MS
        names = {*self._suspects, *self._without_master, *self._liveness.overdue_groups(now_ms)}
        next_ms = now_ms + self._interval_ms()
        # One election of a group at a time: a step may follow each of many closed connections.
        for name in sorted(names - self._electing):
            self._suspects.discard(name)
            decision = self._decide(name, now_ms)
            if decision.retry_ms is not None:
                next_ms = min(next_ms, decision.retry_ms)
            if decision.verdict is not None and decision.verdict.events:
                self._start(name)
        deadline_ms = self._liveness.next_deadline_ms(now_ms)
        if deadline_ms is not None:
            next_ms = min(next_ms, deadline_ms)
        self._due_ms = next_ms
        return next_ms

    async def stop(self) -> None:
        """Start no more elections, and wait for those that have begun."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _decide(self, name: str, now_ms: int) -> Decision:
        group = self._store.groups.get(name)
        decision = Decision() if group is None else self._elections.decide(group, now_ms)
        if decision.is_outdated and decision.verdict is not None:
            self._note_outdated(name, decision.verdict)
            return decision
        self._outdated.pop(name, None)
        if decision.verdict is None and decision.retry_ms is None:
            self._without_master.discard(name)
        elif name not in self._without_master:
            self._without_master.add(name)
            reason = "waiting" if decision.verdict is None else decision.verdict.remark
            _logger.warning("master lost", broker=name, outcome=reason or "electing")
        return decision

    def _note_outdated(self, name: str, verdict: Verdict) -> None:
        """Log once per reason, and check the group again until it has changed."""
        self._without_master.add(name)
        outcome = verdict.remark or "the present master is elected again"
        if self._outdated.get(name) != outcome:
            self._outdated[name] = outcome
            _logger.error("state older than the logs", broker=name, outcome=outcome)

    def _start(self, name: str) -> None:
        if self._is_stopping:
            return
        self._electing.add(name)
        task = asyncio.ensure_future(self._elect(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _elect(self, name: str) -> None:
        try:
            await self._store.change(lambda: self._decided_now(name))
        except RocketPyError as error:
            _logger.error("election failed", broker=name, error=str(error))  # noqa: TRY400
        finally:
            self._electing.discard(name)
            if name in self._suspects:
                self._wake()

    def _decided_now(self, name: str) -> Verdict:
        """Decide again when earlier changes are applied: one of them may have elected."""
        group = self._store.groups.get(name)
        if group is None:
            return ACCEPTED
        return self._elections.decide(group, self._clock.monotonic_ms()).verdict or ACCEPTED
