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
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, Unpack

from rocketpy.app.application import App, Subscription
from rocketpy.client.checks import checked_subscription
from rocketpy.client.config import ConsumerConfig, ProducerConfig
from rocketpy.client.consume_service import handled
from rocketpy.client.durations import Duration, to_ms, to_s
from rocketpy.client.handler_threads import HandlerThreads
from rocketpy.client.handlers import make_invoke
from rocketpy.client.later import LEVELS_MS
from rocketpy.client.message import Message, ReceivedMessage
from rocketpy.client.middleware import Sending, surrounded
from rocketpy.client.outcomes import DEAD_LETTER
from rocketpy.client.outgoing import Outgoing, build_outgoing, check_send_topic, unpacked
from rocketpy.client.producer import Producer
from rocketpy.client.redelivery import FIRST_RETRY_LEVEL
from rocketpy.client.responder_config import ResponderConfig
from rocketpy.client.send_options import SendOptions, check_options
from rocketpy.client.send_result import SendResult, SendStatus
from rocketpy.client.surrounded_producer import make_sending
from rocketpy.errors import ClientError, RequestTimeoutError
from rocketpy.proto.message import MessageExt
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.properties import PROPERTY_DELAY_TIME_LEVEL, parse_properties
from rocketpy.runtime.clock import SystemClock
from rocketpy.sql92.condition import compile_condition

MAX_DELIVERIES: Final = 10_000
"""Handlers that send to themselves end there."""
_MAX_RETRIES: Final = 16


class _Line:
    """What one handler has to do, and what became of what it has done."""

    def __init__(self, app: App, subscription: Subscription, later: "_Later") -> None:
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
        self.waiting: deque[ReceivedMessage] = deque()
        self.acked: list[ReceivedMessage] = []
        self.retried: list[ReceivedMessage] = []
        self.dead: list[ReceivedMessage] = []
        self.answers: list[Any] = []

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
            threads=HandlerThreads(executor, 1, SystemClock()),
            on_error=self.config.on_error,
            middlewares=self.config.middlewares,
            answer=self._answer if isinstance(self.config, ResponderConfig) else None,
        )
        self._levels.clear()
        level = await handled(invoke, messages)
        for message in messages:
            self._end(message, self._levels.get(id(message), level))
        return count

    async def _answer(self, message: ReceivedMessage, body: object) -> None:
        config = self.config
        assert isinstance(config, ResponderConfig)
        serializer = config.reply_serializer or config.serializer

        async def last(given: Sending) -> None:
            serializer.dumps(given.body)  # raises what it would raise
            self.answers.append(given.body)

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
        """Note that a handler, or who handles errors, gave it back."""
        self._levels.setdefault(id(message), delay_level)

    def in_progress(self, message: ReceivedMessage) -> None:
        """Do nothing: time stands still."""


def level_ms(level: int) -> int:
    """Return how long a delay level is on a broker with the default levels."""
    return LEVELS_MS[min(level, len(LEVELS_MS)) - 1]


class _Later:
    """What is to happen at a time of its own, in simulated time or, without one, at once.

    Args:
        is_simulated: whether anything waits.

    Attributes:
        now_ms: the time since the test began.
    """

    def __init__(self, *, is_simulated: bool) -> None:
        self.now_ms = 0
        self.is_simulated = is_simulated
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, delay_ms: int, work: Callable[[], None]) -> None:
        """Do something after a time; at once when there is no time, or none is to pass."""
        if not self.is_simulated or delay_ms <= 0:
            work()
        else:
            heapq.heappush(self._due, (self.now_ms + delay_ms, next(self._numbers), work))

    def run_next(self, until_ms: int) -> bool:
        """Do what is due next, until some time; returns False when there is nothing."""
        if not self._due or self._due[0][0] > until_ms:
            return False
        at_ms, _, work = heapq.heappop(self._due)
        self.now_ms = max(self.now_ms, at_ms)
        work()
        return True


