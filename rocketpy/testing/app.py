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

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, Unpack

from rocketpy.app.application import App, Subscription
from rocketpy.client.callbacks.handler_threads import HandlerThreads
from rocketpy.client.callbacks.handlers import make_invoke
from rocketpy.client.callbacks.middleware import Sending, surrounded
from rocketpy.client.config import ConsumerConfig, ResponderConfig
from rocketpy.client.consumer.dispatch.concurrent_service import run_handler
from rocketpy.client.consumer.dispatch.redelivery import FIRST_RETRY_LEVEL
from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.outcomes import DEAD_LETTER
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import Duration, to_ms
from rocketpy.client.options.validation import checked_subscription
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import ClientError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.runtime.clock import SystemClock
from rocketpy.sql92.condition import compile_condition
from rocketpy.testing.app_producer import AppProducer, Later, Requests, level_ms

MAX_DELIVERIES: Final = 10_000
"""Handlers that send to themselves end there."""
_MAX_RETRIES: Final = 16


class _Line:
    """Message queue of one handler, with the results of handled messages."""

    def __init__(
        self, app: App, subscription: Subscription, later: Later, requests: Requests
    ) -> None:
        self.subscription = subscription
        self.config: ConsumerConfig = app.effective(subscription)
        self.group = self.config.group or app.client.config.group
        topics = self.config.topic
        self._topics = {topics} if isinstance(topics, str) else set(topics)
        wanted = checked_subscription("any", self.config.filter, self.config.sql, 0)
        self._tags = set() if self.config.sql else wanted.tags_set
        self._condition = compile_condition(self.config.sql) if self.config.sql else None
        self._levels: dict[int, int | None] = {}
        self._later = later
        self._requests = requests
        self.waiting: deque[ReceivedMessage] = deque()
        self.acked: list[ReceivedMessage] = []
        self.retried: list[ReceivedMessage] = []
        self.dead: list[ReceivedMessage] = []
        self.answers: list[Any] = []
        self.is_responder = isinstance(self.config, ResponderConfig)

    def offer(self, ext: MessageExt) -> bool:
        """Take a message in if it is subscribed to; returns whether it is."""
        if ext.topic not in self._topics or (self._tags and ext.tags not in self._tags):
            return False
        is_wanted = self._condition is None or self._condition.matches(ext.properties)
        if is_wanted:
            self.waiting.append(self.received(ext))
        return is_wanted

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
            threads=HandlerThreads(executor, 1, SystemClock()),
            on_error=self.config.on_error,
            middlewares=self.config.middlewares,
            answer=self._answer if self.is_responder else None,
        )
        level = await run_handler(invoke, messages)
        for message in messages:
            self._end(message, self._levels.pop(id(message), level))
        return count

    async def _answer(self, message: ReceivedMessage, body: object) -> None:
        config = self.config
        assert isinstance(config, ResponderConfig)
        serializer = config.reply_serializer or config.serializer

        async def last(given: Sending) -> None:
            data = serializer.dumps(given.body)
            self.answers.append(given.body)
            self._requests.answered(message, data)

        sending = Sending(kind="reply", topic=message.topic, body=body, options={})
        await surrounded(config.reply_middlewares, last)(sending)

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
            delay_ms = level_ms(level or FIRST_RETRY_LEVEL + message.retries)
            if self.config.is_ordered:
                delay_ms = to_ms(self.config.ordered_retry_pause)
            self._later.add(delay_ms, lambda: self.waiting.append(again))

    # ---- what messages report to

    def ack(self, message: ReceivedMessage) -> None:
        """Note that a handler said it is done."""
        self._levels.setdefault(id(message), None)

    async def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        """Record that a handler, or the error handler, returned the message for redelivery."""
        self._levels.setdefault(id(message), delay_level)

    def in_progress(self, message: ReceivedMessage) -> None:
        """Do nothing: time stands still."""


