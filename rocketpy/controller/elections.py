"""Decisions about elections, from the stored state and the heartbeats; pure.

Four waits come before an election:
    - after its own start the controller elects no master for one heartbeat timeout, because it has
      heard no replica yet, and masters may hold leases of its predecessor; unless it has heard
      every replica of the set;
    - after a silence of all replicas of all groups, in which the controller was cut off rather than
      they, the present master has one heartbeat timeout to be heard again;
    - while a master may acknowledge without the whole set, by its lease, only itself is elected;
    - an unclean election waits until every member of the set has been silent for its timeout.

Source: ControllerManager.onBrokerInactive, DefaultElectPolicy (5.4.0); leases and waits are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketpy.controller.events import MasterElected
from rocketpy.controller.liveness import LEASE_MS, Liveness, ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.controller.rules import (
    Verdict,
    elect,
    elect_first,
    elected,
    refused,
    restore,
    restore_by_operator,
)
from rocketpy.proto.wire.codes import ResponseCode

START_WAIT_MS: Final = LEASE_MS
"""Wait after the start; leases of the last process have ended by then."""


@dataclass(frozen=True, slots=True)
class ElectionRequest:
    """Request for an election (1002).

    Attributes:
        asker: the replica that asks; None: an operator.
        designated: elect this one or none.
        hand_over: the master asks for a successor; it acknowledges nothing any more in its epoch.
        epoch: that epoch; None: not given.
    """

    asker: int | None = None
    designated: int | None = None
    hand_over: bool = False
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a group without a request.

    Attributes:
        verdict: with the event of an election, or a refusal; None: no election is needed.
        retry_ms: monotonic time at which the decision may change; None: only a heartbeat
            or a closed connection changes it.
        is_outdated: whether the stored state is older than the logs.
    """

    verdict: Verdict | None = None
    retry_ms: int | None = None
    is_outdated: bool = False


