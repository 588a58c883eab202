"""The handlers of an app without a broker: publish, run until nothing is left, look.

Example:
    ::

        async def test_billing() -> None:
            async with TestApp(app) as test:
                await test.publish("orders", Order("o1", 5), tag="paid")
                await test.run_until_idle()
                assert [each.body for each in test.sent("bills")] == [b'{"order":"o1"}']
                assert len(test.acked("billing")) == 1
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, Unpack

from rocketpy.app.application import App, Subscription
from rocketpy.client.checks import checked_subscription
from rocketpy.client.config import ConsumerConfig, ProducerConfig
from rocketpy.client.consume_service import handled
from rocketpy.client.handlers import make_invoke
from rocketpy.client.message import Message, ReceivedMessage
from rocketpy.client.outcomes import DEAD_LETTER
from rocketpy.client.outgoing import build_outgoing, check_send_topic, unpacked
from rocketpy.client.producer import Producer
from rocketpy.client.send_options import SendOptions
from rocketpy.client.send_result import SendResult, SendStatus
from rocketpy.errors import ClientError
from rocketpy.proto.message import MessageExt
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.properties import parse_properties
from rocketpy.sql92.condition import compile_condition

MAX_DELIVERIES: Final = 10_000
"""Handlers that send to themselves end there."""
_MAX_RETRIES: Final = 16


class _Line:
    """What one handler has to do, and what became of what it has done."""

    def __init__(self, app: App, subscription: Subscription) -> None:
        self.subscription = subscription
        self.config: ConsumerConfig = app.effective(subscription)
        self.group = self.config.group or app.client.config.group
        topics = self.config.topic
        self._topics = {topics} if isinstance(topics, str) else set(topics)
        wanted = checked_subscription("any", self.config.filter, self.config.sql, 0)
        self._tags = set() if self.config.sql else wanted.tags_set
        self._condition = compile_condition(self.config.sql) if self.config.sql else None
        self._levels: dict[int, int | None] = {}
        self.waiting: deque[ReceivedMessage] = deque()
        self.acked: list[ReceivedMessage] = []
        self.retried: list[ReceivedMessage] = []
        self.dead: list[ReceivedMessage] = []

    def offer(self, ext: MessageExt) -> None:
        """Take a message in if it is subscribed to."""
        if ext.topic not in self._topics or (self._tags and ext.tags not in self._tags):
            return
        if self._condition is None or self._condition.matches(ext.properties):
            self.waiting.append(self.received(ext))

    def received(self, ext: MessageExt) -> ReceivedMessage:
        """Return a message as the handler gets it."""
        queue = MessageQueue(ext.topic, "test", 0)
        return ReceivedMessage(ext, queue, serializer=self.config.serializer, settlement=self)

    async def work(self, executor: ThreadPoolExecutor) -> int:
        """Call the handler once; returns how many messages that were."""
        count = min(len(self.waiting), self.config.batch)
        messages = [self.waiting.popleft() for _ in range(count)]
        assert self.config.handler is not None
        invoke = make_invoke(
            self.config.handler,
            batch=self.config.batch,
            executor=executor,
            on_error=self.config.on_error,
            middlewares=self.config.middlewares,
        )
        self._levels.clear()
        level = await handled(invoke, messages)
        for message in messages:
            self._end(message, self._levels.get(id(message), level))
        return count

    def _end(self, message: ReceivedMessage, level: int | None) -> None:
        limit = _MAX_RETRIES if self.config.max_retries < 0 else self.config.max_retries
        if level is None:
            self.acked.append(message)
        elif level == DEAD_LETTER or message.retries >= limit:
            self.dead.append(message)
        else:
            self.retried.append(message)
            again = self.received(message.ext)
            again.retries = message.retries + 1
            self.waiting.append(again)

    # ---- what messages report to

    def ack(self, message: ReceivedMessage) -> None:
        """Note that a handler said it is done."""
        self._levels.setdefault(id(message), None)

    async def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        """Note that a handler, or who handles errors, gave it back."""
        self._levels.setdefault(id(message), delay_level)

    def in_progress(self, message: ReceivedMessage) -> None:
        """Do nothing: time stands still."""


class _TestProducer(Producer):
    """Keeps what is sent; fails when it was told to."""

    def __init__(self, app: App) -> None:
        self.config = ProducerConfig(serializer=app.serializer, compress_over_bytes=0)
        self.failure: Exception | None = None
        self.exts: list[MessageExt] = []
        self.fresh: deque[MessageExt] = deque()

    def _keep(
        self, topic: str | Message, body: object, options: SendOptions, *, may_fail: bool = True
    ) -> SendResult:
        if may_fail and self.failure is not None:
            raise self.failure
        topic, body, options = unpacked(topic, body, options)
        check_send_topic(topic)
        number = len(self.exts)
        built = build_outgoing(body, options, self.config, f"{number:032X}")
        ext = MessageExt(
            topic=topic,
            body=built.body,
            flag=built.flag,
            properties=parse_properties(built.properties),
            queue_offset=number,
        )
        self.exts.append(ext)
        self.fresh.append(ext)
        queue = MessageQueue(topic, "test", 0)
        return SendResult(SendStatus.SEND_OK, built.msg_id, "", queue, number)

    def publish(self, topic: str | Message, body: object, options: SendOptions) -> SendResult:
        """Keep a message of the test's own."""
        return self._keep(topic, body, options, may_fail=False)

    async def send(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        return self._keep(topic, body, options)

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendResult]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(self._keep(topic, body, options))
        return future

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        self._keep(topic, body, options)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        return [
            self._keep(each, None, options)
            if isinstance(each, Message)
            else self._keep(topic, each, options)
            for each in bodies
        ]

    async def ready(self) -> None:
        return None

    async def flush(self) -> None:
        return None


