"""A message that was popped: one consumer's for a while, and then anybody's of the group again."""

from typing import Protocol

from rocketpy.client.message import ReceivedMessage
from rocketpy.client.serializers import Serializer
from rocketpy.proto.message import MessageExt
from rocketpy.proto.message_queue import MessageQueue


class PopSettlement(Protocol):
    """What takes the outcome of a popped message: the consumer that popped it."""

    async def ack(self, message: "PoppedMessage") -> None:
        """Tell the broker that the message is done."""
        ...

    async def nack(self, message: "PoppedMessage", delay_s: float | None) -> None:
        """Have the message come back."""
        ...

    async def change_invisible(self, message: "PoppedMessage", seconds: float) -> None:
        """Keep the message for as long from now on."""
        ...


class PoppedMessage(ReceivedMessage):
    """A message that a pop consumer has for its invisible time.

    When it is neither acked nor kept for longer, some member of the group gets it again, with
    `retries` one higher.

    Args:
        ext: the stored message, with its handle.
        queue: where it came from.
        settlement: takes the outcome.
        serializer: reads the body in `decode`.
        namespace: of the client; `topic` is without it.
    """

    __slots__ = ("_popped",)

    def __init__(
        self,
        ext: MessageExt,
        queue: MessageQueue,
        settlement: PopSettlement,
        *,
        serializer: Serializer | None = None,
        namespace: str = "",
    ) -> None:
        super().__init__(ext, queue, serializer=serializer, namespace=namespace)
        self._popped = settlement

    async def ack(self) -> None:
        """Tell the broker that it is done, and wait until it knows; twice does no harm.

        Raises:
            ClientError: the broker did not answer in the message's time: it may come again.
            BrokerError: the broker refused it: it may come again.
        """
        await self._popped.ack(self)

    async def nack(self, delay_level: int = 0, *, delay_s: float | None = None) -> None:
        """Give it back: it is delivered again later, to some member of the group.

        Args:
            delay_level: -1 means the dead letter queue; no other level means anything here.
            delay_s: seconds from now; None: longer with each retry, 10 s to 2 h.

        Raises:
            ClientError: the broker did not answer: it comes back after its invisible time.
            BrokerError: the broker refused it: it comes back after its invisible time.
        """
        await self._popped.nack(self, -1.0 if delay_level < 0 else delay_s)

    async def change_invisible(self, seconds: float) -> None:
        """Keep it for so many seconds from now on, more or fewer than it has left.

        Raises:
            ClientError: the broker did not answer: the old time may still hold.
            BrokerError: the broker refused it.
        """
        await self._popped.change_invisible(self, seconds)
