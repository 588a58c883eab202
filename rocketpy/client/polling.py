"""One message, or many, by the names that group consumers have them under, out of `poll`."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from rocketpy.client.checks import BATCH, checked_count
from rocketpy.client.durations import Duration
from rocketpy.client.message import ReceivedMessage
from rocketpy.errors import ClosedError


class Polls(ABC):
    """Is asked for messages; what was handed out before may be committed by that."""

    _stopped = False

    @abstractmethod
    async def poll(
        self,
        max_messages: int = 32,
        timeout: Duration | None = 5.0,  # noqa: ASYNC109 - an empty list is no error
    ) -> list[ReceivedMessage]:
        """Return up to `max_messages`, waiting up to `timeout` for the first.

        Args:
            max_messages: 1 or more.
            timeout: of waiting; None is no limit.

        Returns:
            The messages; none when none came in time, or after `stop`.

        Raises:
            RocketPyError: a queue cannot be read for a reason that does not pass by itself.
            ClosedError: the consumer is not started, or closed.
        """

    async def getone(self, timeout: Duration | None = None) -> ReceivedMessage | None:  # noqa: ASYNC109
        """Return the next message, None when none comes in time.

        Args:
            timeout: of waiting; None is no limit.

        Raises:
            ClosedError: not started, stopped or closed.
        """
        messages = await self.getmany(1, timeout)
        return messages[0] if messages else None

    async def getmany(
        self,
        max_messages: int = BATCH,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> list[ReceivedMessage]:
        """Do as `poll`, with no limit of time unless one is given.

        Raises:
            ClosedError: not started, stopped or closed.
            ValueError: `max_messages` is less than 1.
        """
        messages = await self.poll(checked_count(max_messages), timeout)
        if not messages and self._stopped:
            raise ClosedError("the consumer was stopped or closed")
        return messages

    async def batches(self, max_messages: int = BATCH) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield lists of 1 to `max_messages` messages, until `stop`.

        Raises:
            ClosedError: not started, or closed.
            ValueError: `max_messages` is less than 1.
        """
        while messages := await self.poll(checked_count(max_messages), None):
            yield messages
