"""Routes of topics: the brokers and queues that serve them, refreshed from name servers.

Source: MQClientInstance.updateTopicRouteInfoFromNameServer (5.4.0).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from rocketpy.client.cluster.name_servers import NameServers
from rocketpy.errors import (
    BadBodyError,
    BrokerError,
    NoRouteError,
    RocketPyError,
    TopicNotExistError,
    TopicNotWritableError,
    own_copy,
)
from rocketpy.proto.allocation import sorted_queues
from rocketpy.proto.bodies.route import TopicRouteData
from rocketpy.proto.headers.namesrv import GetRouteInfoRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.perm import is_readable, is_writeable, perm_to_string
from rocketpy.proto.topic_names import AUTO_CREATE_TOPIC
from rocketpy.proto.wire.codes import RequestCode

logger: logging.Logger = logging.getLogger(__name__)

MASTER_ID = 0
MAX_QUEUES = 65_536
"""Bound of a topic's queues: a faulty name server must not make the client allocate millions."""
MAX_BROKERS = 4_096
"""Bound of a topic's brokers: each gets a connection and heartbeats."""


def publish_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """Return the queues a producer may write to, sorted.

    Raises:
        BadBodyError: the order of the queues cannot be read, or there are too many.
    """
    if route.order_topic_conf:
        try:
            return _ordered_queues(topic, route.order_topic_conf)
        except ValueError as error:
            raise BadBodyError(
                f"order of topic {topic} is {route.order_topic_conf!r}: {error}"
            ) from None
    _check_count(topic, (queue.write_queue_nums for queue in route.queue_datas))
    with_master = {
        broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs
    }
    return tuple(
        sorted_queues(
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in route.queue_datas
            if is_writeable(queue.perm) and queue.broker_name in with_master
            for queue_id in range(queue.write_queue_nums)
        )
    )


def _ordered_queues(topic: str, order: str) -> tuple[MessageQueue, ...]:
    pairs = [part.split(":") for part in order.split(";") if ":" in part]
    counts = [(name, int(count)) for name, count in pairs]
    _check_count(topic, (count for _, count in counts))
    return tuple(
        MessageQueue(topic, name, queue_id) for name, count in counts for queue_id in range(count)
    )


def _check_count(topic: str, counts: Iterable[int]) -> None:
    """Refuse to make millions of queues because a name server says so."""
    if sum(max(0, count) for count in counts) > MAX_QUEUES:
        raise BadBodyError(f"the route of topic {topic} has more than {MAX_QUEUES} queues")


def _check_brokers(topic: str, route: TopicRouteData) -> None:
    if sum(len(broker.broker_addrs) for broker in route.broker_datas) > MAX_BROKERS:
        raise BadBodyError(f"the route of topic {topic} has more than {MAX_BROKERS} brokers")


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """Return the queues a consumer may read, sorted.

    Raises:
        BadBodyError: there are too many.
    """
    _check_count(topic, (queue.read_queue_nums for queue in route.queue_datas))
    return tuple(
        sorted_queues(
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in route.queue_datas
            if is_readable(queue.perm)
            for queue_id in range(queue.read_queue_nums)
        )
    )


def _why_closed(topic: str, route: TopicRouteData) -> NoRouteError:
    """Return the reason why a served topic has no queue to write to."""
    perms = sorted({perm_to_string(queue.perm) for queue in route.queue_datas})
    # Name servers list a slave that acts for its master as id 0, without the write permission.
    is_acting = any(broker.enable_acting_master for broker in route.broker_datas)
    if is_acting or any(is_writeable(queue.perm) for queue in route.queue_datas):
        names = ", ".join(sorted(broker.broker_name for broker in route.broker_datas))
        return NoRouteError(
            f"topic {topic} has no queue to write to: no master of {names or 'a broker'} is "
            "registered now, and slaves take no messages; start a master, or create the topic at "
            "another broker"
        )
    return TopicNotWritableError(
        f"topic {topic} takes no messages: its permission is {', '.join(perms) or 'not known'}, "
        "which does not allow to write to any queue"
    )


