"""Tests of an app's handlers without a broker: publish, run until idle, check.

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
from copy import copy
from types import TracebackType
from typing import Any, Final, Self, Unpack

from rocketpy.app.application import App
from rocketpy.app.binding import Subscription
from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.callbacks.handler_threads import HandlerThreads
from rocketpy.client.callbacks.handlers import Invoke, make_invoke
from rocketpy.client.callbacks.middleware import Sending, surrounded
from rocketpy.client.config import ConsumerConfig, ResponderConfig
from rocketpy.client.consumer.dispatch.concurrent_service import run_handler
from rocketpy.client.consumer.dispatch.redelivery import FIRST_RETRY_LEVEL, level_of
from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import Duration, to_ms
from rocketpy.client.options.validation import checked_subscription
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import ClientError, RemoteError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import with_dead_letter_cause
from rocketpy.runtime.clock import SystemClock
from rocketpy.sql92.condition import compile_condition
from rocketpy.testing.app_producer import AppProducer, Later, Requests, level_ms

MAX_DELIVERIES: Final = 10_000
"""Limit for handlers that send to themselves."""
_MAX_RETRIES: Final = 16


class _Line:
    """Messages of one handler: waiting, done, redelivered, and dead letters."""

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
        self._rejections: dict[int, Rejection | None] = {}
        self._later = later
        self._requests = requests
        self._invoke: Invoke | None = None
        self._failures = FailureLog(SystemClock())
        self.waiting: deque[ReceivedMessage] = deque()
        self.acked: list[ReceivedMessage] = []
        self.retried: list[ReceivedMessage] = []
        self.dead: list[ReceivedMessage] = []
        self.answers: list[Any] = []
        self.is_responder = isinstance(self.config, ResponderConfig)

    def offer(self, ext: MessageExt) -> bool:
        """Queue a message if the handler subscribes to it; returns whether it does."""
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
        """Call the handler once; returns the number of messages."""
        count = min(len(self.waiting), self.config.batch)
        messages = [self.waiting.popleft() for _ in range(count)]
        if self._invoke is None:  # once: its log counts the failures of the error handler
            assert self.config.handler is not None
            self._invoke = make_invoke(
                self.config.handler,
                batch=self.config.batch,
                threads=HandlerThreads(executor, 1, SystemClock()),
                on_error=self.config.on_error,
                middlewares=self.config.middlewares,
                answer=self if self.is_responder else None,
            )
        rejection = await run_handler(self._invoke, messages, self._failures)
        for message in messages:
            self._end(message, self._rejections.pop(id(message), rejection))
        return count

    async def __call__(self, message: ReceivedMessage, body: object, /) -> None:
        """Answer a request."""
        config = self.config
        assert isinstance(config, ResponderConfig)
        serializer = config.reply_serializer or config.serializer

        async def last(given: Sending) -> None:
            data = serializer.dumps(given.body)
            self.answers.append(given.body)
            self._requests.answered(message, data)

        sending = Sending(kind="reply", topic=message.topic, body=body, options={})
        await surrounded(config.reply_middlewares, last)(sending)

    async def fail(self, message: ReceivedMessage, error: BaseException) -> bool:
        """Answer a handler's request with an error; messages of the test are retried instead."""
        if not self._requests.is_open(message.ext):
            return False
        self._requests.answered(message, RemoteError(type(error).__name__, str(error)))
        return True

    def is_late(self, message: ReceivedMessage) -> bool:  # noqa: ARG002 - no request waits here
        """Return False."""
        return False

    def _end(self, message: ReceivedMessage, rejection: Rejection | None) -> None:
        limit = _MAX_RETRIES if self.config.max_retries < 0 else self.config.max_retries
        if rejection is None:
            self.acked.append(message)
        elif rejection.is_dead_letter or message.retries >= limit:
            self.dead.append(self._dead_letter(message, rejection))
        else:
            self.retried.append(message)
            again = self.received(message.ext)
            again.retries = message.retries + 1
            rejection = rejection.backed_off(self.config.retry_backoff, again.retries)
            if not self.config.is_ordered:
                delay_ms = level_ms(level_of(rejection) or FIRST_RETRY_LEVEL + message.retries)
            elif rejection.delay_s is None:
                delay_ms = to_ms(self.config.ordered_retry_pause)
            else:
                delay_ms = to_ms(rejection.delay_s)
            self._later.add(delay_ms, lambda: self.waiting.append(again))

    def _dead_letter(self, message: ReceivedMessage, rejection: Rejection) -> ReceivedMessage:
        ext = copy(message.ext)
        ext.properties = with_dead_letter_cause(
            ext.properties, rejection.exception, rejection.reason, SystemClock().time_ms(), "test"
        )
        letter = self.received(ext)
        letter.retries = message.retries
        return letter

    # ---- settlement of messages

    def ack(self, message: ReceivedMessage) -> None:
        """Record that a handler acked the message."""
        self._rejections.setdefault(id(message), None)

    async def nack(self, message: ReceivedMessage, rejection: Rejection) -> None:
        """Record that a handler or an error handler nacked the message."""
        self._rejections.setdefault(id(message), rejection)

    def in_progress(self, message: ReceivedMessage) -> None:
        """Do nothing: no time passes."""


