"""The entry to everything: `rocketpy.connect()` and the client it returns."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Literal, TypeVar

from rocketpy.client.callbacks.handlers import check_not_in_own_handler
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.name_servers import find_addresses
from rocketpy.client.cluster.remoting import Remoting
from rocketpy.client.config import (
    DEFAULT_GROUP,
    NO_GROUP,
    ClientConfig,
    ConsumerConfig,
    PopConsumerConfig,
    ProducerConfig,
    PullConsumerConfig,
    ResponderConfig,
    StartPosition,
)
from rocketpy.client.consumer.group_consumer import GroupConsumer
from rocketpy.client.consumer.offset_store import checked_position, offsets_at
from rocketpy.client.consumer.pull_consumer import PullConsumer
from rocketpy.client.consumer.push_consumer import Consumer
from rocketpy.client.consumer.topic_reader import TopicMessages, TopicReader
from rocketpy.client.credentials import RequestSigner, find_credentials
from rocketpy.client.health import ClientHealth
from rocketpy.client.lifecycle import AsyncLifecycle, require_loop
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import PLAIN, B_co, Serializer
from rocketpy.client.options.durations import Duration
from rocketpy.client.options.keyword_options import function_options, method_options
from rocketpy.client.options.validation import (
    checked_group,
    checked_timeout,
    checked_topic,
    described,
    fits,
)
from rocketpy.client.pop.pop_consumer import PopConsumer
from rocketpy.client.producer.middleware_producer import MiddlewareProducer
from rocketpy.client.producer.producer import Producer
from rocketpy.client.producer.request_reply import Answers
from rocketpy.errors import ClosedError, ConfigError, NoRouteError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace, wrap_namespace
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.runtime.ordered_set import OrderedSet

P = TypeVar("P", Producer, Consumer, PullConsumer, TopicReader, PopConsumer)


class Client(AsyncLifecycle):
    """Connections, routes and timers that its producers and consumers share.

    Args:
        config: identity, name servers, intervals, settings of the connections.
        clock: wall clock and waiting.
        rng: spreads clients over servers and queues.
        make_remoting: builds what requests travel through.
        process_id: stands in message ids; this process's own when None.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        make_remoting: Callable[[], Remoting] | None = None,
        process_id: int | None = None,
    ) -> None:
        checked_group(config.group)
        find_addresses(config.name_servers)
        self.config = config
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._make_remoting = make_remoting
        self._process_id = os.getpid() if process_id is None else process_id
        self._instance: Instance | None = None
        self._parts: OrderedSet[Producer | Consumer | PullConsumer | PopConsumer] = OrderedSet()

    def __repr__(self) -> str:
        """Say whose it is and whether it runs."""
        instance = self._instance
        state = (
            "not started" if instance is None else "running" if instance.is_running else "closed"
        )
        return f"<Client of group {self.config.group}, {state}>"

    async def start(self) -> None:
        """Start the timers; the first send or consumer connects.

        Raises:
            ClosedError: it was closed, or started in another event loop; connect() makes another.
        """
        loop = require_loop()
        self._check_loop()
        if self._instance is not None:
            if not self._instance.is_running:
                raise ClosedError("the client was closed: connect() again")
            return
        remoting = (
            self._make_remoting()
            if self._make_remoting is not None
            else RemotingClient(
                self.config.remoting or RemotingClientConfig(), clock=self._clock, rng=self._rng
            )
        )
        credentials = find_credentials(self.config.credentials)
        if credentials is not None:
            remoting.hooks.append(RequestSigner(credentials))
        self._instance = Instance(
            self.config, remoting, clock=self._clock, rng=self._rng, process_id=self._process_id
        )
        self._loop = loop
        await self._instance.start()

    async def ready(self, timeout: Duration = 60.0) -> None:  # noqa: ASYNC109 - several requests
        """Wait until a name server answers and knows a broker.

        For programs that are started together with their servers, or before them.

        Args:
            timeout: of waiting.

        Raises:
            NoNameServerError: none answered in time.
            NameServerAddressError: none is given, or none of them is a name server.
            NoRouteError: no broker was registered in time.
            ClosedError: the client is not started, or was closed meanwhile.
            TypeError: the time-out is no duration.

        Example:
            ::

                async with rocketpy.connect("rocketmq:9876", group="shop") as client:
                    await client.ready(timeout=120)
        """
        timeout_s = checked_timeout(timeout)
        await self._usable().wait_for_brokers(1e9 if timeout_s is None else timeout_s)

    def _reopened(self) -> "Client":
        """Return this client, or one of the same settings when it was closed."""
        if self._instance is None or self._instance.is_running:
            return self
        return Client(
            self.config,
            clock=self._clock,
            rng=self._rng,
            make_remoting=self._make_remoting,
            process_id=self._process_id,
        )

    async def close(self) -> None:
        """Close consumers, producers and connections; every call waits for the one close.

        Raises:
            ClientError: called by the handler of one of its consumers, which it waits for.
        """
        check_not_in_own_handler(self._workers())
        await super().close()

    def _workers(self) -> list[asyncio.Task[None]]:
        """The tasks that call handlers."""
        groups = [part for part in list(self._parts) if isinstance(part, GroupConsumer)]
        return [task for part in groups for task in part._workers()]  # noqa: SLF001

    async def _close(self) -> None:
        """Close consumers (finishing handlers), then producers, then connections."""
        instance = self._instance
        if instance is None:
            return
        consumers = [part for part in self._parts if not isinstance(part, Producer)]
        producers = [part for part in self._parts if isinstance(part, Producer)]
        for part in consumers:
            if isinstance(part, GroupConsumer):
                part._warn_if_forgotten()  # noqa: SLF001 - of one family
        failures: list[BaseException] = []
        for group in (consumers, producers):
            outcomes = await asyncio.gather(
                *(part.close() for part in group), return_exceptions=True
            )
            failures += [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        await instance.close()
        if failures:
            raise failures[0]

    def _interrupt(self, error: BaseException, /) -> None:
        super()._interrupt(error)
        for part in self._parts:
            part._interrupt(error)  # noqa: SLF001 - parts share a base class

    def _keep(self, part: P) -> P:
        """Close a part with the client, unless it is closed before, and forgotten then."""
        self._parts.add(part)
        part._loop = self._loop  # noqa: SLF001
        part._when_closed = lambda: self._parts.discard(part)  # noqa: SLF001
        return part

    def _consumer_group(self, group: str) -> str:
        """Return the group of a consumer, with the namespace.

        Raises:
            ConfigError: it is the default group. Programs that forget their group would all be in
                it, and share each other's messages.
        """
        if (group or self.config.group) == DEFAULT_GROUP:
            raise ConfigError(NO_GROUP, key="group")
        return self._group(group)

    def _group(self, group: str) -> str:
        return wrap_namespace(self.config.namespace, group or self.config.group)

    @method_options(ProducerConfig)
    def producer(self, config: ProducerConfig) -> Producer:
        """Return a producer; it shares this client's connections.

        Takes the fields of `rocketpy.client.config.ProducerConfig` as keyword arguments.

        Raises:
            ClosedError: the client is not started.
        """
        instance = self._usable()
        kind = MiddlewareProducer if config.middlewares else Producer
        producer = kind(instance, self._group(config.group), config)
        instance.add_producer(producer.group, producer)
        return self._keep(producer)

    @method_options(ConsumerConfig)
    def consumer(self, config: ConsumerConfig[B_co]) -> Consumer[B_co]:
        """Return a member of a consumer group; `async with` (or `start`) joins the group.

        Takes the fields of `rocketpy.client.config.ConsumerConfig` as keyword arguments; the topic
        may come without its name.

        Raises:
            ClosedError: the client is not started.
            ConfigError: a name or setting is not usable.
        """
        return self._keep(Consumer(self._usable(), self._consumer_group(config.group), config))

    @method_options(ResponderConfig)
    def responder(self, config: ResponderConfig[B_co]) -> Consumer[B_co]:
        """Return a consumer whose handler answers requests: what it returns is the answer.

        Takes what `consumer` takes, `reply_middlewares` and `reply_serializer`
        (`rocketpy.client.config.ResponderConfig`). The handler gets a message, or its
        body and the message; None is no answer. What it raises is the answer, too: the requester
        gets a `RemoteError`, and the message is not delivered again. A request whose time is over
        is not handled. Requests that are sent once it has started are answered.

        Raises:
            ClosedError: the client is not started.
            ConfigError: a name or setting is not usable, or there is no handler.

        Example:
            ::

                async def quote(message: rocketpy.ReceivedMessage) -> dict[str, int]:
                    return {"price": 3}


                async with client.responder(
                    "quotes", group="pricing", handler=quote, serializer=rocketpy.json
                ) as responder:
                    await responder.wait_closed()
        """
        if config.handler is None:
            raise ConfigError("a responder needs a handler that takes a message", key="handler")
        producer = self.producer(
            group=config.group,
            serializer=config.reply_serializer or config.serializer,
            middlewares=config.reply_middlewares,
        )
        consumer = self._keep(Consumer(self._usable(), self._consumer_group(config.group), config))
        consumer._answer = Answers(  # noqa: SLF001
            producer.reply,
            producer._reply_error,  # noqa: SLF001
            self._clock,
        )
        consumer._closes_with_it = producer  # noqa: SLF001
        return consumer

    @method_options(PullConsumerConfig)
    def pull_consumer(self, config: PullConsumerConfig[B_co]) -> PullConsumer[B_co]:
        """Return a consumer that you ask for messages, from queues that you choose.

        Takes the fields of `rocketpy.client.config.PullConsumerConfig` as keyword arguments.

        Raises:
            ClosedError: the client is not started.
        """
        return self._keep(PullConsumer(self._usable(), self._group(config.group), config))

    @method_options(PopConsumerConfig)
    def pop_consumer(self, config: PopConsumerConfig[B_co]) -> PopConsumer[B_co]:
        """Return a member of a group that pops: brokers deal out messages, not queues.

        Takes the fields of `rocketpy.client.config.PopConsumerConfig` as keyword arguments; the
        topic may come without its name. `async with` (or `start`) joins the group.

        Raises:
            ClosedError: the client is not started.
            ConfigError: a name or setting is not usable.
        """
        return self._keep(PopConsumer(self._usable(), self._consumer_group(config.group), config))

    def read(
        self,
        topic: str,
        *,
        start: StartPosition = "earliest",
        until: StartPosition | Literal["end"] | None = "end",
        filter: str = "*",  # noqa: A002
        sql: str = "",
        serializer: Serializer[B_co] = PLAIN,
    ) -> AsyncIterator[ReceivedMessage[B_co]]:
        """Read a topic from one position to another, outside of any group.

        No offset is stored. Messages of one queue are in their order. A call of `anext` that is
        cancelled, times out or fails loses no message: the next one continues. Several tasks may
        share the iterator, each message goes to one of them.

        Args:
            topic: its name.
            start: where each queue begins: `"earliest"`, `"latest"` or a time, as consumers take
                it.
            until: where each queue ends: `"end"` (or `"latest"`) for the messages that are there
                when the reading begins, a time for those stored before it (of a time in the
                future the loop waits for it), None to read on. Until that time, and without an
                end, queues that the topic gets meanwhile are read from their first message.
            filter: tags, `"a || b"` or `"*"`.
            sql: instead of tags, a condition on properties.
            serializer: reads bodies in `message.decode()`.

        Raises:
            ClosedError: the client is not started.
            TypeError: the topic is no text.
            ConfigError: a name, filter, position or serializer cannot be used.
            NoRouteError: no broker serves the topic; raised by the loop.

        Example:
            ::

                async for message in client.read("orders"):
                    print(message.offset, message.body)
        """
        checked_topic(topic)
        checked_position("start", start)
        if not fits(StartPosition | Literal["end"] | None, until):
            kinds = described(Literal["end"] | datetime | float | None)
            raise ConfigError(f"{until!r} is not {kinds}", key="until")
        ending: StartPosition | None = "latest" if until == "end" else until
        if ending is not None:
            checked_position("until", ending)
        for name, kind, value in (
            ("filter", str, filter),
            ("sql", str, sql),
            ("serializer", Serializer, serializer),
        ):
            if not fits(kind, value):
                raise ConfigError(f"{value!r} is not {described(kind)}"[:200], key=name)
        reader = TopicReader(
            self._usable(),
            wrap_namespace(self.config.namespace, topic),
            keep=self._keep,
            start=start,
            until=ending,
            filter=filter,
            sql=sql,
            serializer=serializer,
        )
        return TopicMessages(reader)

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted, without those of brokers and groups.

        Left out are system, retry and dead letter topics; of a client with a namespace, also
        topics outside of it.

        Raises:
            NoNameServerError: none answered.
        """
        names = await self._usable().topic_names()
        namespace = self.config.namespace
        found = {name: unwrap_namespace(namespace, name) for name in names}
        return sorted(own for name, own in found.items() if not namespace or own != name)

    async def begin_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offset of the oldest message of each queue of a topic.

        Raises:
            TypeError: the topic is no text.
            ConfigError: no topic can have the name.
            NoRouteError: no broker serves the topic.
            RocketPyError: a broker does not say.
        """
        return await self._offsets(topic, "earliest")

    async def end_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offset after the last message of each queue of a topic.

        Raises:
            TypeError: the topic is no text.
            ConfigError: no topic can have the name.
            NoRouteError: no broker serves the topic.
            RocketPyError: a broker does not say.
        """
        return await self._offsets(topic, "latest")

    async def _offsets(self, topic: str, position: StartPosition) -> dict[MessageQueue, int]:
        instance = self._usable()
        queues = await instance.routes.subscribe_queues(
            wrap_namespace(self.config.namespace, checked_topic(topic))
        )
        if not queues:
            raise NoRouteError(f"no broker serves topic {topic}")
        return await offsets_at(instance, queues, position)

    @property
    def client_id(self) -> str:
        """Id of this client at brokers."""
        return self._running().client_id

    def health(self) -> ClientHealth:
        """Return what works and what does not, the consumers' queues included."""
        instance = self._running()
        return ClientHealth(
            instance.client_id,
            instance.name_servers.current,
            instance.failures(),
            {
                part.group: part.health()
                for part in self._parts
                if not isinstance(part, Producer) and part.group in instance.consumers
            },
        )

    def _usable(self) -> Instance:
        self._check_loop()
        return self._running()

    def _running(self) -> Instance:
        if self._instance is None or not self._instance.is_running:
            raise ClosedError("the client is not started: use `async with`, or await start()")
        return self._instance


@function_options(ClientConfig)
def connect(config: ClientConfig) -> Client:
    """Describe a client of the cluster behind some name servers; nothing is sent yet.

    Takes the fields of `rocketpy.client.config.ClientConfig` as keyword arguments; the name servers
    may come without their name.

    Returns:
        A client, to be used with `async with`; or `await` it and close it later.

    Example:
        ::

            async with rocketpy.connect("127.0.0.1:9876", group="shop") as client:
                await client.producer().send("orders", b"o1")

            client = await rocketpy.connect("127.0.0.1:9876", group="shop")
            try:
                await client.producer().send("orders", b"o2")
            finally:
                await client.close()
    """
    return Client(config)