class RouteTable:
    """Routes by topic, and broker addresses by name.

    Args:
        name_servers: where routes come from.
        default_queues: most queues a topic gets that its first message creates.

    Attributes:
        writable: the writable queues of each topic; a new tuple whenever they are stored.
        version: grows when the address of a broker changes, so that copies of it are renewed.
    """

    def __init__(self, name_servers: NameServers, default_queues: int = 4) -> None:
        self._name_servers = name_servers
        self._default_queues = default_queues
        self.version: int = 0
        self._routes: dict[str, TopicRouteData] = {}
        self._publish: dict[str, tuple[MessageQueue, ...]] = {}
        self.writable: Mapping[str, tuple[MessageQueue, ...]] = self._publish
        self._subscribe: dict[str, tuple[MessageQueue, ...]] = {}
        self._closed: dict[str, NoRouteError] = {}  # reason why a served topic takes no message
        self._brokers: dict[str, dict[int, str]] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set()
        self.on_change: list[Callable[[str], None]] = []

    def cached_publish_queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the cached writable queues, without a request."""
        return self._publish.get(topic)

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues; of an unknown topic, those it will be created with.

        Raises:
            TopicNotWritableError: the topic's permission forbids to write to any of its queues.
            NoRouteError: no broker serves the topic, and none would create it.
            NoNameServerError: no name server answers.
        """
        queues = self._publish.get(topic)
        if queues:
            return queues
        await self.refresh(topic)
        queues = self._publish.get(topic)
        if not queues and (closed := self._closed.get(topic)) is not None:
            raise own_copy(closed)
        if not queues:
            queues = await self._queues_to_create(topic)
        if not queues:
            raise NoRouteError(f"no broker serves topic {topic}, and none creates it")
        return queues

    def is_static(self, topic: str) -> bool:
        """Whether a topic whose route is known is a static one: its queues move between brokers."""
        route = self._routes.get(topic)
        return route is not None and bool(route.topic_queue_mapping_by_broker)

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues, none while no broker serves the topic."""
        if topic not in self._subscribe:
            self._wanted.add(topic)
            await self.refresh(topic)
        return self._subscribe.get(topic, ())

    async def latest_subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues by a new request, none while no broker serves the topic.

        An operator may have changed their number; the known ones count if no name server answers.
        """
        try:
            await self.refresh(topic)
        except RocketPyError:
            if topic not in self._subscribe:
                raise
        return self._subscribe.get(topic, ())

    async def refresh(self, topic: str) -> None:
        """Fetch the topic's route; concurrent callers share one request.

        A topic that no broker serves keeps its previous route.
        """
        self._wanted.add(topic)
        task = self._fetching.get(topic)
        if task is None:
            task = asyncio.create_task(self._fetch_and_store(topic))
            self._fetching[topic] = task
            task.add_done_callback(lambda done: self._fetched(topic, done))
        await asyncio.wait([task])  # not cancelled with one caller: others wait for it too
        if not task.cancelled() and (error := task.exception()) is not None:
            raise own_copy(error)
        task.result()

    def _fetched(self, topic: str, task: asyncio.Task[None]) -> None:
        self._fetching.pop(topic, None)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the callers may be gone

    async def refresh_all(self) -> None:
        """Fetch the routes of all topics in use; raises the last failure after trying all."""
        failure: RocketPyError | None = None
        for topic in sorted(self._wanted):
            try:
                await self.refresh(topic)
            except RocketPyError as error:
                failure = error
        if failure is not None:
            raise failure

    def master_address(self, broker_name: str) -> str | None:
        """Return the address of the broker's master, None when unknown."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def read_address(self, broker_name: str, broker_id: int = MASTER_ID) -> tuple[str, bool] | None:
        """Return the address to read from and whether it is a slave's.

        The wanted id is preferred; of a slave that is gone the next one, then any.
        """
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        for candidate in (broker_id, broker_id + 1, *sorted(addresses)):
            if candidate in addresses:
                return addresses[candidate], candidate != MASTER_ID
        return None

    def replicas(self, broker_name: str) -> Mapping[int, str]:
        """Return the addresses of a broker by broker id; the id of a master is 0."""
        return self._brokers.get(broker_name, {})

    def broker_addresses(self, *, with_slaves: bool) -> list[str]:
        """Return every known broker's address, sorted."""
        return sorted(
            {
                address
                for addresses in self._brokers.values()
                for broker_id, address in addresses.items()
                if with_slaves or broker_id == MASTER_ID
            }
        )

    def brokers_of(self, topics: Iterable[str]) -> list[str]:
        """Return the addresses of the masters (else of any) that serve these topics."""
        names = {
            broker.broker_name
            for topic in topics
            if topic in self._routes
            for broker in self._routes[topic].broker_datas
        }
        found = (self.read_address(name) for name in sorted(names))
        return [entry[0] for entry in found if entry is not None]

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        response = await self._name_servers.invoke(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True).to_ext(),
        )
        if response.code == 0:
            if not response.body:
                raise BadBodyError(f"a name server's response without the route of topic {topic}")
            return TopicRouteData.decode(response.body)
        error = BrokerError.from_code(response.code, response.remark)
        if isinstance(error, TopicNotExistError):
            return None
        raise error

    async def _fetch_and_store(self, topic: str) -> None:
        route = await self._fetch(topic)
        if route is None:
            self._closed.pop(topic, None)  # deleted: a message may create it again
        elif route != self._routes.get(topic):
            self._store(topic, route)
        elif not publish_queues(topic, route):  # the same as before a temporary absence
            self._remember_writable(topic, (), route)

    def _store(self, topic: str, route: TopicRouteData) -> None:
        # Everything that may raise comes first: a bad route must not change half of the tables.
        _check_brokers(topic, route)
        writable, readable = publish_queues(topic, route), subscribe_queues(topic, route)
        self._routes[topic] = route
        self._remember_brokers(route)
        self._remember_writable(topic, writable, route)
        self._subscribe[topic] = readable
        logger.info(
            "route changed: topic=%(topic)s queues=%(count)d",
            {"topic": topic, "count": len(self._subscribe[topic])},
        )
        for listener in tuple(self.on_change):
            listener(topic)

    def _remember_writable(
        self, topic: str, queues: tuple[MessageQueue, ...], route: TopicRouteData
    ) -> None:
        self._publish[topic] = queues
        if queues:
            self._closed.pop(topic, None)
        else:
            self._closed[topic] = _why_closed(topic, route)

    def _remember_brokers(self, route: TopicRouteData) -> None:
        for broker in route.broker_datas:
            addresses = dict(broker.broker_addrs)
            if addresses and addresses != self._brokers.get(broker.broker_name):
                self._brokers[broker.broker_name] = addresses
                self.version += 1
        # A broker that left all routes is kept for a while: requests to it may still be running.
        if len(self._brokers) > 2 * MAX_BROKERS:
            routes = [route, *self._routes.values()]
            named = {broker.broker_name for each in routes for broker in each.broker_datas}
            self._brokers = {name: ids for name, ids in self._brokers.items() if name in named}
            self.version += 1

    async def _queues_to_create(self, topic: str) -> tuple[MessageQueue, ...]:
        route = await self._fetch(AUTO_CREATE_TOPIC)
        if route is None:
            return ()
        _check_brokers(AUTO_CREATE_TOPIC, route)
        self._remember_brokers(route)
        with_master = {
            broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs
        }
        queues = sorted_queues(
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in route.queue_datas
            if is_writeable(queue.perm) and queue.broker_name in with_master
            for queue_id in range(min(self._default_queues, queue.read_queue_nums))
        )
        if queues:
            self._publish[topic] = tuple(queues)
            # Perhaps a misspelt name: brokers create such a topic without a word.
            logger.info(
                "topic is new, its first message creates it: topic=%(topic)s", {"topic": topic}
            )
        return tuple(queues)