class TestApp:
    """Runs an app's handlers in the test's own loop: no client, no broker, no waiting.

    Filters, conditions, serializers, batches, retries, error handlers and middlewares are the
    client's own. What handlers send is published too, that of a transaction once it is committed;
    one that ended unknown is asked about. A request is answered at once: by the app's responders,
    or by `answer_requests`; otherwise it takes its timeout. Delayed messages and retries come at
    once, or with `simulated_time` when `pass_time` says that it is time.

    Args:
        app: not started; one `TestApp` at a time.
        simulated_time: have delays and pauses before retries, as brokers with default levels have.

    Example:
        ::

            async with TestApp(app, simulated_time=True) as test:
                await test.publish("reminders", "o1", delay=3600)
                await test.pass_time(3599)
                assert test.acked("mail") == []
                await test.pass_time(1)
                assert len(test.acked("mail")) == 1
    """

    __test__ = False  # pytest collects classes of such names

    def __init__(self, app: App, *, simulated_time: bool = False) -> None:
        self._app = app
        self._later = Later(is_simulated=simulated_time)
        requests = Requests(self._respond)
        self._lines = [_Line(app, each, self._later, requests) for each in app.subscriptions]
        self._producer = AppProducer(app, self._later, requests)
        self._requests = requests
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
        """Call handlers until nothing is left to do now; returns how many messages they got.

        Raises:
            ClientError: after 10,000 messages; they seem to go on for ever.
        """
        count = 0
        while True:
            await self._producer.flush()
            await self._producer.check_back()
            while self._producer.fresh:
                ext = self._producer.fresh.popleft()
                for line in self._lines:
                    if not (line.is_responder and self._requests.is_one(ext)):
                        line.offer(ext)
            busy = [line for line in self._lines if line.waiting]
            if not busy:
                return count
            for line in busy:
                count += await line.work(self._executor)
            if count > MAX_DELIVERIES:
                raise ClientError(f"handlers got {count} messages and there are more")

    async def pass_time(self, duration: Duration) -> int:
        """Let simulated time pass, and call handlers with what becomes due, in its order.

        Args:
            duration: seconds, or a timedelta.

        Returns:
            How many messages they got.

        Raises:
            ClientError: there is no simulated time, or see `run_until_idle`.
        """
        if not self._later.is_simulated:
            raise ClientError("time passes with TestApp(app, simulated_time=True) only")
        until_ms = self._later.now_ms + to_ms(duration)
        count = await self.run_until_idle()
        while self._later.run_next(until_ms):
            count += await self.run_until_idle()
        self._later.now_ms = max(self._later.now_ms, until_ms)
        return count

    async def _respond(self, ext: MessageExt) -> None:
        """Have the app's responders handle a request of a handler, at once."""
        for line in self._lines:
            if line.is_responder and line.offer(ext):
                while line.waiting and self._requests.is_open(ext):
                    await line.work(self._executor)

    def answer_requests(self, topic: str, answer: Any) -> None:  # noqa: ANN401
        """Answer the requests that handlers send to a topic outside the app.

        Args:
            topic: where requests go.
            answer: what the app's serializer takes, or a function of the request that returns it.
        """
        self._requests.answers[topic] = answer

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds since the beginning; slow and frozen sends take some, too."""
        return self._later.now_ms / 1000

    def fail_sends(self, error: Exception | None) -> None:
        """Have what handlers send fail with this from now on; None ends that."""
        self._producer.failure = error

    def freeze_sends(self, *, frozen: bool = True) -> None:
        """Leave the sends of handlers unanswered, so that each one raises after its timeout.

        The time is simulated; nothing is stored.
        """
        self._producer.is_frozen = frozen

    def slow_sends(self, duration: Duration) -> None:
        """Have each send of handlers take so much simulated time; over its timeout, it fails."""
        self._producer.slow_ms = to_ms(duration)

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

    def answers(self, group: str) -> list[Any]:
        """Return what responders of a group answered, the oldest first.

        What is published to a responder's topic is a request; middlewares may change an answer.
        """
        return [each for line in self._of(group) for each in line.answers]

    def dead(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of a group."""
        return [each for line in self._of(group) for each in line.dead]

    def _of(self, group: str) -> list[_Line]:
        found = [line for line in self._lines if line.group == group]
        if not found:
            raise ValueError(f"no handler is of group {group}")
        return found
