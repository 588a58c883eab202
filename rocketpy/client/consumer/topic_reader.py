"""Reading a topic without a group, up to the end that it has when the reading begins, or later.

Source: there is none; `rocketpy consume --no-group --end` does the same.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Self

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import PullConsumerConfig, StartPosition
from rocketpy.client.consumer.offset_store import offsets_at, start_time_ms
from rocketpy.client.consumer.pull_consumer import PullConsumer
from rocketpy.client.lifecycle import ProcessBound
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.options.validation import checked_subscription
from rocketpy.errors import ClientError, ClosedError, NoRouteError, own_copy
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
        keep: called when the reading begins, to have the client close the reader at its own end.
        start: where each queue begins.
        until: where each queue ends; None never ends.
        filter: tags, `"a || b"` or `"*"`.
        sql: instead of tags, a condition on properties.
        serializer: reads bodies in `message.decode()`.

    Attributes:
        messages: read, and not taken by a caller yet.
    """

    def __init__(
        self,
        instance: Instance,
        topic: str,
        *,
        keep: Callable[["TopicReader"], object],
        start: StartPosition,
        until: StartPosition | None,
        filter: str,  # noqa: A002
        sql: str,
        serializer: Serializer,
    ) -> None:
        # Of a group that every broker has: the name of a new one would stay in its tables.
        config = PullConsumerConfig(auto_commit=False, serializer=serializer, pull_wait=1.0)
        super().__init__(instance, TOOLS_CONSUMER_GROUP, config)
        self.messages: deque[ReceivedMessage] = deque()
        self._topic = topic
        self._keep = keep
        self._from = start
        self._until = until
        self._not_before_ms = 0  # greater for a start in the future, which has no offset yet
        self._until_ms: int | None = None  # of an end in the future, until that time has passed
        self._queues: tuple[MessageQueue, ...] = ()
        self._ends: dict[MessageQueue, int] = {}  # of the queues that are not read to their ends
        self._reading: asyncio.Task[bool] | None = None
        self._wanted: SubscriptionData = checked_subscription(
            topic, filter, sql, instance.next_sub_version()
        )
        self._subscriptions[topic] = self._wanted

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        return self._running or self._reading is not None

    async def read(self) -> bool:
        """Wait until `messages` has some; return whether there were none, because of the end.

        Every caller waits for the same task. The cancellation of a caller, as by a time-out, does
        not end it, so that neither the beginning nor messages are lost; the next call waits for it
        again. After a failure the next call continues.

        Raises:
            NoRouteError: no broker serves the topic.
            ClosedError: the client was closed.
            RocketPyError: a broker does not say where its queues begin and end, or a queue cannot
                be read for a reason that does not pass by itself.
        """
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.create_task(self._read(), name="rocketpy-read")
        await asyncio.wait([reading])
        if self._reading is reading:
            self._reading = None
        if reading.cancelled():
            if self._was_closed:
                raise self._closed_error()
            return False  # by code that cancels all tasks: the next call starts another one
        error = reading.exception()
        if isinstance(error, Exception):
            raise own_copy(error)
        return reading.result()

    async def _read(self) -> bool:
        if not self._running:
            await self._begin()
            self._keep(self)
        messages = await self._next_messages()
        self.messages.extend(messages)
        return not messages

    async def _begin(self) -> None:
        """Find out where the queues begin and end, and start to read.

        Nothing is changed before the last await: a beginning that failed can be repeated.
        """
        if self._was_closed:
            raise self._closed_error()
        instance, until = self._instance, self._until
        queues = await instance.routes.latest_subscribe_queues(self._topic)
        if not queues:
            raise NoRouteError(f"no broker serves topic {self._topic}")
        await instance.check_subscriptions(self.group, [self._wanted])
        now_ms = instance.clock.time_ms()
        start_ms = start_time_ms(self._from) or 0
        until_ms = None if until is None else start_time_ms(until)
        ends: dict[MessageQueue, int] = {}
        if until_ms is not None and until_ms > max(now_ms, start_ms):
            self._until_ms = until_ms
        elif until is not None:
            ends = await offsets_at(instance, queues, until)
        starts = await offsets_at(instance, queues, self._from)
        await self.start()
        self._not_before_ms = start_ms if start_ms > now_ms else 0
        self._queues = queues
        for queue, offset in starts.items():
            if self._is_open_ended:
                self._readers.begin(queue, offset)
            elif offset < ends[queue]:
                self._ends[queue] = ends[queue]
                self._readers.begin(queue, offset)

    @property
    def _is_open_ended(self) -> bool:
        """Whether it is not known yet where the queues end."""
        return self._until is None or self._until_ms is not None

    async def _next_messages(self) -> list[ReceivedMessage]:
        """Return the next messages; none after the end."""
        while self._is_open_ended or self._ends:
            self._check_running()
            if self._is_open_ended:
                await self._follow_growth()
            messages = list(filter(self._is_asked_for, await self.poll(timeout=_POLL_S)))
            if messages:
                return messages
            for queue, end in list(self._ends.items()):
                if self._is_read(queue, end):
                    await self._drop(queue)
                    del self._ends[queue]
        return []

    async def _follow_growth(self) -> None:
        """Read queues that came since the beginning, and find the ends when their time has come."""
        instance, until_ms = self._instance, self._until_ms
        is_over = until_ms is not None and instance.clock.time_ms() >= until_ms
        if is_over:  # the queues that came since the last refresh count
            await instance.routes.refresh(self._topic)
        queues = await instance.routes.subscribe_queues(self._topic)
        if queues is not self._queues:
            self._queues = queues
            # Queues that left the route stay: their broker may come back, at the same offsets.
            for queue in sorted(set(queues) - self._readers.queues.keys()):
                self._readers.begin(queue, 0)  # from its first message, as consumers do
        if is_over and self._until is not None:
            self._ends = await offsets_at(instance, self.assignment, self._until)
            self._until_ms = None

    def _is_asked_for(self, message: ReceivedMessage) -> bool:
        """Return whether a pulled message is between the start and the end."""
        if self._until_ms is not None and message.ext.store_timestamp_ms >= self._until_ms:
            return False
        if message.ext.store_timestamp_ms < self._not_before_ms:
            return False
        # A pull may return messages after the end, which were stored since the beginning.
        return self._is_open_ended or message.offset < self._ends.get(message.queue, 0)

    def _is_read(self, queue: MessageQueue, end: int) -> bool:
        """Return whether everything before `end` was handed out or filtered out."""
        entry = self._readers.queues.get(queue)
        if entry is None or entry.next_pull_offset < end:
            return False
        return entry.first_offset is None or entry.first_offset >= end

    async def _restart(self, queue: MessageQueue, offset: int) -> None:
        """Continue where the broker says; report messages before the end that are gone."""
        end = self._ends.get(queue)
        entry = self._readers.queues.get(queue)
        if end is not None and entry is not None and offset < entry.next_pull_offset:
            last = (await offsets_at(self._instance, [queue], "latest"))[queue]
            if last < end:
                self._ends[queue] = last
                self._broken(
                    ClientError(
                        f"{queue} ended at offset {end} when the reading began, and ends at {last} "
                        "now: its topic was deleted and created again, or its broker lost "
                        "messages; read the topic again"
                    )
                )
        await super()._restart(queue, offset)

    def _check_running(self) -> None:
        self._check_loop()
        if not self._running:
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the client was closed before topic {self._topic} was read to its end")

    async def close(self) -> None:
        """End the reading; also one whose beginning is under way."""
        await super(PullConsumer, self).close()

    async def _close(self) -> None:
        self._was_closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await super()._close()