class _TestProducer(Producer):
    """Keeps what is sent; fails, or takes its time, when it was told to."""

    def __init__(self, app: App, later: _Later) -> None:
        self.config = ProducerConfig(serializer=app.serializer, compress_over_bytes=0)
        self.failure: Exception | None = None
        self.slow_ms = 0
        self.is_frozen = False
        self.exts: list[MessageExt] = []
        self.fresh: deque[MessageExt] = deque()
        self._app = app
        self._later = later
        self._timeout_s = to_s(self.config.timeout)
        self._tasks: set[asyncio.Task[Any]] = set()

    def _keep(
        self, topic: str | Message, body: object, options: SendOptions, *, may_fail: bool = True
    ) -> SendResult:
        topic, body, options = unpacked(topic, body, options)
        check_send_topic(topic)
        if may_fail:
            check_options(options)
            self._meet_faults(topic, int(self._time_of(options) * 1000))
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
        self._later.add(self._delay_ms(built), lambda: self.fresh.append(ext))
        queue = MessageQueue(topic, "test", 0)
        return SendResult(SendStatus.SEND_OK, built.msg_id, "", queue, number)

    def _meet_faults(self, topic: str, timeout_ms: int) -> None:
        if self.failure is not None:
            raise self.failure
        took_ms = timeout_ms if self.is_frozen else min(self.slow_ms, timeout_ms)
        self._later.now_ms += took_ms
        if self.is_frozen or self.slow_ms > timeout_ms:
            raise RequestTimeoutError(f"no answer to a send to {topic} within {timeout_ms} ms")

    @staticmethod
    def _delay_ms(built: Outgoing) -> int:
        if built.moment is not None and built.moment.delay_ms is not None:
            return built.moment.delay_ms
        if built.moment is not None and built.moment.deliver_ms is not None:
            return built.moment.deliver_ms - SystemClock().time_ms()
        level = parse_properties(built.properties).get(PROPERTY_DELAY_TIME_LEVEL)
        return level_ms(int(level)) if level else 0

    async def _through(
        self, kind: str, topic: str | Message, body: object, options: SendOptions
    ) -> Any:  # noqa: ANN401
        """Send through the app's middlewares."""

        async def last(given: Sending) -> Any:  # noqa: ANN401
            if given.kind != "batch":
                return self._keep(given.topic, given.body, given.options)
            return [
                self._keep(each, None, given.options)
                if isinstance(each, Message)
                else self._keep(given.topic, each, given.options)
                for each in given.body
            ]

        return await surrounded(self._app.around_sends, last)(
            make_sending(kind, topic, body, options)
        )

    def publish(self, topic: str | Message, body: object, options: SendOptions) -> SendResult:
        """Keep a message of the test's own."""
        return self._keep(topic, body, options, may_fail=False)

    async def send(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        result: SendResult = await self._through("send", topic, body, options)
        return result

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendResult]:
        return self._task(self._through("send", topic, body, options))

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        check_options(options)
        self._task(self._through("oneway", topic, body, options)).add_done_callback(_forget)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        results: list[SendResult] = await self._through("batch", topic, list(bodies), options)
        return results

    async def ready(self) -> None:
        return None

    async def flush(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))


def _forget(task: asyncio.Task[Any]) -> None:
    """Nobody asks how a one-way send ended."""
    if not task.cancelled():
        task.exception()


class TestApp:
    """Runs an app's handlers in the test's own loop: no client, no broker, no waiting.

    Filters, conditions, serializers, batches, retries, error handlers and middlewares are the
    client's own. What handlers send is published too. Delayed messages and retries come at once, or
    with `simulated_time` when `pass_time` says that it is time.

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
        self._later = _Later(is_simulated=simulated_time)
        self._lines = [_Line(app, each, self._later) for each in app.subscriptions]
        self._producer = _TestProducer(app, self._later)
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

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds since the beginning; slow and frozen sends take some, too."""
        return self._later.now_ms / 1000

    def fail_sends(self, error: Exception | None) -> None:
        """Have what handlers send fail with this from now on; None ends that."""
        self._producer.failure = error

    def freeze_sends(self, *, frozen: bool = True) -> None:
        """Have nobody answer what handlers send: it takes its timeout, and raises that it is over.

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
