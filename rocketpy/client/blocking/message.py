"""Messages for code that does not await: settling one waits for the client's own thread."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.messages.message import ReceivedMessage as AsyncReceivedMessage
from rocketpy.client.options.durations import Duration
from rocketpy.client.pop.popped_message import PoppedMessage as AsyncPoppedMessage


class ReceivedMessage(AsyncReceivedMessage):
    """A message from a broker, as `rocketpy.ReceivedMessage`; `ack` and `nack` block.

    Args:
        thread: where the client runs.
        message: what it received.
    """

    __slots__ = ("_thread", "_wrapped")

    def __init__(self, thread: LoopThread, message: AsyncReceivedMessage) -> None:
        for name in AsyncReceivedMessage.__slots__:
            if name != "_rest":  # `ext` is read, and needs it no more
                setattr(self, name, getattr(message, name))
        self._thread = thread
        self._wrapped = message

    def ack(self) -> None:  # type: ignore[override]
        """Mark it as done, so that the group's offset may pass it; twice does no harm."""
        self._thread.run(self._wrapped.ack())

    def nack(self, delay_level: int = 0) -> None:  # type: ignore[override]
        """Give it back: it is delivered again later, to some member of the group.

        Args:
            delay_level: see `rocketpy.ReceivedMessage.nack`.

        Raises:
            ClosedError: it was not received by a group consumer, which alone can give back.
            TypeError: `delay_level` is no whole number.
        """
        self._thread.run(self._wrapped.nack(delay_level))

    def in_progress(self) -> None:  # type: ignore[override]
        """Say that it is still worked on; see `rocketpy.ReceivedMessage.in_progress`."""
        self._thread.run(self._wrapped.in_progress())


class PoppedMessage(ReceivedMessage):
    """A message that was popped, as `rocketpy.PoppedMessage`; its methods block."""

    __slots__ = ()

    _wrapped: AsyncPoppedMessage

    def nack(  # type: ignore[override]
        self, delay_level: int = 0, *, delay: Duration | None = None
    ) -> None:
        """Give it back, to be delivered again later; see `rocketpy.PoppedMessage.nack`."""
        self._thread.run(self._wrapped.nack(delay_level, delay=delay))

    def change_invisible(self, invisible_time: Duration) -> None:
        """Keep it for so long from now on; see `rocketpy.PoppedMessage`."""
        self._thread.run(self._wrapped.change_invisible(invisible_time))


def blocking(thread: LoopThread, value: Any) -> Any:  # noqa: ANN401 - messages, or what has none
    """Return a message, or each of a list, with methods that block; anything else as it is."""
    if isinstance(value, AsyncPoppedMessage):
        return PoppedMessage(thread, value)
    if isinstance(value, AsyncReceivedMessage):
        return ReceivedMessage(thread, value)
    if isinstance(value, list):
        return [blocking(thread, each) for each in value]
    return value


def followed(thread: LoopThread, loop: AsyncIterator[Any]) -> Iterator[Any]:
    """Yield what a loop on the client's thread yields, with methods that block."""

    async def following() -> Any:  # noqa: ANN401 - messages, or lists of them
        return await anext(loop, None)

    while (item := thread.run(following())) is not None:
        yield blocking(thread, item)


def blocking_handler(thread: LoopThread, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler, run on threads, that gets messages whose methods block."""

    @functools.wraps(handler)
    def handle(*arguments: Any) -> Any:  # noqa: ANN401
        return handler(*(blocking(thread, each) for each in arguments))

    return handle
