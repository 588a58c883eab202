"""Delivery of pulled messages to `poll`, in the order of their arrival.

Unlike other consumers', a delivered message needs no room in its queue: only the offset to commit
depends on whether its caller has handled it. A message that has failed
(`rocketpy.client.consumer.iteration`) counts as handled: a pull consumer cannot send it back.

Source: DefaultLitePullConsumerImpl.poll (5.4.0).
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Self

from rocketpy.client.callbacks.loop_watch import IterationWatch
from rocketpy.client.consumer.dispatch.concurrent_service import DeliveryLine
from rocketpy.client.consumer.iteration import LeftMessages
from rocketpy.client.consumer.pulling.process_queue import queue_of
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import B_co
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)


class PolledMessages:
    """Messages for `poll`; a `Source` of `BatchIterator`.

    Attributes:
        auto_ack: True; the next poll of a caller settles its messages.
        watch: of the tasks that have received messages.
        positions: by queue, the offset after the last message delivered.

    Args:
        clock: of the watch.
        group: of the consumer.
    """

    def __init__(self, clock: Clock, group: str) -> None:
        self.auto_ack: bool = True
        self.watch: IterationWatch = IterationWatch(clock, group)
        self.positions: dict[MessageQueue, int] = {}
        self._line: DeliveryLine[ReceivedMessage] = DeliveryLine()
        self._failure: Exception | None = None
        self._returned: set[ReceivedMessage] = set()  # to be delivered again
        self._is_again = False  # whether the last message taken was one of them
        self._left: LeftMessages[ReceivedMessage] = LeftMessages()

    @property
    def failure(self) -> Exception | None:
        """The failure that the next poll raises."""
        return self._failure

    def deliver(self, messages: Sequence[ReceivedMessage]) -> None:
        """Append messages, and wake as many polls."""
        self._line.add(messages)

    def fail(self, error: Exception) -> None:
        """Raise an error from the next (or waiting) poll."""
        self._failure = error
        self._line.wake()

    def wake(self) -> None:
        """Wake polls: a queue with messages may have been resumed."""
        for _ in range(len(self._line.items)):
            self._line.wake()

    def halt(self) -> None:
        """End waiting and later polls."""
        self._line.halt()

    def take(self) -> ReceivedMessage | None:
        """Return the next message if there is one."""
        found = self._take(1) if self._failure is None else []
        return found[0] if found else None

    def take_more(self, most: int) -> list[ReceivedMessage]:
        """Return up to `most` messages behind the one of `take`, of queues that are not paused.

        There are none behind one that is delivered again: a list fails as a whole, and alone, only
        the message that fails again counts as handled.
        """
        return [] if self._is_again else self._take(most)

    def _take(self, most: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        held_back: list[ReceivedMessage] = []
        items, positions = self._line.items, self.positions
        while items and len(taken) < most:
            message = items.popleft()
            queue = queue_of(message)
            if queue.paused and not queue.dropped:
                held_back.append(message)
                continue
            is_again = bool(self._returned) and message in self._returned
            if is_again and taken:
                items.appendleft(message)
                break
            self._is_again = is_again
            if is_again:
                self._returned.discard(message)
            # Pulled before a seek or a release: delivering it would change the new position.
            if queue.dropped:
                self._left.settle([message])
                continue
            queue.remove(message)
            # A message that is delivered again must not move the position back.
            positions[queue.queue] = max(message.offset + 1, positions.get(queue.queue, 0))
            taken.append(message)
        # In their old order at the front: after `resume` the offsets of a queue must ascend.
        items.extendleft(reversed(held_back))
        return taken

    async def next(self) -> ReceivedMessage | None:
        """Return the next message, None once halted; raises what `fail` was given."""
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            message = self.take()
            if message is not None or self._line.is_halted:
                return message
            await self._line.wait()

    def done(self, message: ReceivedMessage) -> None:
        """Settle a handled message."""
        self.done_all([message])

    def done_all(self, messages: list[ReceivedMessage]) -> tuple[()]:
        """Settle handled messages: `offsets` may pass them."""
        self._left.settle(messages)
        return ()

    def done_soon(self, messages: list[ReceivedMessage]) -> None:
        """Settle handled messages."""
        self.done_all(messages)

    def redeliver(self, messages: list[ReceivedMessage]) -> None:
        """Deliver messages again, except those that have failed."""
        failed, again = [], []
        for message in messages:
            if self._left.leave(message):
                failed.append(message)
            elif queue_of(message).dropped:
                self._left.settle([message])
            else:
                again.append(message)
        if failed:
            logger.error(
                "tasks failed twice with messages, which count as handled: messages=%(messages)r",
                {"messages": failed},
            )
        self._returned.update(again)
        for message in reversed(again):
            self._line.add_first(message)

    def offsets(
        self, delivered: Iterable[ReceivedMessage], reached: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Return the offset of each queue before which everything is settled.

        Args:
            delivered: messages that callers have not handled yet.
            reached: by queue, the offset before which everything was delivered, or skipped.
        """
        # A copy: unhandled messages hold back the commit, not the position.
        found = dict(reached)
        for messages in (delivered, self._returned):
            for message in messages:
                queue = queue_of(message)
                # Of a dropped queue, outcomes do not count: the position was moved.
                if not queue.dropped and message.offset < found.get(queue.queue, 0):
                    found[queue.queue] = message.offset
        return found


class PolledBatches(Generic[B_co]):
    """Asynchronous iterator over lists of messages of a pull consumer, until its `stop`.

    Args:
        poll: returns the next list; called by the caller of the iterator, which owns it.
    """

    __slots__ = ("_poll",)

    def __init__(
        self, poll: Callable[[], Coroutine[Any, Any, list[ReceivedMessage[B_co]]]]
    ) -> None:
        self._poll = poll

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, list[ReceivedMessage[B_co]]]:
        return self._next(self._poll())

    async def _next(
        self, polled: Coroutine[Any, Any, list[ReceivedMessage[B_co]]]
    ) -> list[ReceivedMessage[B_co]]:
        messages = await polled
        if not messages:
            raise StopAsyncIteration
        return messages
