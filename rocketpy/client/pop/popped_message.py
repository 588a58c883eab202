"""Popped messages: invisible to other consumers of the group for a while."""

from typing import NoReturn, Protocol, SupportsIndex

from rocketpy.client.config import MAX_INVISIBLE_S
from rocketpy.client.messages.delivery_time import LEVELS_MS
from rocketpy.client.messages.message import NACKED, NOT_TO_COPY, ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection, check_level
from rocketpy.client.messages.serializers import B_co, Serializer
from rocketpy.client.options.durations import Duration, to_s
from rocketpy.client.options.validation import described, fits
from rocketpy.errors import ClientError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt


def delay_of_level(delay_level: int) -> float | None:
    """Return the seconds of a delay level, None when the time grows with each retry."""
    if delay_level <= 0:
        return None
    return LEVELS_MS[min(delay_level, len(LEVELS_MS)) - 1] / 1000


def checked_s(name: str, duration: Duration) -> float:
    """Return a duration in seconds.

    Raises:
        TypeError: it is none.
        ClientError: no message can be kept for as long.
    """
    if not fits(Duration, duration):
        raise TypeError(f"{name}: {duration!r} is not {described(Duration)}")
    seconds = to_s(duration)
    if not 0 <= seconds <= MAX_INVISIBLE_S:
        raise ClientError(f"{name}: {seconds} s is not between 0 and 3 days")
    return seconds


class PopSettlement(Protocol):
    """Receiver of a popped message's outcome: the consumer that popped it."""

    async def ack(self, message: "PoppedMessage") -> None:
        """Tell the broker that the message is done."""
        ...

    async def nack(self, message: "PoppedMessage", rejection: Rejection) -> None:
        """Have the message come back."""
        ...

    async def change_invisible(self, message: "PoppedMessage", seconds: float | None) -> None:
        """Keep the message for as long from now on; None is as long as when it was popped."""
        ...


class PoppedMessage(ReceivedMessage[B_co]):
    """A message that a pop consumer has for its invisible time.

    When it is neither acked nor kept for longer, some member of the group gets it again, with
    `retries` one higher.

    Args:
        ext: the stored message, with its handle.
        queue: where it came from.
        settlement: takes the outcome.
        serializer: reads the body in `decode`.
        namespace: of the client; `topic` and `origin_topic` are without it.
    """

    __slots__ = ("_popped",)

    def __init__(
        self,
        ext: MessageExt,
        queue: MessageQueue,
        settlement: PopSettlement,
        *,
        serializer: Serializer[B_co] | None = None,
        namespace: str = "",
    ) -> None:
        super().__init__(ext, queue, serializer=serializer, namespace=namespace)
        self._popped = settlement

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Raise TypeError: its consumer would not know the copy."""
        raise TypeError(NOT_TO_COPY.format(kind=type(self).__name__))

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(4)

    async def ack(self) -> None:
        """Tell the broker that it is done, and wait until it knows; twice does no harm.

        Raises:
            ClosedError: the consumer closed before it was settled: it is delivered again.
            ClientError: the broker did not answer in the message's time: it may come again.
            BrokerError: the broker refused it: it may come again.
        """
        await self._popped.ack(self)

    async def nack(self, delay_level: int = 0, *, delay: Duration | None = None) -> None:
        """Give it back: it is delivered again later, to some member of the group.

        Args:
            delay_level: 1..18 of the levels that brokers have by default (1 s, 5 s, 10 s, 30 s,
                1 min, ...); 0 lets the time grow with each retry, from 10 s to 2 h; -1 means the
                dead letter queue.
            delay: instead of a level, so long from now; at most 3 days.

        Raises:
            TypeError: a level or time of another type.
            ClosedError: the consumer closed before it was settled: it is delivered again at once.
            ClientError: a level and a time, or a time that cannot be; nothing was sent.
            ClientError: the broker did not answer: it comes back after its invisible time.
            BrokerError: the broker refused it: it comes back after its invisible time.
        """
        check_level(delay_level)
        if delay is not None and delay_level:
            raise ClientError("give delay_level or delay, not both")
        delay_s = None if delay is None else checked_s("delay", delay)
        await self._reject(Rejection(delay_level, delay_s, reason=NACKED))

    async def _reject(self, rejection: Rejection) -> None:
        await self._popped.nack(self, rejection)

    async def change_invisible(self, invisible_time: Duration) -> None:
        """Keep it for so long from now on, more or less than it has left.

        Args:
            invisible_time: up to 3 days.

        Raises:
            TypeError: no duration.
            ClosedError: the consumer closed before it was settled: it is delivered again.
            ClientError: a time that cannot be; nothing was sent.
            ClientError: the broker did not answer: the old time may still hold.
            BrokerError: the broker refused it.
        """
        await self._popped.change_invisible(self, checked_s("invisible_time", invisible_time))

    async def in_progress(self) -> None:
        """Restart its `invisible_time`, because it is still being handled.

        Raises:
            ClosedError: the consumer closed before it was settled: it is delivered again.
            ClientError: the broker did not answer: the old time may still hold.
            BrokerError: the broker refused it.
        """
        await self._popped.change_invisible(self, None)
