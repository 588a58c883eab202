"""Registration of this broker at the name servers: periodic, on changes, and unregistration.

The complete topic table is sent to all name servers in parallel at the start, after 10 s, and then
every `registerNameServerPeriod` (30 s). A created or changed topic is announced at once, alone.

Source: BrokerOuterAPI.java, BrokerController.registerBrokerAll (5.4.0).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, Final

import structlog

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.master_address import MasterAddress
from rocketpy.broker.cluster.name_conflicts import FREE, NameConflicts
from rocketpy.broker.cluster.topic_queues import RouteResponse
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import BadBodyError, ConnectionLostError, RocketPyError
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.route import GetBrokerMemberGroupResponseBody, TopicRouteData
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.proto.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketpy.proto.perm import PERM_READ, PERM_WRITE
from rocketpy.proto.record.record import body_crc
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.ordered_set import OrderedSet
from rocketpy.runtime.service import Steps, run_cooperatively

logger: Any = structlog.get_logger(__name__)

_SECOND_REGISTRATION_MS: Final = 10_000
_MASTER_WANTED_MS: Final = 3_000
"""Pause between two registrations of a slave that does not know its master."""
_START_WAIT_MS: Final = 5_000
_CONFLICT_CHECK_MS: Final = 2_000
_GOODBYE_MS: Final = 3_000
_ANNOUNCE_WAIT_MS: Final = 1_000
HEARTBEAT_TIMEOUT_MS: Final = 10_000
"""With `enableSlaveActingMaster`, a broker that is silent for this long is dropped."""
_ROUTE_MS: Final = 3_000
_PERHAPS_TLS: Final = (
    "it closes the connection without an answer: if it takes TLS only "
    "(tls.server.mode=enforcing), set it to permissive, for brokers register in plain text"
)


class NameServerLink:
    """Registers this broker at the name servers; lives on the loop that calls `start`.

    Args:
        client: connections.
        configs: current settings.
        identity: names and addresses of this broker.
        topics: topic table.
        master: receives the addresses of the master, at a slave.
    """

    def __init__(
        self,
        client: RemotingClient,
        *,
        configs: LiveBrokerConfig,
        identity: BrokerIdentity,
        topics: TopicTable,
        master: MasterAddress | None = None,
    ) -> None:
        self._client = client
        self._master = master
        self._configs = configs
        self._identity = identity
        self._topics = topics
        self._loop: asyncio.AbstractEventLoop | None = None
        self._periodic: asyncio.Task[None] | None = None
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._changed: dict[str, TopicConfig] = {}
        self._announcing: asyncio.Task[None] | None = None
        self._round_end: asyncio.Future[None] | None = None
        self._unreachable: set[str] = set()
        self._answered: set[str] = set()
        self._missed: set[str] = set()
        self._conflicts = NameConflicts()
        self._registered: set[str] = set()
        self._building = asyncio.Lock()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The configured name servers."""
        return self._configs.broker.name_server_addresses

    @property
    def is_registered(self) -> bool:
        """Whether a name server accepted the last registration that it was sent."""
        return bool(self._registered)

    @property
    def name_conflict(self) -> str | None:
        """Remark of a name server that gives the routes to another broker; None without one.

        One is enough: clients of different name servers would use different brokers.
        """
        return self._conflicts.remark_without_routes(self._registered)

    async def start(self) -> None:
        """Register for the first time (waiting a few seconds at most), then periodically."""
        self._loop = asyncio.get_running_loop()
        if not self.addresses:
            logger.info("no name server configured")
            return
        first = self._spawn(self.register_all())
        await asyncio.wait({first}, timeout=_START_WAIT_MS / 1000)
        self._periodic = asyncio.create_task(self._keep_registering())

    async def stop(self) -> None:
        """Unregister at all name servers that can be reached, and close the connections."""
        tasks = list(self._tasks)
        if self._periodic is not None:
            tasks.append(self._periodic)
            self._periodic = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop = None
        reachable = [one for one in self.addresses if one not in self._unreachable]
        await asyncio.gather(*(self._say_goodbye(one) for one in reachable))
        await self._client.close()

    def topic_changed(self, topic: TopicConfig) -> None:
        """Announce a created or changed topic soon; on any thread."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._announce_soon, topic)
        except RuntimeError:
            logger.debug("loop closed, topic not announced", topic=topic.topic_name)

    def when_announced(self, callback: Callable[[], None]) -> None:
        """Call back once the name servers know all changes so far, or after a second.

        A client may ask for the route of a topic as soon as its creation was acknowledged. Callable
        on any thread.

        Args:
            callback: called once, on this link's loop; at once when no name server is configured.
        """
        loop = self._loop
        if loop is None:
            callback()
            return
        try:
            # Queued behind the announcement, which the change itself scheduled in the same way.
            loop.call_soon_threadsafe(self._call_when_announced, callback)
        except RuntimeError:
            callback()

    def register_soon(self) -> None:
        """Register everything again now; on any thread."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(lambda: self._spawn(self.register_all()))
        except RuntimeError:
            logger.debug("loop closed, not registered again")

    async def register_all(self) -> None:
        """Send the complete topic table to all name servers."""
        behind, self._missed = self._missed, set()
        heard: set[str] = set()
        try:
            heard = await self._register(self._all)
        finally:
            self._missed |= behind - heard

    async def fetch_route(self, topic: str) -> RouteResponse:
        """Ask the name servers, one after the other, for the route of a topic; on any loop."""
        loop = self._loop
        if loop is None:
            return RouteResponse(was_reached=False)
        if loop is asyncio.get_running_loop():
            return await self._fetch_route(topic)
        future = asyncio.run_coroutine_threadsafe(self._fetch_route(topic), loop)
        return await asyncio.wrap_future(future)

    async def _fetch_route(self, topic: str) -> RouteResponse:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        for address in self.addresses:
            request = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_ext())
            response = await self._call(address, request, _ROUTE_MS)
            if response is None:
                continue
            if response.code == ResponseCode.TOPIC_NOT_EXIST:
                return RouteResponse(was_reached=True)
            try:
                if response.code == ResponseCode.SUCCESS:
                    return RouteResponse(True, TopicRouteData.decode(response.body))
            except BadBodyError as error:
                logger.warning("route unreadable", name_server=address, error=str(error))
        return RouteResponse(was_reached=False)

    async def _keep_registering(self) -> None:
        wait_ms = _SECOND_REGISTRATION_MS
        if self._master is not None and not self._master.is_known:
            wait_ms = _MASTER_WANTED_MS
        while True:
            await self._wait(wait_ms)
            await self.register_all()
            wait_ms = self._configs.broker.register_period_ms
            if self._master is not None and not self._master.is_known:
                wait_ms = _MASTER_WANTED_MS

    async def _wait(self, wait_ms: int) -> None:
        """Wait for the next registration; less when this broker gets its routes meanwhile."""
        while wait_ms > 0:
            step_ms = min(wait_ms, _CONFLICT_CHECK_MS)
            await asyncio.sleep(step_ms / 1000)
            wait_ms -= step_ms
            if wait_ms and await self._has_routes_again():
                return

    def _announce_soon(self, topic: TopicConfig) -> None:
        self._changed[topic.topic_name] = topic
        if self._announcing is None and self._loop is not None:
            self._announcing = self._spawn(self._announce())

    async def _announce(self) -> None:
        """Announce changes in rounds, so that a waiting caller does not wait for later changes."""
        round_end = None
        try:
            while self._changed:
                changed, self._changed = self._changed, {}
                round_end, self._round_end = self._round_end, None
                self._note_missed(await self._register(partial(self._as_now, changed)))
                _resolve(round_end)
        finally:
            # Callers that joined during the last round wait for no change of their own.
            self._announcing = None
            _resolve(round_end)
            _resolve(self._round_end)
            self._round_end = None

    def _note_missed(self, heard: set[str]) -> None:
        """Send the complete table to a name server that gets a change after it missed one.

        The change gives it the newest version number, so it would ignore the complete table under
        the same version.
        """
        is_behind = not self._missed.isdisjoint(heard)
        self._missed.update(address for address in self.addresses if address not in heard)
        if is_behind:
            self._topics.renew_version()
            self._spawn(self.register_all())

    def _as_now(self, changed: dict[str, TopicConfig]) -> list[TopicConfig]:
        """Return topics as they are now: two changes of one may be announced in either order."""
        written = self._topics.written
        return [written[name] for name in changed if name in written]

    def _all(self) -> Iterable[TopicConfig]:
        """Return all topics that are on disk; others are not announced."""
        return self._topics.written.values()

    def _call_when_announced(self, callback: Callable[[], None]) -> None:
        if self._announcing is None or self._loop is None:
            callback()
            return
        if self._round_end is None:
            self._round_end = self._loop.create_future()
        self._spawn(_call_after(self._round_end, callback))

    async def _register(self, topics: Callable[[], Iterable[TopicConfig]]) -> set[str]:
        """Send topics to all name servers; returns the addresses of those that accepted them."""
        # One body at a time, so that later changes are sent after earlier ones.
        async with self._building:
            body = await run_cooperatively(self._body(topics))
        addresses = self.addresses
        took = await asyncio.gather(*(self._register_at(address, body) for address in addresses))
        return set(compress(addresses, took))

    async def _register_at(self, address: str, body: bytes) -> bool:
        if await self._must_yield(address):
            return False
        identity = self._identity
        config = self._configs.broker
        header = RegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster_name,
            ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id,
            enable_acting_master=config.enable_slave_acting_master,
            heartbeat_timeout_millis=(
                HEARTBEAT_TIMEOUT_MS if config.enable_slave_acting_master else None
            ),
            body_crc32=body_crc(body),
        )
        request = make_request(RequestCode.REGISTER_BROKER, header.to_ext(), body)
        response = await self._call(address, request, config.register_broker_timeout_mills)
        if response is not None and response.code != 0:
            logger.warning(
                "registration refused",
                name_server=address,
                code=response.code,
                remark=response.remark,
            )
        if response is None or response.code != 0:
            self._registered.discard(address)
            return False
        self._registered.add(address)
        if self._master is not None:
            found = RegisterBrokerResponseHeader.from_ext(response.ext_fields)
            self._master.registered(found.master_addr, found.ha_server_addr)
        self._conflicts.note(address, response.remark or "")
        return True

    async def _has_routes_again(self) -> bool:
        """Return whether a name server that gave the routes to another broker has this one now."""
        waiting = [each for each in self.addresses if self._conflicts.waits_at(each)]
        holders = await asyncio.gather(*map(self._holder, waiting))
        now_s = asyncio.get_running_loop().time()
        for address, holder in zip(waiting, holders, strict=True):
            self._conflicts.note_holder(address, holder, now_s)
        return self._identity.address in holders

    async def _must_yield(self, address: str) -> bool:
        """Return whether another broker of the name must be able to register before this one."""
        if self._conflicts.may_be_first(address, self._registered):
            return False
        holder = await self._holder(address)
        now_s = asyncio.get_running_loop().time()
        self._conflicts.note_holder(address, holder, now_s)
        period_s = self._configs.broker.register_period_ms / 1000
        return self._conflicts.must_yield(address, self._registered, now_s=now_s, period_s=period_s)

    async def _holder(self, address: str) -> str | None:
        """Return the broker that a name server has under this name and id; None if unknown."""
        identity = self._identity
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=identity.cluster_name, broker_name=identity.broker_name
        )
        request = make_request(RequestCode.GET_BROKER_MEMBER_GROUP, header.to_ext())
        response = await self._call(address, request, _ROUTE_MS)
        if response is None or response.code != ResponseCode.SUCCESS:
            return None
        try:
            group = GetBrokerMemberGroupResponseBody.decode(response.body).broker_member_group
        except BadBodyError:  # a name server that has no such request
            return None
        return FREE if group is None else group.broker_addrs.get(identity.broker_id, FREE)

    async def _say_goodbye(self, address: str) -> None:
        identity = self._identity
        header = UnRegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        request = make_request(RequestCode.UNREGISTER_BROKER, header.to_ext())
        await self._call(address, request, _GOODBYE_MS)

    async def _call(
        self, address: str, request: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand | None:
        try:
            response = await self._client.invoke(address, request, timeout_ms)
        except RocketPyError as error:
            if address not in self._unreachable:
                self._unreachable.add(address)
                hint = {}
                if isinstance(error, ConnectionLostError) and address not in self._answered:
                    hint = {"hint": _PERHAPS_TLS}
                logger.warning(
                    "name server unreachable", name_server=address, error=str(error), **hint
                )
            return None
        self._answered.add(address)
        if address in self._unreachable:
            self._unreachable.discard(address)
            logger.info("name server reachable again", name_server=address)
        return response

    def _body(self, topics: Callable[[], Iterable[TopicConfig]]) -> Steps[bytes]:
        permission = self._configs.broker.broker_permission
        # Read before the topics: a topic that is added in between gets a later version.
        version = DataVersion.from_json(self._topics.data_version)
        announced = topics()
        # A broker without write (or read) permission takes it from all its topics.
        if permission != PERM_READ | PERM_WRITE:
            announced = (replace(topic, perm=topic.perm & permission) for topic in announced)
        wrapper = TopicConfigSerializeWrapper(
            data_version=version,
            mapping_data_version=replace(version, counter=0),
            topic_queue_mapping_detail_map={},
            topic_queue_mapping_info_map={},
        )
        return RegisterBrokerBody(wrapper).encode_with(announced)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _resolve(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


async def _call_after(round_end: asyncio.Future[None], callback: Callable[[], None]) -> None:
    try:
        await asyncio.wait({round_end}, timeout=_ANNOUNCE_WAIT_MS / 1000)
    finally:
        callback()  # also when the broker stops meanwhile
