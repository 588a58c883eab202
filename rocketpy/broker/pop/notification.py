"""Tell a consumer that there is something to pop, without popping it.

Source: NotificationProcessor.java, PollingInfoProcessor.java (5.4.0).
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.checks import PopChecks
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.broker.pop.queues import PopQueues, waits_for
from rocketpy.broker.pop.waiters import PopWaiters, Waiting, keys_of
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.pop import INIT_MIN
from rocketpy.runtime.clock import Clock


class NotificationRequest(NamedTuple):
    """What a consumer asks for.

    Attributes:
        group: consumer group.
        topic: as it was subscribed.
        queue_id: below 0 is any queue.
        born_ms: wall time of the request, by this broker's clock.
        poll_ms: how long it waits, counted from `born_ms`; 0 does not wait.
        is_ordered: queues that are blocked do not count.
        attempt_id: of the ordered call that is to follow.
        init_mode: where a group begins that has no offset.
    """

    group: str
    topic: str
    queue_id: int
    born_ms: int
    poll_ms: int
    is_ordered: bool = False
    attempt_id: str | None = None
    init_mode: int = INIT_MIN


class Notified(NamedTuple):
    """The outcome.

    Attributes:
        has_message: whether there is something.
        is_full: whether there was no room to wait for it.
    """

    has_message: bool
    is_full: bool = False


NotificationOutcome: TypeAlias = Notified | Refusal


class NotificationOperation:
    """Answers what there is to pop; safe from any thread.

    Args:
        checks: who may pop what.
        queues: which queues a pop reads.
        waiters: where notifications wait.
        pops: where pops wait, for their number.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        checks: PopChecks,
        queues: PopQueues,
        *,
        waiters: PopWaiters,
        pops: PopWaiters,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._checks = checks
        self._queues = queues
        self._waiters = waiters
        self._pops = pops
        self._config = config
        self._clock = clock

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config

    def notify(
        self, wanted: NotificationRequest, owner: Hashable, resume: Callable[[Waiting], None]
    ) -> NotificationOutcome | None:
        """Say whether there is a message, or wait for one.

        Args:
            wanted: where.
            owner: who asks; what waits goes with it.
            resume: as in `PopOperation.pop`.

        Returns:
            The outcome; None when the request is answered later.
        """
        refused = self._check(wanted.topic, wanted.queue_id, wanted.group)
        if refused is not None:
            return refused
        if self._queues.has_message(wanted):
            return Notified(True)
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        until_ms = wanted.born_ms + wanted.poll_ms
        if wanted.poll_ms <= 0 or wall_ms >= until_ms:
            return Notified(False)
        queues = waits_for(wanted.topic, wanted.group, wanted.queue_id)
        waiting = Waiting(
            wanted,
            keys_of(queues),
            owner,
            now_ms + min(wanted.poll_ms, until_ms - wall_ms),
            self._queues,
            message_filter=None,
            on_resume=resume,
        )
        return None if self._waiters.suspend(waiting, queues, now_ms) else Notified(False, True)

    def go_on(self, waiting: Waiting) -> NotificationOutcome | None:
        """Answer a request that was resumed; it waits again when somebody was faster."""
        self._waiters.suspended.release(waiting)
        return self.notify(waiting.wanted, waiting.owner, waiting.on_resume)

    def forget(self, owner: Hashable) -> None:
        """Forget the requests of an owner that is lost."""
        self._waiters.forget(owner)

    def count_waiting(self, topic: str, queue_id: int, group: str) -> int | Refusal:
        """How many pops of a group wait for a queue."""
        refused = self._check(topic, queue_id, group)
        if refused is not None:
            return refused
        return self._pops.suspended.count_at(GroupQueue(topic, group, queue_id))

    def _check(self, topic: str, queue_id: int, group: str) -> Refusal | None:
        config = self._config
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_name}] peeking message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        return self._checks.check(topic, queue_id, group)
