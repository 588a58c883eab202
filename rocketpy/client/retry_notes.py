"""What a producer tells of attempts that failed and are followed by another one."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from rocketpy.errors import RocketPyError

logger: logging.Logger = logging.getLogger(__name__)


class SendRetry(NamedTuple):
    """A send that is tried again.

    Attributes:
        topic: where the message goes.
        msg_id: its id, the same in every attempt.
        attempt: the number of the one that failed, from 1.
        broker: on which it failed; None when none was reached, or known.
        error: why.
        wait_s: until the next attempt, in seconds.
    """

    topic: str
    msg_id: str
    attempt: int
    broker: str | None
    error: RocketPyError | None
    wait_s: float


RetryHook = Callable[[SendRetry], object]
"""Called on the client's loop, so it must not block; what it raises is only logged."""


class RetryNotes:
    """The retries of one producer: counted, logged for debugging, told to a hook.

    Args:
        hook: of the user.

    Attributes:
        count: so far.
    """

    def __init__(self, hook: RetryHook | None) -> None:
        self.count: int = 0
        self._hook = hook

    def note(
        self,
        topic: str,
        msg_id: str,
        attempt: int,
        broker: str | None,
        error: RocketPyError | None,
        wait_ms: int,
    ) -> None:
        """Note one; never raises."""
        self.count += 1
        retry = SendRetry(topic, msg_id, attempt, broker, error, wait_ms / 1000)
        logger.debug(
            "a send is tried again: topic=%(topic)s msg_id=%(msg_id)s attempt=%(attempt)d "
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
        except Exception:
            logger.exception("the hook for retries failed")
