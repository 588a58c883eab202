"""Producer of the handlers of a `TestApp`, and the simulated time of its sends."""

import asyncio
import heapq
import inspect
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, Unpack

from rocketpy.app.application import App
from rocketpy.client.callbacks.middleware import Sending, surrounded
from rocketpy.client.config import ProducerConfig
from rocketpy.client.messages.delivery_time import DELAYS, LEVELS_MS
from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.messages.send_options import SendOptions, check_options
from rocketpy.client.options.durations import Duration, to_ms, to_s
from rocketpy.client.producer.middleware_producer import make_sending
from rocketpy.client.producer.producer import Producer
from rocketpy.client.producer.transaction import Transaction, check_transactional
from rocketpy.client.sending.outgoing_message import (
    Outgoing,
    build_outgoing,
    check_send_topic,
    unpacked,
)
from rocketpy.client.sending.result import SendResult, SendStats, SendStatus
from rocketpy.errors import (
    ClientError,
    IllegalMessageError,
    MessageIllegalError,
    RemoteError,
    RequestTimeoutError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import PROPERTY_DELAY_TIME_LEVEL, parse_properties
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import SystemClock

_CHECK_AFTER_MS: Final = 30_000
_MAX_CHECKS: Final = 15
_MOST_DELAY_MS: Final = 259_200_000
_REPLY_TOPIC: Final = "test_REPLY_TOPIC"


def level_ms(level: int) -> int:
    """Return the delay of a level, of a broker with the default levels."""
    return LEVELS_MS[min(level, len(LEVELS_MS)) - 1]


class Later:
    """Scheduled calls, in simulated time or, without it, at once.

    Args:
        is_simulated: whether calls wait for their time.

    Attributes:
        now_ms: time since the start of the test.
    """

    def __init__(self, *, is_simulated: bool) -> None:
        self.now_ms: int = 0
        self.is_simulated: bool = is_simulated
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, delay_ms: int, work: Callable[[], None]) -> None:
        """Call a function after a delay; at once without simulated time or delay."""
        if not self.is_simulated or delay_ms <= 0:
            work()
        else:
            heapq.heappush(self._due, (self.now_ms + delay_ms, next(self._numbers), work))

    def run_next(self, until_ms: int) -> bool:
        """Run the next call due before a time; returns False if there is none."""
        if not self._due or self._due[0][0] > until_ms:
            return False
        at_ms, _, work = heapq.heappop(self._due)
        self.now_ms = max(self.now_ms, at_ms)
        work()
        return True


class Requests:
    """Requests of handlers that wait for their answer.

    Args:
        respond: passes a request to the app's responders.

    Attributes:
        answers: answers of other programs by topic: a body, or a function of the request.
    """

    def __init__(self, respond: Callable[[MessageExt], Awaitable[None]]) -> None:
        self.answers: dict[str, Any] = {}
        self._respond = respond
        self._open: dict[int, list[bytes | RemoteError]] = {}
        self._known: dict[int, MessageExt] = {}

    def is_one(self, ext: MessageExt) -> bool:
        """Return whether a message is a request, which responders get at once."""
        return id(ext) in self._known

    def is_open(self, ext: MessageExt) -> bool:
        """Return whether a request waits for its answer."""
        return self._open.get(id(ext)) == []

    def answered(self, message: ReceivedMessage, data: bytes | RemoteError) -> None:
        """Accept an answer; only the first one counts."""
        if self.is_open(message.ext):
            self._open[id(message.ext)].append(data)

    async def answer(self, ext: MessageExt, config: ProducerConfig) -> bytes | None:
        """Return the answer to a request, None without one.

        Raises:
            RemoteError: the responder's handler failed.
        """
        self._known[id(ext)] = ext
        data = self._open[id(ext)] = []
        try:
            if ext.topic in self.answers:
                queue = MessageQueue(ext.topic, "test", 0)
                message = ReceivedMessage(ext, queue, serializer=config.serializer)
                given = self.answers[ext.topic]
                self.answered(
                    message, config.serializer.dumps(given(message) if callable(given) else given)
                )
            else:
                await self._respond(ext)
        finally:
            del self._open[id(ext)]
        outcome = data[0] if data else None
        if isinstance(outcome, RemoteError):
            raise outcome
        return outcome


