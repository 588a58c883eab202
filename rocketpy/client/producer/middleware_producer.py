"""A producer with middlewares: what it sends goes through them first."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Unpack, cast

from rocketpy.client.callbacks.middleware import Proceed, Sending, surrounded
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ProducerConfig
from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.outcomes import ends_task, retrieve_exit, running_task
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import Duration
from rocketpy.client.producer.batch import listed
from rocketpy.client.producer.producer import Producer
from rocketpy.client.producer.request_reply import reply_place
from rocketpy.client.sending.in_flight_window import UNLIMITED, InFlightWindow
from rocketpy.client.sending.outgoing_message import unpacked
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import TooManyInFlightError


def make_sending(kind: Any, topic: str | Message, body: object, options: SendOptions) -> Sending:  # noqa: ANN401
    """Return what middlewares get of a send; a `Message` is spread over it."""
    topic, body, options = unpacked(topic, body, options)
    named = cast("SendOptions", {name: each for name, each in options.items() if each is not None})
    return Sending(kind=kind, topic=topic, body=body, options=named)


class MiddlewareProducer(Producer):
    """A `Producer` whose sends go through `middlewares`; made by `Client.producer`.

    Each call, also one in the background, counts as in flight until the outermost middleware
    has ended. What a plain producer refuses at the call of `send_nowait` or `send_oneway`, this one
    may only refuse later: in the future, or as a loss.
    """

    def __init__(self, instance: Instance, group: str, config: ProducerConfig) -> None:
        super().__init__(instance, group, config)
        self._calls = InFlightWindow(config.max_in_flight, UNLIMITED)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def _call(self, sending: Sending, last: Proceed) -> Any:  # noqa: ANN401
        return await surrounded(self.config.middlewares, last)(sending)

    async def _counted(self, sending: Sending, last: Proceed) -> Any:  # noqa: ANN401
        self._transport()
        self._calls.enter(0)
        try:
            return await self._call(sending, last)
        finally:
            self._calls.leave(0)

    def _begun(self, call: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
        """Start a call in the background."""
        self._transport()
        if not self._calls.has_space:
            raise TooManyInFlightError(
                f"{self.in_flight} sends are in flight (limit: max_in_flight="
                f"{self.config.max_in_flight}), this one was not sent; await producer.ready() "
                "before each send_nowait or send_oneway"
            )
        self._calls.enter(0)

        async def run() -> Any:  # noqa: ANN401
            return await call()

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._calls.leave(0))
        return task

    async def _send_last(self, given: Sending) -> SendResult:
        return await super().send(given.topic, given.body, **given.options)

    @property
    def in_flight(self) -> int:
        """Sends that wait for their result, or are in a middleware."""
        return max(self._calls.messages, super().in_flight)

    async def send(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """See `Producer.send`."""
        sending = make_sending("send", topic, body, options)
        return cast("SendResult", await self._counted(sending, self._send_last))

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendResult]:
        """See `Producer.send_nowait`."""
        sending = make_sending("send", topic, body, options)
        return self._begun(lambda: self._call(sending, self._send_last))

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        """See `Producer.send_oneway`."""
        sending = make_sending("oneway", topic, body, options)

        async def last(given: Sending) -> None:
            await super(MiddlewareProducer, self).ready()
            super(MiddlewareProducer, self).send_oneway(given.topic, given.body, **given.options)

        async def call() -> None:
            task = running_task()
            try:
                await self._call(sending, last)
            except asyncio.CancelledError as error:
                # Of something that a middleware waited for, unless the loop is ending.
                self._oneway.losses.add(sending.topic, error)
                raise
            except BaseException as error:  # has no caller
                if ends_task(error, task):
                    retrieve_exit(error, task)
                    raise
                self._oneway.losses.add(sending.topic, error)

        self._begun(call)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """See `Producer.send_batch`."""

        async def last(given: Sending) -> list[SendResult]:
            batch = super(MiddlewareProducer, self).send_batch
            return await batch(given.topic, given.body, **given.options)

        sending = Sending(kind="batch", topic=topic, body=listed(bodies), options=options)
        return cast("list[SendResult]", await self._counted(sending, last))

    async def _request(
        self, topic: str | Message, body: object, options: SendOptions
    ) -> ReceivedMessage:
        async def last(given: Sending) -> ReceivedMessage:
            ask = super(MiddlewareProducer, self)._request
            return await ask(given.topic, given.body, given.options)

        sending = make_sending("request", topic, body, options)
        return cast("ReceivedMessage", await self._counted(sending, last))

    async def reply(
        self,
        request: ReceivedMessage,
        body: Any,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """See `Producer.reply`."""

        async def last(given: Sending) -> SendResult:
            answer = super(MiddlewareProducer, self).reply
            return await answer(request, given.body, **given.options)

        sending = make_sending("reply", reply_place(request)[0], body, options)
        return cast("SendResult", await self._counted(sending, last))

    async def _send_half(
        self, topic: str | Message, body: object, options: SendOptions, check_after: Duration | None
    ) -> SendResult:
        async def last(given: Sending) -> SendResult:
            half = super(MiddlewareProducer, self)._send_half
            return await half(given.topic, given.body, given.options, check_after)

        sending = make_sending("transaction", topic, body, options)
        return cast("SendResult", await self._counted(sending, last))

    async def ready(self) -> None:
        """See `Producer.ready`."""
        # The room for calls is what `send_nowait` checks, so it must be the last to be waited for.
        await super().ready()
        await self._calls.wait_for_space()

    async def flush(self) -> None:
        """See `Producer.flush`."""
        await super().flush()
        await self._calls.flush()
        await super().flush()

    async def _close(self) -> None:
        self._window.refuse_waiting()
        self._asked.refuse_waiting()
        await self._calls.close()
        await super()._close()
