"""Reading a topic without a group, up to an end that is known when the reading begins.

Source: there is none; `rocketpy consume --no-group --end` does the same.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Self

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import PullConsumerConfig, StartPosition
from rocketpy.client.consumer.offset_store import offsets_at
from rocketpy.client.consumer.pull_consumer import PullConsumer
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.options.validation import checked_subscription
from rocketpy.errors import NoRouteError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.topic_names import TOOLS_CONSUMER_GROUP

# Only messages wake a poll: the end of a queue whose last messages are filtered out does not.
_POLL_S = 0.1


class TopicReader(PullConsumer):
    """Reader of a topic's queues from one position to another, which stores no offsets.

    Args:
        instance: connections and routes.
        topic: its name, the namespace included.
        start: where each queue begins.
        until: where each queue ends; None never ends.
        filter: tags, `"a || b"` or `"*"`.
        sql: instead of tags, a condition on properties.
        serializer: reads bodies in `message.decode()`.
    """

    def __init__(
        self,
        instance: Instance,
        topic: str,
        *,
        start: StartPosition,
        until: StartPosition | None,
        filter: str,  # noqa: A002
        sql: str,
        serializer: Serializer,
    ) -> None:
        # Of a group that every broker has: the name of a new one would stay in its tables.
        config = PullConsumerConfig(auto_commit=False, serializer=serializer, pull_wait=1.0)
        super().__init__(instance, TOOLS_CONSUMER_GROUP, config)
        self._topic = topic
        self._from = start
        self._until = until
        self._ends: dict[MessageQueue, int] = {}
        self._wanted: SubscriptionData = checked_subscription(
            topic, filter, sql, instance.next_sub_version()
        )
        self._subscriptions[topic] = self._wanted

    async def begin(self) -> None:
        """Find out where the queues begin and end, and begin to read.

        Raises:
            NoRouteError: no broker serves the topic.
            RocketPyError: a broker does not say where its queues begin and end.
        """
        instance = self._instance
        queues = await instance.routes.subscribe_queues(self._topic)
        if not queues:
            raise NoRouteError(f"no broker serves topic {self._topic}")
        await instance.check_subscriptions(self.group, [self._wanted])
        if self._until is not None:
            self._ends = await offsets_at(instance, queues, self._until)
        starts = await offsets_at(instance, queues, self._from)
        await self.start()
        for queue, offset in starts.items():
            if offset < self._ends.get(queue, offset + 1):
                self._readers.begin(queue, offset)

    async def next_messages(self) -> list[ReceivedMessage]:
        """Return the next messages; none after the end."""
        while self.assignment:
            # A pull may return messages after the end, which were stored since the beginning.
            messages = [
                message
                for message in await self.poll(timeout=_POLL_S)
                if message.offset < self._ends.get(message.queue, message.offset + 1)
            ]
            if messages:
                return messages
            for queue, end in self._ends.items():
                if self._is_read(queue, end):
                    await self._drop(queue)
        return []

    def _is_read(self, queue: MessageQueue, end: int) -> bool:
        """Return whether everything before `end` was handed out or filtered out."""
        entry = self._readers.queues.get(queue)
        if entry is None or entry.next_pull_offset < end:
            return False
        return entry.first_offset is None or entry.first_offset >= end


class TopicMessages:
    """Asynchronous iterator over the messages of a `TopicReader`, which it closes at the end.

    A loop that is left closes the reader, too.

    Args:
        reader: not begun.
        keep: called when the reading begins, to have the client close the reader at its own end.
    """

    def __init__(self, reader: TopicReader, keep: Callable[[], object]) -> None:
        self._reader: TopicReader | None = reader
        self._keep: Callable[[], object] | None = keep
        self._loop = asyncio.get_running_loop()
        self._messages: deque[ReceivedMessage] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        reader = self._reader
        if not self._messages:
            if reader is None:
                raise StopAsyncIteration
            try:
                if self._keep is not None:
                    # Removed first: `__del__` closes also a reader whose `begin` was cancelled.
                    keep, self._keep = self._keep, None
                    await reader.begin()
                    if self._reader is None:  # closed meanwhile, when there was nothing to end
                        await reader.close()
                        raise StopAsyncIteration
                    keep()
                self._messages.extend(await reader.next_messages())
            except RocketPyError:
                await self.aclose()
                raise
            if not self._messages:
                await self.aclose()
                raise StopAsyncIteration
        return self._messages.popleft()

    async def aclose(self) -> None:
        """End the reading."""
        # Before the await: `__del__` and a second close must find nothing to close.
        reader, self._reader = self._reader, None
        self._messages.clear()
        if reader is not None:
            await reader.close()

    def __del__(self) -> None:
        """Close the reader of a loop that was left."""
        reader, self._reader = self._reader, None
        if reader is None or self._keep is not None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the client with it
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(reader.close()))
