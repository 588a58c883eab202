"""Queues of a topic in the whole cluster, for brokers that assign queues to consumers.

They are fetched from the name servers and cached for a few seconds. A broker without name servers
returns only its own queues; one that cannot reach them continues with the last result.

Source: TopicRouteInfoManager.getTopicSubscribeInfo (5.4.0).
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.bodies.route import TopicRouteData
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.perm import PERM_READ
from rocketpy.runtime.clock import Clock

REMEMBER_MS: Final = 5_000
MAX_REMEMBERED: Final = 1_000
MAX_TOPIC_CHARS: Final = 255
"""Bounds of the cache: consumers choose the topic names that they ask for."""


class RouteResponse(NamedTuple):
    """Response of the name servers for a topic.

    Attributes:
        was_reached: whether any name server answered.
        route: route of the topic; None when they do not know it.
    """

    was_reached: bool
    route: TopicRouteData | None = None


FetchRoute = Callable[[str], Awaitable[RouteResponse]]


class TopicQueues:
    """Readable queues by topic; safe from any loop.

    Args:
        fetch: returns the function that asks the name servers; None when there are none.
        topics: this broker's topics.
        broker_name: this broker's name.
        clock: time of the cache.
    """

    def __init__(
        self,
        fetch: Callable[[], FetchRoute | None],
        topics: TopicTable,
        broker_name: str,
        clock: Clock,
    ) -> None:
        self._fetch = fetch
        self._topics = topics
        self._broker_name = broker_name
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, list[MessageQueue] | None]] = {}
        self._asking: dict[
            tuple[asyncio.AbstractEventLoop, str], asyncio.Future[RouteResponse]
        ] = {}

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """Return the readable queues of a topic; None for an unknown topic."""
        if len(topic) > MAX_TOPIC_CHARS:
            return None
        fetch = self._fetch()
        if fetch is None:
            return self._own(topic)
        known = self._known.get(topic)
        if known is not None and self._clock.monotonic_ms() < known[0]:
            return known[1]
        response = await self._ask_once(fetch, topic)
        if response.was_reached:
            queues = None if response.route is None else _readable(topic, response.route)
        else:
            queues = None if known is None else known[1]
        with self._lock:
            if topic not in self._known and len(self._known) >= MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[topic] = self._clock.monotonic_ms() + REMEMBER_MS, queues
        return queues

    async def _ask_once(self, fetch: FetchRoute, topic: str) -> RouteResponse:
        """Share one request among all callers that ask at the same time."""
        key = asyncio.get_running_loop(), topic
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(fetch(topic))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    def _own(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        count = config.read_queue_nums if config.perm & PERM_READ else 0
        return [MessageQueue(topic, self._broker_name, queue_id) for queue_id in range(count)]


def _readable(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    return [
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in route.queue_datas
        if queues.perm & PERM_READ
        for queue_id in range(queues.read_queue_nums)
    ]