class TestApp:
    """Runs an app's handlers in the test's own loop: no client, no broker, no time.

    Filters, conditions, serializers, batches, retries and error handlers are the client's own.
    Delayed messages come at once, and so do retries. What handlers send is published too.

    Args:
        app: not started; one `TestApp` at a time.
    """

    __test__ = False  # pytest collects classes of such names

    def __init__(self, app: App) -> None:
        self._app = app
        self._lines = [_Line(app, each) for each in app.subscriptions]
        self._producer = _TestProducer(app)
        self._stack = ExitStack()
        self._executor = ThreadPoolExecutor(1, "rocketpy-test-app")

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self._app.sending_through(self._producer))
        await self._app.call_hooks("start")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._app.call_hooks("stop")
        finally:
            self._stack.close()
            self._executor.shutdown()

    async def publish(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Publish a message; handlers get it in `run_until_idle`.

        Args:
            topic: where to, or a whole `Message`.
            body: anything the app's serializer takes; not with a `Message`.
            **options: see `SendOptions`.
        """
        return self._producer.publish(topic, body, options)

    async def run_until_idle(self) -> int:
        """Call handlers until nothing is left to do; returns how many messages they got.

        Raises:
            ClientError: after 10,000 messages; they seem to go on for ever.
        """
        count = 0
        while True:
            while self._producer.fresh:
                ext = self._producer.fresh.popleft()
                for line in self._lines:
                    line.offer(ext)
            busy = [line for line in self._lines if line.waiting]
            if not busy:
                return count
            for line in busy:
                count += await line.work(self._executor)
            if count > MAX_DELIVERIES:
                raise ClientError(f"handlers got {count} messages and there are more")

    def fail_sends(self, error: Exception | None) -> None:
        """Have what handlers send fail with this from now on; None ends that."""
        self._producer.failure = error

    def sent(self, topic: str = "") -> list[ReceivedMessage]:
        """Return what was published and sent, of one topic or of all, the oldest first."""
        return [
            ReceivedMessage(
                ext, MessageQueue(ext.topic, "test", 0), serializer=self._app.serializer
            )
            for ext in self._producer.exts
            if topic in {"", ext.topic}
        ]

    def acked(self, group: str) -> list[ReceivedMessage]:
        """Return what handlers of a group are done with."""
        return [each for line in self._of(group) for each in line.acked]

    def retried(self, group: str) -> list[ReceivedMessage]:
        """Return what handlers of a group wanted again; twice what they wanted twice."""
        return [each for line in self._of(group) for each in line.retried]

    def dead(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of a group."""
        return [each for line in self._of(group) for each in line.dead]

    def _of(self, group: str) -> list[_Line]:
        found = [line for line in self._lines if line.group == group]
        if not found:
            raise ValueError(f"no handler is of group {group}")
        return found
