"""What all sends of one producer share: routes, headers, limits of what is in flight."""

import asyncio
import random
from collections import deque

from rocketpy.client.config import ProducerConfig
from rocketpy.client.fault_tolerance import FaultTolerance
from rocketpy.client.instance import Instance
from rocketpy.client.outgoing import Outgoing
from rocketpy.client.queue_select import QueueTurn
from rocketpy.client.send_operation import SendOperation
from rocketpy.errors import ClosedError, NoRouteError, RocketPyError
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.command import RemotingCommand, make_request
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import AUTO_CREATE_TOPIC

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


class Sender:
    """Carries out sends.

    Args:
        instance: connections, routes, clock and random numbers.
        group: the producer group in every header.
        config: limits and retry rules.
    """

    def __init__(self, instance: Instance, group: str, config: ProducerConfig) -> None:
        self.config = config
        self.clock = instance.clock
        self.rng: random.Random = instance.rng
        self.loop = asyncio.get_running_loop()
        self.faults = (
            FaultTolerance(config.latency_profile, clock=instance.clock, rng=instance.rng)
            if config.latency_fault
            else None
        )
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._instance = instance
        self._routes = instance.routes
        self._remoting = instance.remoting
        self._group = group
        self._turns: dict[str, QueueTurn] = {}
        self._headers: dict[MessageQueue, dict[str, str]] = {}
        self._waiting_for_route: dict[str, list[SendOperation]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_for_space: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    def start(self, operation: SendOperation) -> None:
        """Count the operation in and make its first attempt, once the topic's route is known.

        Raises:
            ClosedError: the producer is closed.
        """
        if self._closed:
            raise ClosedError("the producer is closed")
        self.in_flight += 1
        self.in_flight_bytes += operation.size_bytes
        topic = operation.topic
        waiting = self._waiting_for_route.get(topic)
        if waiting is not None:
            waiting.append(operation)
        elif self._routes.cached_publish_queues(topic):
            operation.attempt()
        else:
            self._waiting_for_route[topic] = [operation]
            task = self.loop.create_task(self._resolve(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _resolve(self, topic: str) -> None:
        """Learn the topic's route, then start everything that waited for it, in order."""
        error: BaseException | None = None
        try:
            await self._routes.publish_queues(topic)
        except RocketPyError as failure:
            error = failure
        finally:
            waiting = self._waiting_for_route.pop(topic)
        for operation in waiting:
            if error is None:
                operation.attempt()
            else:
                operation.fail(error)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the topic's writable queues; raises NoRouteError when there are none."""
        queues = self._routes.cached_publish_queues(topic)
        if not queues:
            raise NoRouteError(f"topic {topic} has no queue to write to")
        return queues

    def next_queue(self, topic: str, last_broker: str | None) -> MessageQueue:
        """Return the next queue in turn, not on ``last_broker`` if that can be helped."""
        queues = self.queues(topic)
        turn = self._turns.get(topic)
        if turn is None or turn.queues is not queues:
            turn = self._turns[topic] = QueueTurn(queues, self.rng, self.faults)
        return turn.next(last_broker)

    def transmit(
        self, queue: MessageQueue, message: Outgoing, code: int, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """Send one attempt.

        Raises:
            NoRouteError: the queue's broker has no known master.
            TooManyInFlightError: the connection cannot take more.
        """
        address = self._routes.master_address(queue.broker_name)
        if address is None:
            raise NoRouteError(f"broker {queue.broker_name} has no master")
        request = make_request(code, self._header(queue, message, code), message.body)
        return self._remoting.invoke_future(address, request, timeout_ms)

    async def transmit_oneway(
        self, queue: MessageQueue, message: Outgoing, timeout_ms: int
    ) -> None:
        """Send without a response; raises ClientError when it could not be written."""
        address = self._routes.master_address(queue.broker_name)
        if address is None:
            raise NoRouteError(f"broker {queue.broker_name} has no master")
        code = int(RequestCode.SEND_MESSAGE_V2)
        request = make_request(code, self._header(queue, message, code), message.body, oneway=True)
        await self._remoting.invoke_oneway(address, request, timeout_ms)

    def _header(self, queue: MessageQueue, message: Outgoing, code: int) -> dict[str, str]:
        template = self._headers.get(queue)
        if template is None:
            template = self._headers[queue] = {
                "a": self._group,
                "b": queue.topic,
                "c": AUTO_CREATE_TOPIC,
                "d": str(self._instance.config.default_topic_queues),
                "e": str(queue.queue_id),
                "f": "0",
                "g": "0",
                "h": "0",
                "i": "",
                "j": "0",
                "k": "false",
                "m": "false",
                "n": queue.broker_name,
            }
        header = template.copy()
        header["g"] = str(self.clock.time_ms())
        header["i"] = message.properties
        if message.sys_flag:
            header["f"] = str(message.sys_flag)
        if message.flag:
            header["h"] = str(message.flag)
        if code == _BATCH:
            header["m"] = "true"
        return header

    def routes_doubtful(self) -> None:
        """Have the routes fetched soon, because a broker did not answer."""
        self._instance.refresh_routes_soon()

    @property
    def has_space(self) -> bool:
        """Whether one more send may start now."""
        config = self.config
        return (
            self.in_flight < config.max_in_flight
            and self.in_flight_bytes < config.max_in_flight_bytes
        )

    async def wait_for_space(self) -> None:
        """Wait until one more send may start, in the order of asking."""
        while not self.has_space:
            waiter = self.loop.create_future()
            self._waiting_for_space.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_next()  # our turn must not be lost
                raise

    def release(self, operation: SendOperation) -> None:
        """Count a finished operation out."""
        self.in_flight -= 1
        self.in_flight_bytes -= operation.size_bytes
        if self._waiting_for_space and self.has_space:
            self._wake_next()
        if self._idle is not None and not self.in_flight and not self._idle.done():
            self._idle.set_result(None)

    def _wake_next(self) -> None:
        while self._waiting_for_space:
            waiter = self._waiting_for_space.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def flush(self) -> None:
        """Wait until everything in flight has its result."""
        while self.in_flight:
            if self._idle is None or self._idle.done():
                self._idle = self.loop.create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Take no more sends and wait for those in flight; each ends within its own timeout."""
        self._closed = True
        await self.flush()
