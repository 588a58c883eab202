"""An app: functions that handle messages, and a life around them.

Example:
    ::

        from dataclasses import dataclass

        import rocketpy

        app = rocketpy.App("127.0.0.1:9876")


        @dataclass
        class Order:
            id: str
            amount: int


        @app.subscribe("orders", group="billing", filter="paid")
        async def bill(order: Order, producer: rocketpy.Producer) -> None:
            await producer.send("bills", {"order": order.id}, keys=[order.id])


        if __name__ == "__main__":
            app.run()
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

from rocketpy.app.binding import bound, wishes_of
from rocketpy.client.callbacks.handlers import ErrorHandler, Handler, is_coroutine_function
from rocketpy.client.callbacks.hooks import TxChecker
from rocketpy.client.callbacks.middleware import HandleMiddleware, SendMiddleware
from rocketpy.client.client import Client, connect
from rocketpy.client.config import ConsumerConfig, ResponderConfig
from rocketpy.client.consumer.push_consumer import Consumer
from rocketpy.client.messages.serializers import Serializer, json_or_text
from rocketpy.client.messages.typed_serializer import TypedSerializer
from rocketpy.client.options.keyword_options import method_options
from rocketpy.client.options.validation import refuse_generators
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import ClosedError, ConfigError
from rocketpy.remoting.network.event_loop import new_event_loop

logger: logging.Logger = logging.getLogger(__name__)

H = TypeVar("H", bound=Handler)
Hook = Callable[[], Awaitable[None] | None]
K = TypeVar("K", bound=Hook)
HM = TypeVar("HM", bound=HandleMiddleware)
SM = TypeVar("SM", bound=SendMiddleware)


class Decorator(Protocol):
    """Notes a handler and returns it as it is."""

    def __call__(self, handler: H, /) -> H:
        """Note `handler`."""
        ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """A handler of an app.

    Attributes:
        kind: whether what it returns is an answer.
        handler: as it was written.
        config: its consumer's settings; the handler in them is called as consumers call it.
    """

    kind: Literal["consumer", "responder"]
    handler: Handler
    config: ConsumerConfig


class App:
    """Handlers by decorator, hooks around them, and a process that runs them.

    Args:
        client: from `connect`, not started; or what `connect` takes as name servers.
        serializer: writes what the app's producer sends, and reads bodies without an annotation;
            text and bytes are sent as they are by default, everything else as JSON.
        group: of the producer, and of the handler that names none; empty means the client's.

    Attributes:
        subscriptions: its handlers.
        around_sends: the middlewares of its producer and of its responders' answers.
        checker: says how its transactions ended, if anything does.
    """

    def __init__(
        self,
        client: Client | str | Sequence[str] | None = None,
        *,
        serializer: Serializer = json_or_text,
        group: str = "",
    ) -> None:
        self.client: Client = client if isinstance(client, Client) else connect(client)
        self.subscriptions: list[Subscription] = []
        self.serializer = serializer
        self.group = group
        self._producer: Producer | None = None
        self.checker: TxChecker | None = None
        self._error_handler: ErrorHandler | None = None
        self._around_handlers: list[HandleMiddleware] = []
        self.around_sends: list[SendMiddleware] = []
        self._hooks: dict[str, list[Hook]] = {"start": [], "stop": []}
        self._consumers: list[Consumer] = []
        self._ended = asyncio.Event()
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        """Say how many handlers it has, and of which client it is."""
        return f"<App of {self.client!r}, {len(self.subscriptions)} handlers>"

    # ---- handlers

    @method_options(ConsumerConfig)
    def subscribe(self, config: ConsumerConfig) -> Decorator:
        """Return a decorator: the function handles messages of these topics.

        Takes the fields of `rocketpy.client.config.ConsumerConfig` as keyword arguments, the
        handler apart. What the function gets, its annotations say: `rocketpy.app.binding`.
        Returning means done, raising means again later; `Retry` and `ToDLQ` say how.

        Raises:
            ConfigError: a setting that cannot be used, a function with `yield`, or a group that
                another handler of the app has.
            TypeError: a parameter of the function that nothing fits.
        """
        return self._noting("consumer", config)

    @method_options(ResponderConfig)
    def responder(self, config: ResponderConfig) -> Decorator:
        """Return a decorator: what the function returns is the answer to a request.

        Takes what `subscribe` takes, `reply_middlewares` and `reply_serializer`; None is no answer.
        Answers go through the app's send middlewares first. Where the annotation of the body says
        how it is read, the app's serializer writes answers: they may be of another type.
        """
        return self._noting("responder", config)

    def _noting(self, kind: Literal["consumer", "responder"], config: ConsumerConfig) -> Decorator:
        if config.handler is not None:
            raise ConfigError("the decorated function is the handler", key="handler")

        def note(handler: H, /) -> H:
            refuse_generators({"handler": handler})
            is_list = config.batch > 1
            wishes = wishes_of(handler, is_list=is_list)
            call = bound(handler, wishes, lambda: self.producer, is_list=is_list)
            reads = wishes.serializer(config.serializer, self.serializer)
            used = replace(config, handler=call, serializer=reads)
            is_typed = isinstance(reads, TypedSerializer) and reads is not config.serializer
            is_any = is_typed or self.serializer is json_or_text
            if isinstance(used, ResponderConfig) and used.reply_serializer is None and is_any:
                used = replace(used, reply_serializer=self.serializer)  # an answer of another type
            self._check_group(used)
            self.subscriptions.append(Subscription(kind, handler, used))
            return handler

        return note

    def _check_group(self, config: ConsumerConfig) -> None:
        """Refuse a second handler of a group here; at the start, only a process with brokers would.

        Members of a group must subscribe to the same, so two of one client cannot differ.
        """
        group = self._group_of(config)
        for other in self.subscriptions:
            if self._group_of(other.config) == group:
                name = getattr(other.handler, "__name__", repr(other.handler))
                reason = (
                    f"{name} is the handler of group {group}, which has one: "
                    f"give each a group of its own, as in subscribe(..., group=...)"
                )
                raise ConfigError(reason, key="group")

    def _group_of(self, config: ConsumerConfig) -> str:
        return config.group or self.group or self.client.config.group

    def transaction_checker(self, checker: TxChecker) -> TxChecker:
        """Have a function say how transactions of the app's producer ended; a decorator.

        Raises:
            ConfigError: there is one already.
        """
        if self.checker is not None:
            raise ConfigError("an app has one transaction checker", key="transaction_checker")
        refuse_generators({"transaction_checker": checker})
        self.checker = checker
        return checker

    def on_error(self, handler: ErrorHandler) -> ErrorHandler:
        """Register the error handler of subscriptions without an `on_error`; a decorator."""
        refuse_generators({"on_error": handler})
        self._error_handler = handler
        return handler

    def middleware(self, middleware: HM) -> HM:
        """Have a coroutine function around each call of each handler; a decorator.

        The first one noted is the outermost; a subscription's own are inside.
        """
        refuse_generators({"middleware": middleware})
        self._around_handlers.append(middleware)
        return middleware

    def send_middleware(self, middleware: SM) -> SM:
        """Have a coroutine function around what the app sends, also around answers; a decorator."""
        refuse_generators({"send_middleware": middleware})
        self.around_sends.append(middleware)
        return middleware

    def on_start(self, hook: K) -> K:
        """Have a function called before the first message, with the producer there; a decorator."""
        refuse_generators({"on_start": hook})
        self._hooks["start"].append(hook)
        return hook

    def on_stop(self, hook: K) -> K:
        """Have a function called after the last message, before the client closes; a decorator."""
        refuse_generators({"on_stop": hook})
        self._hooks["stop"].append(hook)
        return hook

    # ---- life

    @property
    def producer(self) -> Producer:
        """Producer of the app, with the app's serializer and transaction checker.

        Raises:
            ClosedError: the app is not started.
        """
        if self._producer is None:
            raise ClosedError("the app is not started")
        return self._producer

    async def __aenter__(self) -> Self:
        """Start the client, call the hooks, start the consumers."""
        try:
            await self._stack.enter_async_context(self.client)
            self._producer = self.client.producer(
                group=self.group,
                serializer=self.serializer,
                tx_checker=self.checker,
                middlewares=self.around_sends,
            )
            self._stack.push_async_callback(self.call_hooks, "stop")
            await self.call_hooks("start")
            for subscription in self.subscriptions:
                consumer = self._consumer(subscription)
                self._consumers.append(consumer)
                self._stack.push_async_callback(consumer.close)
                await consumer.start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for running handlers, call the hooks, close the client."""
        self.stop()
        await asyncio.gather(*(each.close() for each in self._consumers))
        await self._stack.aclose()

    def _consumer(self, subscription: Subscription) -> Consumer:
        config = self.effective(subscription)
        options: dict[str, Any] = {each.name: getattr(config, each.name) for each in fields(config)}
        make = self.client.consumer if subscription.kind == "consumer" else self.client.responder
        return make(**options)

    def effective(self, subscription: Subscription) -> ConsumerConfig:
        """Return the settings of a subscription's consumer, with what is the app's."""
        config = subscription.config
        if isinstance(config, ResponderConfig):
            around = (*self.around_sends, *config.reply_middlewares)
            config = replace(config, reply_middlewares=around)
        return replace(
            config,
            group=config.group or self.group,
            on_error=config.on_error or self._error_handler,
            middlewares=(*self._around_handlers, *config.middlewares),
        )

    async def call_hooks(self, moment: Literal["start", "stop"]) -> None:
        """Call the hooks of a moment, in the order in which they were written."""
        for hook in self._hooks[moment]:
            if is_coroutine_function(hook):
                work = hook()
                assert work is not None
                await work
            else:
                await asyncio.to_thread(hook)

    @contextlib.contextmanager
    def sending_through(self, producer: Producer) -> Iterator[None]:
        """Have handlers send through this producer, for tests that start no client."""
        self._producer = producer
        try:
            yield
        finally:
            self._producer = None

    def stop(self) -> None:
        """Request the end of the app, for a signal handler; running handlers finish."""
        for consumer in self._consumers:
            consumer.stop()
        self._ended.set()

    async def serve(self) -> None:
        """Run until `stop`, or until a consumer fails in a way that does not pass.

        Raises:
            Exception: that failure.
        """
        async with self:
            watches = [asyncio.create_task(each.wait_closed()) for each in self._consumers]
            ended = asyncio.create_task(self._ended.wait())
            try:
                await asyncio.wait([ended, *watches], return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.stop()
                ended.cancel()
                await asyncio.gather(*watches)

    def run(self) -> None:
        """Run the app in this process until SIGTERM or Ctrl-C, on uvloop where there is one.

        Raises:
            Exception: why it could not start, or what ended it.
        """

        async def main() -> None:
            loop = asyncio.get_running_loop()
            if sys.platform != "win32":  # where Ctrl-C interrupts
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self.stop)
            await self.serve()

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
