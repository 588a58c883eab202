"""Transport of a producer's sends: routes, queues, headers and addresses.

Source: DefaultMQProducerImpl.sendKernelImpl, MQFaultStrategy (5.4.0).
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, Protocol

from rocketpy.client.callbacks.hooks import RetryReporter
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import FlowControlRetry, ProducerConfig
from rocketpy.client.messages.delivery_time import V5_0_0
from rocketpy.client.options.durations import to_ms
from rocketpy.client.sending.attempt import AttemptTimeouts, SendAttempt
from rocketpy.client.sending.broker_latency import BrokerLatencies
from rocketpy.client.sending.outgoing_message import SEND, SEND_BATCH, Outgoing
from rocketpy.client.sending.queue_selection import Destination, RoundRobin
from rocketpy.errors import (
    ConnectionLostError,
    NoRouteError,
    NotSentError,
    RequestTimeoutError,
    own_copy,
)
from rocketpy.proto.headers.offset import GetMaxOffsetRequestHeader
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import AUTO_CREATE_TOPIC
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.proto.wire.request_template import PreparedRequest, RequestTemplate
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet

(
    _BORN_TIMESTAMP, _PROPERTIES, _SYS_FLAG, _FLAG, _BATCH, _TRIES, _MAX_TRIES, _QUEUE_ID,
    _BROKER_NAME,
) = (
    SendMessageRequestHeaderV2.wire_names[name]
    for name in (
        "born_timestamp", "properties", "sys_flag", "flag", "batch", "reconsume_times",
        "max_reconsume_times", "queue_id", "bname",
    )
)  # fmt: skip

# A reply has another code, and is too rare to keep a header for each queue.
_TEMPLATE_CODES: Final = frozenset({SEND, SEND_BATCH})

RouteCallback = Callable[[Exception | None], None]


class PausedSend(Protocol):
    """Send that waits until a broker can be reached."""

    def __hash__(self) -> int:
        """It is kept in sets."""
        ...

    def route_changed(self) -> None:
        """Try again at once: the route may have another master."""
        ...


class SendTransport:
    """Sends the attempts of one producer to brokers.

    Args:
        instance: connections, routes, clock and random numbers.
        group: the producer group in every header.
        config: avoidance of brokers and rules of retries.

    Attributes:
        clock: the client's.
        rng: the client's.
        loop: runs the producer.
        watch: time-outs of attempts that another one may follow.
        tracks_latency: whether `note_success` needs the latency.
        attempt_timeout_ms: time-out of an attempt; 0 for a share of the time left.
        flow_control_retry: reaction to a broker that is over its capacity.
        retry_when_not_ok: whether a message with another status than SEND_OK is sent to another
            broker, too.
        retries: notified of each attempt that is followed by another one.
    """

    def __init__(self, instance: Instance, group: str, config: ProducerConfig) -> None:
        self.clock: Clock = instance.clock
        self.rng: random.Random = instance.rng
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._faults = (
            BrokerLatencies(config.latency_profile, clock=instance.clock, rng=instance.rng)
            if config.latency_fault
            else None
        )
        self.tracks_latency: bool = self._faults is not None
        self.attempt_timeout_ms: int = to_ms(config.attempt_timeout)
        self.flow_control_retry: FlowControlRetry = config.flow_control_retry
        self.retry_when_not_ok: bool = config.retry_when_not_ok
        self.retries: RetryReporter = RetryReporter(config.on_retry, instance.clock)
        self.watch: AttemptTimeouts = AttemptTimeouts(self.loop, instance.clock)
        self._instance = instance
        self._routes = instance.routes
        self._remoting = instance.remoting
        self._group = group
        self._rounds: dict[str, RoundRobin] = {}
        self._versions: dict[str, int] = {}
        self._waiting_for_route: dict[str, list[RouteCallback]] = {}
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._paused: dict[str, OrderedSet[PausedSend]] = {}  # by topic

    # ---- routes

    def cached_route(self, topic: str) -> RoundRobin | None:
        """Return the round over the topic's queues, None when its route is not known.

        None as well while other sends wait for the route: they must not be overtaken.
        """
        if topic in self._waiting_for_route:
            return None
        return self._current_route(topic)

    def route(self, topic: str) -> RoundRobin:
        """Return the round over the topic's queues.

        Raises:
            NoRouteError: there are none now.
        """
        found = self._current_route(topic)
        if found is None:
            raise NoRouteError(f"topic {topic} has no queue to write to")
        return found

    def _current_route(self, topic: str) -> RoundRobin | None:
        found, routes = self._rounds.get(topic), self._routes
        queues = routes.writable.get(topic)
        if found is not None and found.queues is queues and found.version == routes.version:
            return found
        if not queues:
            return None
        make = self._destinations_of(topic, queues)
        if found is None or found.queues is not queues:
            found = self._rounds[topic] = RoundRobin(queues, self.rng, self._faults, make)
        found.refresh(routes.version, make)
        return found

    def when_routed(self, topic: str, callback: RouteCallback) -> None:
        """Call back once the topic's route is known, or at once.

        Callbacks of one topic run in the order of the calls.

        Args:
            topic: the topic.
            callback: takes None, or the reason why there is no route.
        """
        # One look-up for all sends of a topic; they are called back in the order of the calls.
        waiting = self._waiting_for_route.get(topic)
        if waiting is not None:
            waiting.append(callback)
        elif self._routes.cached_publish_queues(topic):
            callback(None)
        else:
            self._waiting_for_route[topic] = [callback]
            task = self.loop.create_task(self._resolve(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _resolve(self, topic: str) -> None:
        """Fetch the topic's route, then call back every send that waits for it."""
        error: Exception | None = None
        try:
            await self._routes.publish_queues(topic)
        except Exception as failure:  # noqa: BLE001 - passed to every callback
            error = failure
        # Removed first: a callback may ask for the route again.
        for callback in self._waiting_for_route.pop(topic):
            # Each has a copy, or one error would collect the tracebacks of all sends.
            callback(None if error is None else own_copy(error))

    def pause(self, topic: str, send: PausedSend) -> None:
        """Wake a send when its topic's route changes, unless it is resumed before."""
        if not self._paused:
            self._routes.on_change.append(self._route_changed)
        self._paused.setdefault(topic, OrderedSet()).add(send)

    def resume(self, topic: str, send: PausedSend) -> None:
        """Forget a paused send."""
        waiting = self._paused.get(topic)
        if waiting is not None:
            waiting.discard(send)
            if not waiting:
                self._no_longer_paused(topic)

    def _route_changed(self, topic: str) -> None:
        waiting = self._paused.get(topic)
        if waiting is not None:
            self._no_longer_paused(topic)
            for send in waiting:
                send.route_changed()

    def _no_longer_paused(self, topic: str) -> None:
        del self._paused[topic]
        if not self._paused:
            self._routes.on_change.remove(self._route_changed)

    def _destinations_of(
        self, topic: str, queues: Iterable[MessageQueue]
    ) -> Callable[[MessageQueue], Destination]:
        """Return a function that makes destinations by the topic's present route."""
        # Looked up once here, because a topic may have thousands of queues on a few brokers.
        find_address = self._routes.master_address
        addresses = {name: find_address(name) for name in {each.broker_name for each in queues}}
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=self._instance.config.default_topic_queues,
            queue_id=0,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname="",
        ).to_ext()

        def make(queue: MessageQueue) -> Destination:
            name = queue.broker_name
            fields = header.copy()
            fields[_QUEUE_ID], fields[_BROKER_NAME] = str(queue.queue_id), name
            # A queue that a caller names may lie on a broker that is not in the topic's route.
            return Destination(queue, addresses.get(name) or find_address(name), fields, {})

        return make

    # ---- one attempt

    def transmit(self, attempt: SendAttempt, destination: Destination, message: Outgoing) -> None:
        """Send one attempt, which receives the outcome.

        Raises:
            NoRouteError: the queue's broker has no known master.
        """
        if message.moment is not None:
            timed = self._transmit_timed(destination, message, attempt.timeout_ms)
            attempt.follow(self.loop.create_task(timed))
            return
        address = destination.address or self._no_address(destination.queue)
        code = message.code
        if message.sys_flag or message.flag or message.retries or code not in _TEMPLATE_CODES:
            attempt.command = make_request(code, self._header(destination, message), message.body)
        else:
            template = destination.templates.get(code)
            if template is None:
                fields = self._header(destination, message)
                template = destination.templates[code] = RequestTemplate(
                    code, fields, time=_BORN_TIMESTAMP, text=_PROPERTIES
                )
            attempt.command = PreparedRequest(
                template, self.clock.time_ms(), message.properties, message.body
            )
        self._remoting.start(address, attempt)

    async def _transmit_timed(
        self, destination: Destination, message: Outgoing, timeout_ms: int
    ) -> RemotingCommand:
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        address = destination.address or self._no_address(destination.queue)
        message = await self._as_understood(address, destination.queue, message, timeout_ms)
        request = make_request(message.code, self._header(destination, message), message.body)
        # The question for the version has used up some of the time, perhaps all of it.
        left_ms = max(1, deadline_ms - self.clock.monotonic_ms())
        response = await self._remoting.invoke(address, request, left_ms)
        self._versions[address] = response.version
        return response

    async def _as_understood(
        self, address: str, queue: MessageQueue, message: Outgoing, timeout_ms: int
    ) -> Outgoing:
        """Return a delayed message in the form that the broker supports.

        Brokers before 5.0.0 know delay levels only. The version is learnt from a first request.
        """
        if message.moment is None:
            return message
        if address not in self._versions:
            asked = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
            request = make_request(RequestCode.GET_MAX_OFFSET, asked.to_ext())
            try:
                response = await self._remoting.invoke(address, request, timeout_ms)
            except (RequestTimeoutError, ConnectionLostError) as error:
                # The message itself was not sent; the error must not say that it may be stored.
                raise NotSentError(f"{error}, before a message was sent to it") from error
            self._versions[address] = response.version
        if self._versions[address] >= V5_0_0:
            return message
        text = message.moment.as_delay_level(message.properties, self.clock.time_ms())
        return message._replace(properties=text)

    async def transmit_oneway(
        self, destination: Destination, message: Outgoing, timeout_ms: int
    ) -> None:
        """Send without a response; raises ClientError when it could not be written."""
        address = destination.address or self._no_address(destination.queue)
        message = await self._as_understood(address, destination.queue, message, timeout_ms)
        header = self._header(destination, message)
        request = make_request(message.code, header, message.body, oneway=True)
        await self._remoting.invoke_oneway(address, request, timeout_ms)

    def describe_broker(self, broker_name: str) -> str:
        """Return a broker's name and address for an error text."""
        address = self._routes.master_address(broker_name)
        return broker_name if address is None else f"{broker_name} at {address}"

    def has_heard_of(self, broker_name: str) -> bool:
        """Return whether a route has named a broker."""
        return self._routes.read_address(broker_name) is not None

    def _no_address(self, queue: MessageQueue) -> NoReturn:
        name = queue.broker_name
        if self.has_heard_of(name):
            raise NoRouteError(f"broker {name} has no master now, and its slaves take no messages")
        raise NoRouteError(f"broker {name} is in no route")

    def _header(self, destination: Destination, message: Outgoing) -> dict[str, str]:
        # A copy: the queue's fields are shared by all sends to it.
        header = destination.fields.copy()
        header[_BORN_TIMESTAMP] = str(self.clock.time_ms())
        header[_PROPERTIES] = message.properties
        if message.sys_flag:
            header[_SYS_FLAG] = str(message.sys_flag)
        if message.flag:
            header[_FLAG] = str(message.flag)
        if message.code == SEND_BATCH:
            header[_BATCH] = "true"
        if message.retries is not None:
            header[_TRIES], header[_MAX_TRIES] = map(str, message.retries)
        return header

    # ---- outcomes

    def note_success(self, broker: str, elapsed_ms: int) -> None:
        """Record the latency of a broker."""
        if self._faults is not None:
            self._faults.update(broker, elapsed_ms)

    def note_failure(self, broker: str | None, elapsed_ms: int, *, reachable: bool) -> None:
        """Record a failure; one of the network also has the routes fetched soon."""
        if self._faults is not None and broker is not None:
            self._faults.update(broker, elapsed_ms, failed=True, reachable=reachable)
        if not reachable:
            self._instance.broker_lost()

    def refresh_routes_soon(self, *, is_urgent: bool = False) -> None:
        """Fetch the routes soon: queues or brokers may have changed."""
        self._instance.refresh_routes_soon(is_urgent=is_urgent)