class TestApp:
    """Runs an app's handlers in the loop of the test, without client, broker or waiting.

    Filters, conditions, serializers, batches, retries, error handlers and middlewares are those
    of the client. Messages sent by handlers are published, too; those of a transaction once it is
    committed, and one that ended unknown is checked back. A request is answered at once, by the
    app's responders or by `answer_requests`; otherwise it times out. Delayed messages and retries
    are due at once, or with `simulated_time` when `pass_time` reaches their time.

    Args:
        app: not started; one `TestApp` at a time.
        simulated_time: apply delays and pauses before retries, as brokers with default levels do.

    Example:
        ::

            async with TestApp(app, simulated_time=True) as test:
                await test.publish("reminders", "o1", delay=3600)
                await test.pass_time(3599)
                assert test.acked("mail") == []
                await test.pass_time(1)
                assert len(test.acked("mail")) == 1
    """

    __test__ = False  # pytest collects classes with such names

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
        try:
            await self._app.call_hooks("start")
        except BaseException:
            self._stack.close()
            raise
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
            topic: destination, or a complete `Message`.
            body: anything the app's serializer takes; not with a `Message`.
            **options: see `SendOptions`.
        """
        return self._producer.publish(topic, body, options)

    async def run_until_idle(self) -> int:
        """Call handlers until no message is due; returns the number of messages handled.

        Raises:
            ClientError: after 10,000 messages, which looks like an endless loop.
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
                raise ClientError(f"handlers got {count} messages, and more are due")

    async def pass_time(self, duration: Duration) -> int:
        """Let simulated time pass, and call handlers with messages as they become due.

        Args:
            duration: seconds, or a timedelta.

        Returns:
            Number of messages handled.

        Raises:
            ClientError: time is not simulated, or as in `run_until_idle`.
        """
        if not self._later.is_simulated:
            raise ClientError("pass_time needs TestApp(app, simulated_time=True)")
        until_ms = self._later.now_ms + to_ms(duration)
        count = await self.run_until_idle()
        while self._later.run_next(until_ms):
            count += await self.run_until_idle()
        self._later.now_ms = max(self._later.now_ms, until_ms)
        return count

    async def _respond(self, ext: MessageExt) -> None:
        """Pass a handler's request to the app's responders, at once."""
        for line in self._lines:
            if line.is_responder and line.offer(ext):
                while line.waiting and self._requests.is_open(ext):
                    await line.work(self._executor)

    def answer_requests(self, topic: str, answer: Any) -> None:  # noqa: ANN401
        """Answer requests that handlers send to other programs.

        Args:
            topic: topic of the requests.
            answer: body for the app's serializer, or a function of the request that returns one.
        """
        self._requests.answers[topic] = answer

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds since the start, with the time of slow and frozen sends."""
        return self._later.now_ms / 1000

    def fail_sends(self, error: Exception | None) -> None:
        """Let sends of handlers fail with an error from now on; None ends it."""
        self._producer.failure = error

    def freeze_sends(self, *, frozen: bool = True) -> None:
        """Let sends of handlers get no response, so that each raises RequestTimeoutError.

        The time is simulated; nothing is stored.
        """
        self._producer.is_frozen = frozen

    def slow_sends(self, duration: Duration) -> None:
        """Let each send of handlers take simulated time; beyond its timeout it fails."""
        self._producer.slow_ms = to_ms(duration)

    def sent(self, topic: str = "") -> list[ReceivedMessage]:
        """Return published and sent messages, of one topic or of all, oldest first."""
        return [
            ReceivedMessage(
                ext, MessageQueue(ext.topic, "test", 0), serializer=self._app.serializer
            )
            for ext in self._producer.exts
            if topic in {"", ext.topic}
        ]

    def acked(self, group: str) -> list[ReceivedMessage]:
        """Return messages acked by handlers of a group."""
        return [each for line in self._of(group) for each in line.acked]

    def retried(self, group: str) -> list[ReceivedMessage]:
        """Return messages nacked by handlers of a group, once for each nack."""
        return [each for line in self._of(group) for each in line.retried]

    def answers(self, group: str) -> list[Any]:
        """Return answers of a group's responders, oldest first.

        Messages published to a responder's topic are requests; middlewares may change an answer.
        """
        return [each for line in self._of(group) for each in line.answers]

    def dead(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of a group; their properties name the cause, as a broker's do."""
        return [each for line in self._of(group) for each in line.dead]

    def _of(self, group: str) -> list[_Line]:
        found = [line for line in self._lines if line.group == group]
        if not found:
            raise ValueError(f"no handler has group {group}")
        return found