class Elections:
    """Decisions about elections.

    Args:
        liveness: the heartbeats.
        is_unclean: whether elections outside the sync-state set are allowed now.
    """

    def __init__(self, liveness: Liveness, is_unclean: Callable[[], bool]) -> None:
        self._liveness = liveness
        self._start_wait_end_ms = 0
        self._is_unclean = is_unclean

    def start(self, now_ms: int) -> None:
        """Start the leadership, and with it the wait after the start."""
        self._start_wait_end_ms = now_ms + START_WAIT_MS

    def is_start(self, now_ms: int) -> bool:
        """Return whether the wait after the start lasts: alive replicas may not be heard yet."""
        return now_ms < self._start_wait_end_ms

    def decide(self, group: ReplicaGroup, now_ms: int) -> Decision:
        """Decide whether a group gets another master without a request for it."""
        if group.is_new:
            return Decision()
        if self.is_outdated(group, now_ms):
            return self._restore(group, now_ms)
        if self._is_master_alive(group, now_ms):
            return Decision()
        if now_ms < (wait_ms := max(self._start_wait_ms(group), self._silence_wait_ms(group))):
            return Decision(retry_ms=wait_ms)
        verdict = elect(
            group,
            self._liveness.standings(group.name, now_ms),
            unclean=self._may_be_unclean(group, now_ms),
        )
        if now_ms < (wait_ms := self._lease_wait_ms(group, verdict)):
            return Decision(retry_ms=wait_ms)
        return Decision(verdict)

    def answer(self, group: ReplicaGroup, request: ElectionRequest, now_ms: int) -> Verdict:
        """Decide about a request for an election.

        Args:
            group: the group.
            request: the request, whose replicas need not be registered.
            now_ms: monotonic time.
        """
        if group.is_new:
            return self._first(group, request, now_ms)
        if self.is_outdated(group, now_ms):
            return self._answer_outdated(group, request, now_ms)
        if request.hand_over:
            return self._hand_over(group, request, now_ms)
        verdict = elect(
            group,
            self._liveness.standings(group.name, now_ms),
            designated=request.designated,
            unclean=self._may_be_unclean(group, now_ms),
        )
        waits_ms = (self._start_wait_ms, self._silence_wait_ms)
        wait_ms = max(self._lease_wait_ms(group, verdict), *(each(group) for each in waits_ms))
        if verdict.is_accepted and now_ms < wait_ms:
            remark = f"no election for {wait_ms - now_ms} ms: a master may still hold a lease"
            return refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
        return verdict

    def is_outdated(self, group: ReplicaGroup, now_ms: int) -> bool:
        """Return whether replicas know of later elections, or later sets, than the stored state.

        The controller was restored from an old backup. Elections by its set would lose messages.
        """
        epoch, set_epoch = self._liveness.highest_epochs(group.name, now_ms)
        return not group.is_new and (epoch > group.master_epoch or set_epoch > group.set_epoch)

    def may_hold_lease(self, group: ReplicaGroup, replica_id: int, now_ms: int) -> bool:
        """Return whether a replica may acknowledge by its lease."""
        lease = self._liveness.lease(group.name)
        return lease is not None and lease.holder == replica_id and now_ms < lease.end_ms

    def _restore(self, group: ReplicaGroup, now_ms: int) -> Decision:
        """Decide about a group whose stored state is older than its logs."""
        # Also if the stored set was heard: other replicas may know of later elections.
        if now_ms < self._start_wait_end_ms:
            return Decision(retry_ms=self._start_wait_end_ms)
        epoch, _ = self._liveness.highest_epochs(group.name, now_ms)
        verdict = restore(group, self._liveness.standings(group.name, now_ms), epoch)
        if now_ms < (wait_ms := self._lease_wait_ms(group, verdict)):
            return Decision(retry_ms=wait_ms)
        return Decision(verdict, is_outdated=True)

    def _answer_outdated(
        self, group: ReplicaGroup, request: ElectionRequest, now_ms: int
    ) -> Verdict:
        if request.designated is None or request.hand_over:
            decision = self._restore(group, now_ms)
            waits = decision.verdict is None or (request.hand_over and decision.verdict.events)
            if decision.verdict is not None and not waits:
                return decision.verdict
            remark = "the state of the controller is older than the logs: no election now"
            return refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
        epoch, _ = self._liveness.highest_epochs(group.name, now_ms)
        standings = self._liveness.standings(group.name, now_ms)
        verdict = restore_by_operator(group, standings, epoch, request.designated)
        wait_ms = max(self._start_wait_end_ms, self._lease_wait_ms(group, verdict))
        if verdict.is_accepted and now_ms < wait_ms:
            remark = f"no election for {wait_ms - now_ms} ms: not all replicas were heard"
            return refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
        return verdict

    def _hand_over(self, group: ReplicaGroup, request: ElectionRequest, now_ms: int) -> Verdict:
        if request.asker != group.master_id:
            return refused(ResponseCode.CONTROLLER_INVALID_MASTER, f"{request.asker} is no master")
        if request.epoch not in {None, group.master_epoch}:
            # A late request: the asker has been elected again, and acknowledges.
            remark = f"the master epoch is {group.master_epoch}, not {request.epoch}"
            return refused(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, remark)
        standings = self._liveness.standings(group.name, now_ms)
        return elect(group, standings, designated=request.designated, replaced=True)

    def _first(self, group: ReplicaGroup, request: ElectionRequest, now_ms: int) -> Verdict:
        first = request.asker if request.designated is None else request.designated
        if first is None or first not in group.replicas:
            remark = f"the first master of {group.name} must be one of its replicas"
            return refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
        standings = self._liveness.standings(group.name, now_ms)
        if request.designated is not None:
            return Verdict(events=elected(group, first, standings))
        return elect_first(group, first, standings)

    def _is_master_alive(self, group: ReplicaGroup, now_ms: int) -> bool:
        master_id = group.master_id
        return master_id is not None and self._liveness.is_alive(
            ReplicaKey(group.name, master_id), now_ms
        )

    def _start_wait_ms(self, group: ReplicaGroup) -> int:
        """Return until when no master may be elected because of the start; 0 for no wait."""
        heard = [self._liveness.get(ReplicaKey(group.name, each)) for each in group.members]
        return 0 if group.members and all(heard) else self._start_wait_end_ms

    def _silence_wait_ms(self, group: ReplicaGroup) -> int:
        """Return until when the master may be heard again after a silence of all; 0: no wait."""
        master_id = group.master_id
        if master_id is None:
            return 0
        return self._liveness.silence_wait_ms(ReplicaKey(group.name, master_id))

    def _lease_wait_ms(self, group: ReplicaGroup, verdict: Verdict) -> int:
        """Return until when the elected replica must wait for the lease of another; 0: no wait."""
        lease = self._liveness.lease(group.name)
        elected_ids = {
            event.replica_id for event in verdict.events if isinstance(event, MasterElected)
        }
        return 0 if lease is None or elected_ids <= {lease.holder} else lease.end_ms

    def _may_be_unclean(self, group: ReplicaGroup, now_ms: int) -> bool:
        return self._is_unclean() and all(
            self._liveness.is_overdue(ReplicaKey(group.name, each), now_ms)
            for each in group.members
        )