class TopicMessages(ProcessBound):
    """Asynchronous iterator over the messages of a `TopicReader`, which it closes at the end.

    Several tasks may share it: each message goes to one of them. A loop that is left closes the
    reader, too.

    Args:
        reader: not begun.
    """

    def __init__(self, reader: TopicReader) -> None:
        self._reader: TopicReader | None = reader
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        reader = self._reader
        if reader is None:
            raise StopAsyncIteration
        messages = reader.messages
        # A loop: other callers, which waited for the same messages, may have taken all of them.
        while not messages:
            if not await self._has_more(reader):
                raise StopAsyncIteration
        return messages.popleft()

    async def _has_more(self, reader: TopicReader) -> bool:
        """Read on; return whether the end was not reached."""
        try:
            is_at_end = await reader.read()
        except ClosedError:
            if self._reader is None:  # by `aclose`, not with the client
                return False
            raise
        if is_at_end:
            await self.aclose()
        return not is_at_end

    async def aclose(self) -> None:
        """End the reading."""
        # Before the await: `__del__` and a second close must find nothing to close.
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.messages.clear()
            await reader.close()

    def __del__(self) -> None:
        """Close the reader of a loop that was left."""
        reader, self._reader = self._reader, None
        if reader is None or not reader.is_open:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the client with it
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(reader.close()))
