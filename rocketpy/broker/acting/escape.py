"""Escape of due messages from an acting master to another broker group.

An acting master stores nothing. A message that it has to deliver is sent to any queue of the same
topic at another group, so its order is lost. Without such a group it stays for the master: the
reader retries, and does not skip it.

A half message is sent as the producer sent it: it begins a new transaction at the other group,
which asks the producer for its outcome.

A send whose response is lost is repeated, so a message may be delivered twice, as with Apache.

Source: EscapeBridge.putMessageToRemoteBroker,
TransactionalMessageUtil.buildTransactionalMessageFromHalfMessage (5.4.0).
"""

import asyncio
import random
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import structlog

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.topic_queues import FetchRoute
from rocketpy.broker.pop.revive.revive_sink import ReviveSink
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.route import TopicRouteData
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from rocketpy.proto.perm import is_writeable
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED
from rocketpy.proto.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import MessageWriter
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus

_log = structlog.get_logger(__name__)

SEND_MS: Final = 3_000
_WAIT_S: Final = 10.0
"""Longest wait of the delivering thread: look-up of the route, and the send."""
_ROUTE_AGE_MS: Final = 2_000
"""Routes are asked again after this long, also those of topics that no other group has."""
_QUIET_MS: Final = 10_000
_SCHEDULING: Final = (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_TRANSACTION_PREPARED,
)
"""Properties by which another broker would schedule the message again, or wait for its commit."""
_OF_HALF: Final = (
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
)
"""Properties that a broker adds to a half message."""
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
_OK: Final = PutMessageResult(PutMessageStatus.PUT_OK)
_NOT_STORED: Final = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)

Targets = list[tuple[str, int]]
"""Addresses of masters, each with its number of queues."""


class EscapeWriter(SystemWriter):
    """Writer that sends messages to another broker group; `put` blocks, on a thread of services.

    Args:
        store: the store of this broker, which is not written.
        client: connections; they live on the broker's loop.
        fetch_route: asks the name servers for a route; on the broker's loop.
        identity: names of this broker.
        clock: time.
        rng: chooses the queue.

    Attributes:
        loop: the broker's loop; None before the start.
        sink: takes check points and acks of pops, which do not leave this broker; None: no pops.
        route_topics: topics whose routes lead to the groups, by retry topic of a pop.
    """

    parks: bool = False

    def __init__(
        self,
        store: MessageWriter,
        client: RemotingClient,
        fetch_route: FetchRoute,
        *,
        identity: BrokerIdentity,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        super().__init__(store, lambda _topic, _number, _size_bytes: None)
        self._client = client
        self._fetch_route = fetch_route
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._routes: dict[str, tuple[int, Targets]] = {}
        self._quiet_until_ms = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.sink: ReviveSink | None = None
        self.route_topics: dict[str, str] = {}

    def put(self, message: PutMessage) -> PutMessageResult:
        """Send a message; `SERVICE_NOT_AVAILABLE` when no other group has taken it."""
        sink = self.sink
        if sink is not None and message.topic == sink.topic:
            return _OK if sink.take(message) else _NOT_STORED
        loop = self.loop
        if loop is None or _is_running(loop):
            return _NOT_STORED
        future = asyncio.run_coroutine_threadsafe(self.send(message), loop)
        try:
            return _OK if future.result(_WAIT_S) else _NOT_STORED
        except FutureTimeoutError:
            future.cancel()
            return _NOT_STORED

    async def send(self, message: PutMessage) -> bool:
        """Send a message; returns whether another broker has stored it."""
        topic, properties, sys_flag = _escaping(message)
        route_topic = self.route_topics.get(topic, topic)
        targets = await self._targets(route_topic)
        if not targets:
            self._complain(topic, "no other broker group has the topic")
            return False
        address, queue_count = self._rng.choice(targets)
        if route_topic != topic:  # a retry topic of a pop has one queue
            queue_count = 1
        header = SendMessageRequestHeaderV2(
            producer_group=properties.get(PROPERTY_PRODUCER_GROUP)
            or f"InnerProducerGroup_{self._identity.broker_name}",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=queue_count,
            queue_id=self._rng.randrange(queue_count),
            sys_flag=sys_flag,
            born_timestamp=message.born_timestamp_ms,
            flag=message.flag,
            properties=encode_properties(properties).decode("utf-8", "replace"),
            reconsume_times=message.reconsume_times,
            batch=False,
        )
        request = make_request(RequestCode.SEND_MESSAGE_V2, header.to_ext(), message.body)
        try:
            response = await self._client.invoke(address, request, SEND_MS)
        except RocketPyError as error:
            self._complain(topic, str(error))
            self._routes.pop(route_topic, None)
            return False
        if response.code in _STORED:
            return True
        self._complain(topic, f"{address} answered {response.code}: {response.remark}")
        return False

    async def _targets(self, topic: str) -> Targets:
        now_ms = self._clock.monotonic_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms - known[0] < _ROUTE_AGE_MS:
            return known[1]
        found = await self._fetch_route(topic)
        targets = [] if found.route is None else other_masters(found.route, self._identity)
        self._routes = {
            each: kept for each, kept in self._routes.items() if now_ms - kept[0] < _ROUTE_AGE_MS
        }
        self._routes[topic] = now_ms, targets
        return targets

    def _complain(self, topic: str, reason: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _QUIET_MS
            _log.warning("due message kept for the master", topic=topic, reason=reason)


def other_masters(route: TopicRouteData, identity: BrokerIdentity) -> Targets:
    """Return the masters of other groups that store messages of a topic."""
    addresses = {each.broker_name: each.broker_addrs.get(0) for each in route.broker_datas}
    found = []
    for queues in route.queue_datas:
        address = addresses.get(queues.broker_name)
        if queues.broker_name != identity.broker_name and address and is_writeable(queues.perm):
            found.append((address, max(1, queues.write_queue_nums)))
    return found


def _escaping(message: PutMessage) -> tuple[str, dict[str, str], int]:
    """Return topic, properties and system flags of a message for another broker."""
    properties = parse_properties(message.properties)
    properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
    sys_flag = message.sys_flag & ~TRANSACTION_MASK
    topic, deliver_ms = message.topic, ""
    if topic == TRANS_HALF_TOPIC:  # its delay, if any, starts with the commit
        topic = properties.get(PROPERTY_REAL_TOPIC, topic)
        for name in _OF_HALF:
            properties.pop(name, None)
        properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        return topic, properties, sys_flag | TRANSACTION_PREPARED
    if topic == TIMER_TOPIC:  # beyond the range of the wheel: the other broker keeps it instead
        topic = properties.get(PROPERTY_REAL_TOPIC, topic)
        deliver_ms = properties.pop(PROPERTY_TIMER_OUT_MS, "")
    for name in _SCHEDULING:
        properties.pop(name, None)
    if deliver_ms:
        properties[PROPERTY_TIMER_DELIVER_MS] = deliver_ms
    return topic, properties, sys_flag


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the caller is on a loop, which must not wait for itself."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
