"""Pop requests: hand out messages that return to the group unless they are acked.

A pop reads one queue of a topic or all of them, and the group's retry topic. A pop that finds no
message is suspended as a `SuspendedPop`; when it is resumed, all checks run again, because the
topic or the group may have changed meanwhile. Checks run in Apache's order, so that clients get its
codes.

Source: PopMessageProcessor.java (5.4.0).
"""

import random
from collections.abc import Callable, Hashable
from typing import TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.message_filters import ConsumerFilter
from rocketpy.broker.long_polling.suspended_requests import RequestOwner
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.checks import LATE_MS, PopChecks
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.queues import PERCENT, PopQueues, awaited_queues
from rocketpy.broker.pop.revive.revive_log import MAX_INVISIBLE_MS
from rocketpy.broker.pop.suspended_pops import PopReply, SuspendedPop, SuspendedPops, keys_of
from rocketpy.broker.pop.take import PopInProgress, Popped, PopRequest, QueueTaker
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.pop import MAX_POP_COUNT, ORDER_REVIVE_QUEUE
from rocketpy.proto.subscription import EXPRESSION_SQL92
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock

PopOutcome: TypeAlias = Popped | Refusal
MakeFilter: TypeAlias = Callable[[str, str | None], ConsumerFilter | None]
"""Compiles an expression of a type; returns None for a filter that accepts everything.

Raises ValueError for an invalid expression.
"""


class PopOperation:
    """Carries out pop requests; safe from any thread.

    Args:
        checks: permissions of topics and groups.
        queues: selects the queues that a pop reads.
        taker: reads messages from a queue.
        waiters: holds suspended pops.
        make_filter: compiles filter expressions.
        revive_queue_nums: number of queues that check points are spread over.
        has_timer: whether check points can be scheduled; without a timer every pop is refused.
        config: the broker's settings; see `configure`.
        clock: time.
        rng: chooses the first queue.
    """

    def __init__(  # noqa: PLR0913 - the parts a pop touches
        self,
        *,
        checks: PopChecks,
        queues: PopQueues,
        taker: QueueTaker,
        waiters: SuspendedPops,
        make_filter: MakeFilter,
        revive_queue_nums: int,
        has_timer: bool,
        config: BrokerConfig,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._checks = checks
        self._queues = queues
        self._taker = taker
        self._waiters = waiters
        self._make_filter = make_filter
        self._revive_queue_nums = revive_queue_nums
        self._has_timer = has_timer
        self._config = config
        self._clock = clock
        self._rng = rng
        self._turn = 0

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def pop(self, wanted: PopRequest, owner: RequestOwner, reply: PopReply) -> PopOutcome | None:
        """Pop messages.

        Args:
            wanted: the pop.
            owner: the connection of the request; a suspended pop is dropped with it.
            reply: makes the response when a suspended pop is resumed: calls `resume` once, or never
                when the owner is lost.

        Returns:
            The outcome, or None when the pop is suspended and answered later.
        """
        now_ms = self._clock.time_ms()
        if now_ms - wanted.born_ms - wanted.poll_ms > LATE_MS:
            remark = f"the broker[{self._config.broker_name}] pop message is timeout too much"
            return Refusal(ResponseCode.POLLING_TIMEOUT, remark)
        refused = self._check(wanted)
        if refused is not None:
            return refused
        kind = wanted.expression_type
        if kind == EXPRESSION_SQL92 and not self._config.enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        try:
            message_filter = self._make_filter(wanted.expression or "*", wanted.expression_type)
        except ValueError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        # A suspended pop keeps the compiled filter only: the expression may be long.
        wanted = wanted._replace(expression="", expression_type=None)
        return self._pop(wanted, message_filter, owner, reply)

    def resume(self, waiting: SuspendedPop) -> PopOutcome | None:
        """Continue a resumed pop; it is suspended again when there is still no message."""
        self._waiters.suspended.release(waiting)
        wanted: PopRequest = waiting.wanted
        refused = self._check(wanted)
        if refused is not None:
            return refused
        return self._pop(wanted, waiting.filter, waiting.owner, waiting.reply)

    def forget(self, owner: Hashable) -> None:
        """Drop the suspended pops of a lost owner."""
        self._waiters.forget(owner)

    def _check(self, wanted: PopRequest) -> Refusal | None:
        config = self._config
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_name}] pop message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if wanted.max_count > MAX_POP_COUNT:
            remark = (
                f"the broker[{config.broker_name}] pop message's num is greater than "
                f"{MAX_POP_COUNT}"
            )
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._has_timer:
            remark = (
                f"the broker[{config.broker_name}] pop message is forbidden because "
                "timerWheelEnable is false"
            )
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        refused = self._checks.check(wanted.topic, wanted.queue_id, wanted.group)
        if refused is None and not 0 <= wanted.invisible_ms <= MAX_INVISIBLE_MS:
            remark = f"invisibleTime is 0 to {MAX_INVISIBLE_MS} ms, not {wanted.invisible_ms}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return refused

    def _pop(
        self,
        wanted: PopRequest,
        message_filter: ConsumerFilter | None,
        owner: RequestOwner,
        reply: PopReply,
    ) -> PopOutcome | None:
        revive_queue_id = ORDER_REVIVE_QUEUE
        if not wanted.is_ordered:
            self._turn += 1
            revive_queue_id = self._turn % self._revive_queue_nums
        pop = PopInProgress(wanted, message_filter, revive_queue_id, self._clock.time_ms())
        for queue in self._queues.in_pop_order(wanted, self._rng.randrange(PERCENT)):
            self._taker.take(pop, queue)
        if pop.records:
            if pop.rest > 0:
                self._waiters.wake(GroupQueue(wanted.topic, wanted.group, wanted.queue_id))
            return pop.popped(ResponseCode.SUCCESS)
        if pop.not_stored is not None:
            remark = f"the check point of the messages is not stored: {pop.not_stored.value}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return self._wait(pop, owner, reply)

    def _wait(self, pop: PopInProgress, owner: RequestOwner, reply: PopReply) -> Popped | None:
        wanted = pop.wanted
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        until_ms = wanted.born_ms + wanted.poll_ms
        if wanted.poll_ms <= 0 or wall_ms >= until_ms:
            return pop.popped(ResponseCode.POLLING_TIMEOUT)
        # A client whose clock is ahead of ours waits as long as it asked for, and no longer.
        deadline_ms = now_ms + min(wanted.poll_ms, until_ms - wall_ms)
        queues = awaited_queues(wanted.topic, wanted.group, wanted.queue_id)
        waiting = SuspendedPop(
            wanted,
            keys_of(queues),
            owner,
            deadline_ms,
            self._queues,
            message_filter=pop.filter,
            reply=reply,
        )
        if self._waiters.suspend(waiting, queues, now_ms):
            return None
        return pop.popped(ResponseCode.POLLING_FULL)
