"""Applications: handlers with their client, hooks and process.

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
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from rocketpy.app import binding, health
from rocketpy.app.binding import Decorator, H, Subscription, bound, check_result, checked_body
from rocketpy.client.callbacks.handler_signature import check_callback, check_middleware
from rocketpy.client.callbacks.handler_threads import call_on_thread
from rocketpy.client.callbacks.handlers import ErrorHandler, Handler, is_coroutine_function
from rocketpy.client.callbacks.hooks import TxChecker
from rocketpy.client.callbacks.middleware import HandleMiddleware, SendMiddleware
from rocketpy.client.client import Client, connect
from rocketpy.client.config import ConsumerConfig, ResponderConfig
from rocketpy.client.consumer.push_consumer import Consumer
from rocketpy.client.lifecycle import running_loop
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.send_options import SendOptions, check_options
from rocketpy.client.messages.serializers import Serializer, json_or_text
from rocketpy.client.messages.typed_serializer import ConvertingSerializer, TypedSerializer
from rocketpy.client.options.durations import Duration, to_s
from rocketpy.client.options.keyword_options import method_options
from rocketpy.client.options.validation import described, fits, refuse_generators
from rocketpy.client.producer.producer import Producer
from rocketpy.client.sending.outgoing_message import check_send_topic, check_values
from rocketpy.errors import ClosedError, ConfigError
from rocketpy.remoting.network.event_loop import new_event_loop
from rocketpy.runtime.readiness import NotReady, ServerState, state_reasons
from rocketpy.runtime.stop_signals import stop_signals

logger: logging.Logger = logging.getLogger(__name__)

Hook = Callable[[], Awaitable[None] | None]
K = TypeVar("K", bound=Hook)
HM = TypeVar("HM", bound=HandleMiddleware)
SM = TypeVar("SM", bound=SendMiddleware)


class App:
    """Application of message handlers, which decorators register.

    Args:
        client: from `connect`, not started; or name servers, as `connect` takes them.
        serializer: encodes bodies that the app's producer sends, and decodes bodies without an
            annotation; by default, text and bytes are sent unchanged and other values as JSON.
        group: of the producer, and of handlers without a group; empty for the client's.
        wait_for_cluster: how long a start waits for a name server and a broker that are not there
            yet, in seconds or as a timedelta.

    Attributes:
        subscriptions, hooks: its handlers, and its functions of `start` and `stop`.
        around_sends: middlewares of its producer and of its responders' answers.
        checker: answers check-backs of its transactions, if there is one.
    """

    def __init__(
        self,
        client: Client | str | Sequence[str] | None = None,
        *,
        serializer: Serializer = json_or_text,
        group: str = "",
        wait_for_cluster: Duration = 60.0,
    ) -> None:
        self.client: Client = client if isinstance(client, Client) else connect(client)
        self.subscriptions: list[Subscription] = []
        self._publications: list[tuple[Handler, str]] = []
        self.serializer = serializer
        self.group = group
        if not fits(Duration, wait_for_cluster) or to_s(wait_for_cluster) < 0:
            reason = f"{wait_for_cluster!r} is not a time of 0 s or more"
            raise ConfigError(reason, key="wait_for_cluster")
        if not fits(Serializer, serializer):
            raise ConfigError(f"{serializer!r} is not {described(Serializer)}", key="serializer")
        self._wait_s = to_s(wait_for_cluster)
        self._producer: Producer | None = None
        self.checker: TxChecker | None = None
        self._error_handler: ErrorHandler | None = None
        self._around_handlers: list[HandleMiddleware] = []
        self.around_sends: list[SendMiddleware] = []
        self.hooks: dict[str, list[Hook]] = {"start": [], "stop": []}
        self._consumers: list[Consumer] = []
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running = False
        self._state = ServerState.STARTING
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        """Return the client and the number of handlers."""
        return f"<App of {self.client!r}, {len(self.subscriptions)} handlers>"

    # ---- handlers

    @method_options(ConsumerConfig)
    def subscribe(self, config: ConsumerConfig) -> Decorator:
        """Return a decorator for the handler of some topics.

        Takes the fields of `rocketpy.client.config.ConsumerConfig` as keyword arguments, the
        handler excepted. The annotations of the function decide its arguments:
        `rocketpy.app.binding`. A message is done when the function returns, and redelivered when
        it raises; `Retry` and `ToDLQ` control how.

        Raises:
            ConfigError: an unusable setting, a function with `yield`, or a group that another
                handler of the app has.
            TypeError: a parameter of the function that has no matching argument, or a body whose
                type cannot be read; names parameter and field.
        """
        return self._noting("consumer", config)

    @method_options(ResponderConfig)
    def responder(self, config: ResponderConfig) -> Decorator:
        """Return a decorator for a function whose result answers requests.

        Takes the options of `subscribe`, `reply_middlewares` and `reply_serializer`; None sends no
        answer. Answers pass the app's send middlewares first. If the annotation of the body
        decides how it is decoded, the app's serializer encodes the answers, which may have
        another type.
        """
        return self._noting("responder", config)

    def publisher(self, topic: str, **options: Unpack[SendOptions]) -> Decorator:
        """Return a decorator that sends what a handler returns; it stands above `subscribe`.

        None is not sent; a `Message` goes to its own topic. The handler's message is done once
        the result is stored; if the send fails, it is redelivered and the handler called again.

        Args:
            topic: destination of the results.
            **options: see `SendOptions`.

        Raises:
            ConfigError: the function is not a handler of the app yet, or takes lists.
            IllegalMessageError: the topic or an option cannot be used.
            TypeError: an option does not exist, or has another type; or values of the function's
                return type cannot be written, or no reader could get them, such as a pydantic
                model with a required field that is excluded.

        Example:
            ::

                @app.publisher("bills")
                @app.subscribe("orders", group="billing")
                async def bill(order: Order) -> Bill:
                    return Bill(order.id)
        """
        check_options(options)
        check_send_topic(topic)
        check_values(topic, options)

        async def publish(result: Any) -> None:  # noqa: ANN401
            if isinstance(result, Message):
                await self.producer.send(result)
            elif result is not None:
                await self.producer.send(topic, checked_body(result), **options)

        def note(handler: H, /) -> H:
            name = getattr(handler, "__name__", repr(handler))
            found = [at for at, each in enumerate(self.subscriptions) if each.handler is handler]
            if not found:
                reason = f"{name} is not a handler yet: put @app.publisher above @app.subscribe"
                raise ConfigError(reason, key="publisher")
            for at in found:
                config = self.subscriptions[at].config
                assert config.handler is not None
                check_result(handler, self.serializer)
                if config.batch > 1:
                    reason = f"{name} takes lists: a publisher sends one result for one message"
                    raise ConfigError(reason, key="batch")
                used = replace(config, handler=binding.publishing(config.handler, publish))
                self.subscriptions[at] = replace(self.subscriptions[at], config=used)
            self._publications.append((handler, topic))
            return handler

        return note

    def _noting(self, kind: Literal["consumer", "responder"], config: ConsumerConfig) -> Decorator:
        if config.handler is not None:
            raise ConfigError("the decorated function is the handler", key="handler")

        def note(handler: H, /) -> H:
            if self._state is ServerState.SERVING:
                raise ClosedError("the app runs already; add handlers before its start")
            refuse_generators({"handler": handler})
            is_list = config.batch > 1
            parameters = binding.parameters_of(handler, is_list=is_list)
            call = bound(handler, parameters, lambda: self.producer, is_list=is_list)
            reads = parameters.serializer(config.serializer, self.serializer)
            used = replace(config, handler=call, serializer=reads)
            is_typed = isinstance(reads, TypedSerializer | ConvertingSerializer)
            is_typed = is_typed and reads is not config.serializer
            is_any = is_typed or self.serializer is json_or_text
            if isinstance(used, ResponderConfig) and used.reply_serializer is None and is_any:
                # The answer may have another type.
                used = replace(used, reply_serializer=self.serializer)
            if isinstance(used, ResponderConfig):
                check_result(handler, used.reply_serializer or used.serializer)
            self._check_group(used)
            self.subscriptions.append(Subscription(kind, handler, used))
            return handler

        return note

    def _check_group(self, config: ConsumerConfig) -> None:
        """Refuse a second handler of a group; otherwise only brokers would, after the start.

        Members of a group must have equal subscriptions, so one client has one member.
        """
        group = self._group_of(config)
        for other in self.subscriptions:
            if self._group_of(other.config) == group:
                name = getattr(other.handler, "__name__", repr(other.handler))
                reason = (
                    f"{name} is the second handler of group {group}: "
                    f"give each handler another group, as in subscribe(..., group=...)"
                )
                raise ConfigError(reason, key="group")

    def _group_of(self, config: ConsumerConfig) -> str:
        return config.group or self.group or self.client.config.group

    def transaction_checker(self, checker: TxChecker) -> TxChecker:
        """Register the function that answers check-backs of transactions; a decorator.

        Raises:
            ConfigError: the app has one already, or it is not a function of a message.
        """
        if self.checker is not None:
            raise ConfigError("an app has only one transaction checker", key="transaction_checker")
        check_callback("transaction_checker", checker)
        self.checker = checker
        return checker

    def on_error(self, handler: ErrorHandler) -> ErrorHandler:
        """Register the `on_error` of subscriptions without one; a decorator.

        Raises:
            ConfigError: it is not a function of a message and its error.
        """
        check_callback("on_error", handler)
        self._error_handler = handler
        return handler

    def middleware(self, middleware: HM) -> HM:
        """Register a middleware around each call of each handler; a decorator.

        The first one is the outermost; middlewares of a subscription are inside.

        Raises:
            ConfigError: it is not a coroutine function of messages and the next handler.
        """
        check_middleware("middleware", middleware)
        self._around_handlers.append(middleware)
        return middleware

    def send_middleware(self, middleware: SM) -> SM:
        """Register a middleware around each send and each answer of the app; a decorator.

        Raises:
            ConfigError: it is not a coroutine function of a send and the next sender.
        """
        check_middleware("send_middleware", middleware)
        self.around_sends.append(middleware)
        return middleware

    def on_start(self, hook: K) -> K:
        """Register a hook that runs with the producer, before the first message; a decorator.

        Raises:
            ConfigError: it is no function without parameters.
        """
        check_callback("on_start", hook)
        self.hooks["start"].append(hook)
        return hook

    def on_stop(self, hook: K) -> K:
        """Register a hook that runs after the last message, with the client open; a decorator.

        Raises:
            ConfigError: it is no function without parameters.
        """
        check_callback("on_stop", hook)
        self.hooks["stop"].append(hook)
        return hook

    def asyncapi(self, *, title: str = "RocketPy app", version: str = "0.1.0") -> dict[str, Any]:
        """Return an AsyncAPI 3.0 document of the app, for JSON or YAML.

        Topics are channels, handlers and publishers are operations, and the annotations of bodies
        become schemas. Messages that handlers send by a producer are not included.

        Args:
            title: name of the application.
            version: version of its interface.
        """
        # Deferred: a worker does not need it.
        from rocketpy.app.asyncapi import DocumentBuilder, Receiving, Sending  # noqa: PLC0415

        servers = self.client.config.name_servers or ()
        servers = servers.split(";") if isinstance(servers, str) else servers
        builder = DocumentBuilder(title, version, servers)
        for each in self.subscriptions:
            config, reply = each.config, None
            if each.kind == "responder" and isinstance(config, ResponderConfig):
                reply = config.reply_serializer or config.serializer
            builder.receive(Receiving(each.handler, config, self._group_of(config), reply))
        for publishing_handler, topic in self._publications:
            builder.send(Sending(publishing_handler, topic, self.serializer))
        return builder.document()

    # ---- lifecycle

    @property
    def producer(self) -> Producer:
        """The app's producer, with the app's serializer and transaction checker.

        Raises:
            ClosedError: the app is not started.
        """
        if self._producer is None:
            raise ClosedError("the app is not started")
        return self._producer

    async def __aenter__(self) -> Self:
        """Start the client, wait for its cluster, call the hooks, start the consumers.

        An app may be started again after its end: `client` is then another one, with the same
        settings.

        Raises:
            ClosedError: the app runs already.
        """
        self._begin()
        self.client = self.client._reopened()  # noqa: SLF001 - as of one family
        try:
            await self._stack.enter_async_context(self.client)
            await self.client.ready(self._wait_s)
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
            try:
                await self._stack.aclose()
            finally:
                self._end()
            raise
        if self._state is ServerState.STARTING:  # `stop` may have been called meanwhile
            self._state = ServerState.SERVING
        return self

    def _begin(self) -> None:
        """Note that the app runs; raises ClosedError when it does already."""
        if self._is_running:
            raise ClosedError("the app runs already; make another one to run it twice")
        self._is_running = True
        self._loop = running_loop()
        self._state = ServerState.STARTING

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish running handlers, call the hooks, close the client."""
        self._stop(self._ended)
        try:
            await asyncio.gather(*(each.close() for each in self._consumers))
            await self._stack.aclose()
        finally:
            self._end()

    def _end(self) -> None:
        """Reset the state of one run; the next one may be in another event loop."""
        self._is_running = False
        self._loop = None
        self._producer = None
        self._consumers = []
        self._ended = asyncio.Event()
        self._stack = AsyncExitStack()

    def _consumer(self, subscription: Subscription) -> Consumer:
        config = self.effective(subscription)
        options: dict[str, Any] = {each.name: getattr(config, each.name) for each in fields(config)}
        make = self.client.consumer if subscription.kind == "consumer" else self.client.responder
        return make(**options)

    def effective(self, subscription: Subscription) -> ConsumerConfig:
        """Return the settings of a subscription's consumer, completed with those of the app."""
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
        """Call the hooks of one kind, in the order of their registration.

        A hook that raises ends a start. At the stop the others are called nevertheless.

        Raises:
            Exception: of the first hook that failed; those of others are logged.
        """
        failure: Exception | None = None
        for hook in self.hooks[moment]:
            try:
                if is_coroutine_function(hook):
                    work = hook()
                    assert work is not None
                    await work
                else:
                    await call_on_thread(hook)
            except Exception as error:
                if moment == "start":
                    raise
                if failure is None:
                    failure = error
                    continue
                logger.exception("stop hook failed: hook=%(hook)r", {"hook": hook})
        if failure is not None:
            raise failure

    @contextlib.contextmanager
    def sending_through(self, producer: Producer) -> Iterator[None]:
        """Set the producer of the handlers, for tests that start no client.

        Raises:
            ClosedError: the app runs already.
        """
        self._begin()
        self._producer = producer
        try:
            yield
        finally:
            self._producer = None
            self._is_running = False
            self._loop = None

    def stop(self) -> None:
        """Ask the app to end, also in a signal handler or another thread; handlers finish."""
        loop, ended = self._loop, self._ended
        if loop is None or running_loop() is loop:
            self._stop(ended)
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                # Wakes the loop, also when a signal handler has interrupted its wait.
                loop.call_soon_threadsafe(self._stop, ended)

    def _stop(self, run: asyncio.Event) -> None:
        if run is not self._ended:  # of an earlier run
            return
        self._state = ServerState.STOPPING
        for consumer in self._consumers:
            consumer.stop()
        self._ended.set()

    def not_ready(self) -> list[NotReady]:
        """Return why the app does not handle messages as it should; empty when it does.

        Each reason has a `code` for programs and a `message` for operators: the app starts or
        stops, or the client or a consumer fails (no broker answers, a topic does not exist).
        """
        if reasons := state_reasons(self._state, "app"):
            return reasons
        try:
            return health.failures_of(self.client.health())
        except ClosedError as error:  # the client was closed by other code
            return [NotReady("client_closed", str(error))]

    async def serve(
        self, *, health_port: int | None = None, health_address: str = "127.0.0.1"
    ) -> None:
        """Run until `stop`, or until a consumer fails permanently.

        Args:
            health_port: of `/live` and `/ready` over HTTP; 0 chooses a free one, which is logged.
            health_address: local address of that port; probes of Kubernetes need 0.0.0.0.

        Raises:
            Exception: the failure of the consumer.
            ClosedError: the app runs already.
            StartError: the port cannot be opened.
        """
        with health.health_port(health_port, health_address, self.not_ready):
            await self._serve()

    async def _serve(self) -> None:
        if not await self._start_unless_stopped():
            return
        try:
            watches = [asyncio.create_task(each.wait_closed()) for each in self._consumers]
            ended = asyncio.create_task(self._ended.wait())
            try:
                await asyncio.wait([ended, *watches], return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._stop(self._ended)
                ended.cancel()
                await asyncio.gather(*watches)
        finally:
            await self.__aexit__(*sys.exc_info())

    async def _start_unless_stopped(self) -> bool:
        """Start, or give the start up when `stop` is called; return whether the app runs."""
        starting = asyncio.create_task(self.__aenter__())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([starting, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.wait([starting])
            elif not starting.cancelled():
                # A hook may have ended the program, which cancels this wait: without retrieving the
                # exception, Python would also log it as one that was never retrieved.
                starting.exception()
        if starting.cancelled():
            return False
        starting.result()
        return True

    def run(self, *, health_port: int | None = None, health_address: str = "127.0.0.1") -> None:
        """Run the app in this process until SIGTERM, SIGHUP or Ctrl-C.

        It runs on uvloop where there is one. SIGHUP, which a closed terminal sends, stays ignored
        if it is, as under `nohup`.

        Args:
            health_port: see `serve`.
            health_address: see `serve`.

        On another thread than the main one, signals are left to the program, which calls `stop`.

        Raises:
            Exception: the failure of the start or of a consumer.
            RuntimeError: an event loop runs on this thread: `await app.serve()`.
        """
        if running_loop() is not None:
            raise RuntimeError("run() starts an event loop, and one runs here: await app.serve()")

        async def main() -> None:
            loop = asyncio.get_running_loop()
            if sys.platform != "win32":  # there, Ctrl-C interrupts
                for number in stop_signals():
                    loop.add_signal_handler(number, self.stop)
            if health_port is None:
                await self.serve()
            else:
                await self.serve(health_port=health_port, health_address=health_address)

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