class _Ends:
    """Ends the transactions of a `TestApp`."""

    def __init__(self, producer: "AppProducer") -> None:
        self._producer = producer

    async def end(self, half: SendResult, state: TxState) -> None:
        """Publish or drop the message."""
        self._producer.end(half.msg_id, state)


class AppProducer(Producer):
    """Producer that records messages, with failing or slow sends on demand."""

    def __init__(self, app: App, later: Later, requests: Requests) -> None:
        self.config: ProducerConfig = ProducerConfig(
            serializer=app.serializer, compress_over_bytes=0
        )
        self.failure: Exception | None = None
        self.slow_ms: int = 0
        self.is_frozen: bool = False
        self.exts: list[MessageExt] = []
        self.fresh: deque[MessageExt] = deque()
        self.group: str = wrap_namespace(
            app.client.config.namespace, app.group or app.client.config.group
        )
        self._namespace = app.client.config.namespace
        self._app = app
        self._later = later
        self._requests = requests
        self._numbers = itertools.count()
        self._halves: dict[str, tuple[MessageExt, int]] = {}
        self._to_check: deque[str] = deque()
        self._failed = 0
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
        ext, built, queue = self._made(topic, body, options)
        delay_ms = self._delay_ms(built)
        if delay_ms > _MOST_DELAY_MS:  # as a broker with the default `timerMaxDelaySec`
            raise MessageIllegalError(
                ResponseCode.MESSAGE_ILLEGAL, "the delay must not be longer than 3 days"
            )
        self._publish(ext, delay_ms)
        return SendResult(SendStatus.SEND_OK, built.msg_id, "", queue, ext.queue_offset)

    def _made(
        self, topic: str, body: object, options: SendOptions
    ) -> tuple[MessageExt, Outgoing, MessageQueue]:
        number = next(self._numbers)
        built = build_outgoing(body, options, self.config, f"{number:032X}")
        ext = MessageExt(
            topic=topic,
            body=built.body,
            flag=built.flag,
            properties=parse_properties(built.properties),
            queue_offset=number,
        )
        return ext, built, MessageQueue(topic, "test", 0)

    def _publish(self, ext: MessageExt, delay_ms: int = 0) -> None:
        self.exts.append(ext)
        self._later.add(delay_ms, lambda: self.fresh.append(ext))

    def _meet_faults(self, topic: str, timeout_ms: int) -> None:
        if self.failure is not None:
            self._failed += 1
            raise self.failure
        took_ms = timeout_ms if self.is_frozen else min(self.slow_ms, timeout_ms)
        self._later.now_ms += took_ms
        if self.is_frozen or self.slow_ms > timeout_ms:
            self._failed += 1
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
        """Publish a message of the test."""
        return self._keep(topic, body, options, may_fail=False)

    async def send(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """See `Producer.send`."""
        result: SendResult = await self._through("send", topic, body, options)
        return result

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendResult]:
        """See `Producer.send_nowait`."""
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
        """See `Producer.send_oneway`."""
        check_options(options)
        self._task(self._through("oneway", topic, body, options)).add_done_callback(_forget)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """See `Producer.send_batch`."""
        results: list[SendResult] = await self._through("batch", topic, list(bodies), options)
        return results

    async def _request(
        self, topic: str | Message, body: object, options: SendOptions
    ) -> ReceivedMessage:
        async def last(given: Sending) -> ReceivedMessage:
            return await self._ask(given.topic, given.body, given.options)

        sending = make_sending("request", topic, body, options)
        answer: ReceivedMessage = await surrounded(self._app.around_sends, last)(sending)
        return answer

    async def _ask(self, topic: str, body: object, options: SendOptions) -> ReceivedMessage:
        timeout_s = self._time_of(options)
        self._keep(topic, body, options)
        ext = self.exts[-1]
        data = await self._requests.answer(ext, self.config)
        if data is None:
            self._later.now_ms += int(timeout_s * 1000)
            raise RequestTimeoutError(
                f"the request to {topic} was stored, but no answer came within {timeout_s:.3g} s"
            )
        answer = MessageExt(topic=_REPLY_TOPIC, body=data, properties={})
        queue = MessageQueue(_REPLY_TOPIC, "test", 0)
        return ReceivedMessage(answer, queue, serializer=self.config.serializer)

    async def reply(
        self,
        request: ReceivedMessage,
        body: Any,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """See `Producer.reply`."""
        if not self._requests.is_one(request.ext):
            raise IllegalMessageError(f"message {request.id} is not a request")

        async def last(given: Sending) -> SendResult:
            _, built, queue = self._made(_REPLY_TOPIC, given.body, given.options)
            self._requests.answered(request, built.body)
            return SendResult(SendStatus.SEND_OK, built.msg_id, "", queue, 0)

        sending = make_sending("reply", _REPLY_TOPIC, body, options)
        result: SendResult = await surrounded(self._app.around_sends, last)(sending)
        return result

    def transaction(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        check_after: Duration | None = None,
        **options: Unpack[SendOptions],
    ) -> Transaction:
        """See `Producer.transaction`."""
        check_transactional(self._namespace, self.group)
        check_options(options)
        check_ms = _CHECK_AFTER_MS if check_after is None else to_ms(check_after)

        async def last(given: Sending) -> SendResult:
            return self._keep_half(given.topic, given.body, given.options, check_ms)

        async def send_half() -> SendResult:
            sending = make_sending("transaction", topic, body, options)
            half: SendResult = await surrounded(self._app.around_sends, last)(sending)
            return half

        return Transaction(send_half, _Ends(self), has_checker=self._app.checker is not None)

    def _keep_half(
        self, topic: str, body: object, options: SendOptions, check_ms: int
    ) -> SendResult:
        check_send_topic(topic)
        if any(options.get(name) for name in DELAYS):
            raise IllegalMessageError("a transactional message cannot be delayed")
        self._meet_faults(topic, int(self._time_of(options) * 1000))
        ext, built, queue = self._made(topic, body, options)
        msg_id = built.msg_id
        self._halves[msg_id] = (ext, 0)
        self._later.add(check_ms, lambda: self._to_check.append(msg_id))
        return SendResult(SendStatus.SEND_OK, msg_id, "", queue, ext.queue_offset, msg_id)

    def end(self, msg_id: str, state: TxState) -> None:
        """Publish or drop the message of a transaction."""
        ext, _ = self._halves.pop(msg_id)
        if state is TxState.COMMIT:
            self._publish(ext)

    async def check_back(self) -> None:
        """Check back transactions that did not end in time, with the app's checker."""
        while self._to_check:
            msg_id = self._to_check.popleft()
            if msg_id in self._halves:
                await self._check(msg_id)

    async def _check(self, msg_id: str) -> None:
        ext, checks = self._halves[msg_id]
        state = TxState.UNKNOWN
        if self._app.checker is not None:
            queue = MessageQueue(ext.topic, "test", 0)
            message = ReceivedMessage(ext, queue, serializer=self.config.serializer)
            answer = self._app.checker(message)
            state = await answer if inspect.isawaitable(answer) else answer
        if state is not TxState.UNKNOWN or checks + 1 == _MAX_CHECKS:
            self.end(msg_id, state)
        else:
            self._halves[msg_id] = (ext, checks + 1)
            self._later.add(_CHECK_AFTER_MS, lambda: self._to_check.append(msg_id))

    async def recall(self, topic: str, handle: str) -> str:  # noqa: ARG002
        """Raise ClientError, because a `TestApp` does not support recalls."""
        raise ClientError("a TestApp does not support recall")

    @property
    def in_flight(self) -> int:
        """See `Producer.in_flight`."""
        return len(self._tasks)

    @property
    def lost_oneway(self) -> int:
        """See `Producer.lost_oneway`."""
        return 0

    @property
    def stats(self) -> SendStats:
        """See `Producer.stats`."""
        begun = len(self.exts) + len(self._halves) + self._failed
        return SendStats(begun, self.in_flight, 0, self._failed, 0, 0)

    def __repr__(self) -> str:
        """Return the group, and that it belongs to a test."""
        return f"<Producer of a TestApp, group {self.group}>"

    async def ready(self) -> None:
        """See `Producer.ready`."""

    async def flush(self) -> None:
        """See `Producer.flush`."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the result of a one-way send, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
