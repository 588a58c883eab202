"""Telling a user which queues a consumer got, and which it is about to lose.

Reports of a producer's failed attempts that are followed by another one.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.callbacks.handler_threads import call_on_thread
from rocketpy.client.callbacks.handlers import is_coroutine_function
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import ENDS_PROGRAM, TxState, ends_task, running_task
from rocketpy.errors import (
    RocketPyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.runtime.clock import Clock

TxChecker = Callable[[ReceivedMessage], TxState | Awaitable[TxState]]
"""Says how the local transaction of a message ended; a plain function runs in a thread."""


logger: logging.Logger = logging.getLogger(__name__)

AssignmentHook = Callable[[list[MessageQueue]], Awaitable[None] | None]
"""Gets queues; a coroutine function, or a plain one, which runs on a thread."""


class AssignmentHooks:
    """Calls the hooks, if there are some; what they raise is logged.

    Queues of the group's retry topic are internal and skipped.

    Args:
        group: for the log.
        on_assigned: called with queues that are read from now on.
        on_revoked: called with queues that are released now, while their offsets can be committed.
    """

    def __init__(
        self, group: str, on_assigned: AssignmentHook | None, on_revoked: AssignmentHook | None
    ) -> None:
        self._group = group
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked

    async def assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Call the hook for queues that this member has acquired."""
        await self._call(self._on_assigned, queues)

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Call the hook for queues that this member releases or has lost."""
        await self._call(self._on_revoked, queues)

    async def _call(self, hook: AssignmentHook | None, queues: Iterable[MessageQueue]) -> None:
        if hook is None:
            return
        shown = sorted(each for each in queues if not each.topic.startswith(RETRY_PREFIX))
        if not shown:
            return
        task = running_task()
        try:
            if is_coroutine_function(hook):
                work = hook(shown)
                assert work is not None
                await work
            else:
                await call_on_thread(hook, shown)
        except BaseException as error:
            if ends_task(error, task):
                raise
            logger.exception(
                "assignment hook failed: group=%(group)s queues=%(queues)s",
                {"group": self._group, "queues": shown},
            )


class SendRetry(NamedTuple):
    """Retry of a send, as the hook `on_retry` gets it.

    Attributes:
        topic: destination of the message.
        msg_id: id of the message, the same in every attempt.
        attempt: number of the attempt that failed, from 1.
        broker: broker on which it failed; None if no broker was chosen yet.
        error: error of the failed attempt.
        wait_s: pause before the next attempt, in seconds.
    """

    topic: str
    msg_id: str
    attempt: int
    broker: str | None
    error: RocketPyError | None
    wait_s: float


RetryHook = Callable[[SendRetry], object]
"""Called on the client's loop, so it must not block; what it raises is only logged."""


class RetryReporter:
    """Counter, debug log and user's hook of the retries of one producer.

    Args:
        hook: the user's hook; None without one.
        clock: limits the log of its failures.

    Attributes:
        count: number of retries so far.
    """

    def __init__(self, hook: RetryHook | None, clock: Clock) -> None:
        self.count: int = 0
        self._hook = hook
        self._failures = FailureLog(clock, "on_retry", "sent_again")

    def note(
        self,
        topic: str,
        msg_id: str,
        attempt: int,
        broker: str | None,
        error: RocketPyError | None,
        wait_ms: int,
    ) -> None:
        """Count, log and report a retry; never raises."""
        self.count += 1
        retry = SendRetry(topic, msg_id, attempt, broker, error, wait_ms / 1000)
        logger.debug(
            "send retried: topic=%(topic)s msg_id=%(msg_id)s attempt=%(attempt)d "
            "broker=%(broker)s wait_s=%(wait_s)s error=%(error)r",
            {
                "topic": topic,
                "msg_id": msg_id,
                "attempt": attempt,
                "broker": broker,
                "wait_s": retry.wait_s,
                "error": error,
            },
        )
        if self._hook is None:
            return
        try:
            self._hook(retry)
        except ENDS_PROGRAM:
            raise
        except BaseException as failure:  # noqa: BLE001 - of the user
            self._failures.note([retry], failure)
