"""Received messages whose `ack`, `nack` and `in_progress` block."""

from typing import Any, SupportsIndex

from rocketpy.client.blocking.facade import facade_of
from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.messages.message import ReceivedMessage as AsyncReceivedMessage
from rocketpy.client.messages.serializers import B_co
from rocketpy.client.pop.popped_message import PoppedMessage as AsyncPoppedMessage


@facade_of(AsyncReceivedMessage)
class ReceivedMessage(AsyncReceivedMessage[B_co]):
    """A message from a broker, as `rocketpy.ReceivedMessage`; `ack` and `nack` block.

    Args:
        thread: runs the client.
        wrapped: the message as the client received it.
    """

    __slots__ = ("_thread", "_wrapped")

    def __init__(self, thread: LoopThread, wrapped: AsyncReceivedMessage) -> None:
        for name in AsyncReceivedMessage.__slots__:
            if name != "_rest":  # reading `ext` decodes it, so it is not needed any more
                setattr(self, name, getattr(wrapped, name))
        self._thread = thread
        self._wrapped = wrapped

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:  # noqa: ANN401 - as object's
        """Copy the message as the client received it; raises TypeError for one of a consumer."""
        return self._wrapped.__reduce_ex__(protocol)


@facade_of(AsyncPoppedMessage)
class PoppedMessage(ReceivedMessage[B_co]):
    """A popped message, as `rocketpy.PoppedMessage`; its methods block."""

    __slots__ = ()
