"""Shared part of one client's producers and consumers: connections, routes, heartbeats, timers.

Source: MQClientInstance (5.4.0).
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable

from rocketpy.client.cluster.broker_api import BrokerApi
from rocketpy.client.cluster.broker_requests import GroupMember, ProducerMember, ServerRequests
from rocketpy.client.cluster.message_ids import MsgIds
from rocketpy.client.cluster.name_servers import NameServers, find_addresses
from rocketpy.client.cluster.pending_replies import PendingRequests
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.cluster.remoting import Remoting
from rocketpy.client.cluster.route_table import RouteTable
from rocketpy.client.config import ClientConfig
from rocketpy.client.options.durations import to_ms
from rocketpy.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    NameServerAddressError,
    NoNameServerError,
    NoRouteError,
    RocketPyError,
)
from rocketpy.proto.bodies.heartbeat import (
    EXT_DIVIDED_GROUPS,
    CheckClientRequestBody,
    HeartbeatData,
    ProducerData,
)
from rocketpy.proto.bodies.route import ClusterInfo
from rocketpy.proto.bodies.topic import TopicList
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData, is_tag_type
from rocketpy.proto.topic_names import is_dlq_topic, is_retry_topic, is_system_topic, reply_topic
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet
from rocketpy.runtime.os_resources import local_ip

logger: logging.Logger = logging.getLogger(__name__)

HEARTBEAT_MIN_PAUSE_MS = 1_000
ROUTE_MIN_PAUSE_MS = 500
ROUTE_URGENT_PAUSE_MS = 100
ROUTE_URGENT_MS = 3_000
ROUTE_URGENT_EVERY_MS = 30_000
_FOLLOW_UPS_S = (1.0, 3.0, 9.0, 15.0)
"""Times after the loss of a broker; one that hangs is replaced after ten seconds."""
LEAVE_S = 1.0
"""Time-out of leaving a group: a broker that does not answer notices the end of the connection."""
_LOOK_UP_PAUSE_MS = 500


def client_identity(config: ClientConfig, instance_name: str) -> str:
    """Return `ip@instance[@unit]`."""
    unit = f"@{config.unit_name}" if config.unit_name else ""
    return f"{config.client_ip or local_ip()}@{instance_name}{unit}"


def make_client_id(config: ClientConfig, process_id: int, clock: Clock, rng: random.Random) -> str:
    """Return the client id; process id and time stand in for a missing instance name."""
    unique = f"{process_id}#{clock.time_ms() * 1_000_000 + rng.randrange(1_000_000)}"
    return client_identity(config, config.instance_name or unique)


class Instance:
    """The shared part of one client.

    Args:
        config: intervals, name servers, identity.
        remoting: how requests travel; closed by `close`.
        clock: wall clock and waiting.
        rng: spreads clients over servers and queues.
        process_id: of this process.
    """

    def __init__(
        self,
        config: ClientConfig,
        remoting: Remoting,
        *,
        clock: Clock,
        rng: random.Random,
        process_id: int,
    ) -> None:
        self.config = config
        self.clock = clock
        self.rng = rng
        self.remoting = remoting
        self.client_id: str = make_client_id(config, process_id, clock, rng)
        self.name_servers: NameServers = NameServers(
            find_addresses(config.name_servers), remoting, rng, to_ms(config.api_timeout)
        )
        self.routes: RouteTable = RouteTable(self.name_servers, config.default_topic_queues)
        self.api: BrokerApi = BrokerApi(remoting, to_ms(config.api_timeout))
        self.is_running: bool = False
        self.consumers: dict[str, GroupMember] = {}
        # By group, messages that loops of its consumers were left with by an exception.
        self.left_positions: defaultdict[str, dict[tuple[MessageQueue, int], None]] = defaultdict(
            dict
        )
        self._producer_groups: dict[str, OrderedSet[ProducerMember]] = {}
        self.requests: PendingRequests = PendingRequests(self.client_id)
        self._introduced: set[str] = set()  # brokers that pass answers on to this client
        self._introducing = asyncio.Lock()
        self._heartbeat_known: dict[str, str] = {}  # address -> failure, empty when it answered
        self._divided_groups: set[str] = set()
        self._last_heartbeat_ms = -HEARTBEAT_MIN_PAUSE_MS
        self._beating: asyncio.Future[None] | None = None  # ends with the heartbeat under way
        ip = self.client_id.partition("@")[0]
        # A new generator for each thread: it is not safe to share.
        self.other_msg_ids: Callable[[], MsgIds] = lambda: MsgIds(ip, process_id, clock, rng)
        ids = self.other_msg_ids()
        self.next_msg_id: Callable[[], str] = ids.next
        self.next_msg_ids: Callable[[int], list[str]] = ids.next_many
        self._last_route_ms = -ROUTE_MIN_PAUSE_MS
        self._urgent_since_ms = -ROUTE_URGENT_EVERY_MS - 1
        self._sub_version = 0
        self._route_job = PeriodicJob(
            "routes", self._refresh_routes, to_ms(config.route_refresh_interval)
        )
        self._heartbeat_job = PeriodicJob(
            "heartbeat", self._heartbeat_step, to_ms(config.heartbeat_interval)
        )
        self._jobs = [self._route_job, self._heartbeat_job]
        self._finishing: OrderedSet[asyncio.Task[None]] = OrderedSet()
        ServerRequests(self.consumers.get, self.producers_of, self.requests).register(remoting)
        self.routes.on_change.append(self._route_changed)
        self._silent: set[str] = set()
        self._follow_ups: list[asyncio.TimerHandle] = []
        self._disconnects: Counter[str] = Counter()
        remoting.on_silence = self._broker_silent
        remoting.on_disconnect = self._server_disconnected

    async def start(self) -> None:
        """Start the timers; asks nothing of the network yet."""
        if self.is_running:
            return
        config = self.config
        self.is_running = True
        self._route_job.start(to_ms(config.route_refresh_interval))
        self._heartbeat_job.start(HEARTBEAT_MIN_PAUSE_MS)

    async def close(self) -> None:
        """Stop the timers, leave producer groups, close every connection."""
        if not self.is_running:
            return
        self.is_running = False
        for timer in self._follow_ups:
            timer.cancel()
        for job in self._jobs:
            await job.stop()
        finishing = list(self._finishing)
        for task in finishing:
            task.cancel()
        if finishing:
            await asyncio.wait(finishing)
        await self.remoting.close()

    def let_finish(self, task: asyncio.Task[None]) -> None:
        """Keep what a consumer that left has to finish, until the client closes at the latest."""
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    @property
    def lasting_id(self) -> str:
        """Id of this client that survives a restart, as Apache's broadcasting clients have it."""
        return client_identity(self.config, self.config.instance_name or "DEFAULT")

    def next_sub_version(self) -> int:
        """Return the version of a new subscription: the time, but never less than the last one.

        Brokers keep the subscription with the greatest version.
        """
        self._sub_version = max(self.clock.time_ms(), self._sub_version + 1)
        return self._sub_version

    async def look_up(self, topics: Iterable[str], limit_s: float) -> None:
        """Look topics up, and wait for a name server that is not there yet.

        Raises:
            NoNameServerError: none answered in time.
            NameServerAddressError: none is given, or none of them is a name server.
            ClosedError: the client was closed meanwhile.
        """
        end_ms = self.clock.monotonic_ms() + int(limit_s * 1000)
        was_logged = False
        for topic in topics:
            while True:
                try:
                    async with self._attempt(limit_s, end_ms):
                        await self.routes.refresh(topic)
                    break
                except NameServerAddressError:
                    raise
                except NoNameServerError as error:
                    left_ms = end_ms - self.clock.monotonic_ms()
                    if left_ms <= 0:
                        raise
                    if not was_logged:
                        was_logged = True
                        logger.warning(
                            "name servers not reached, start waits: limit_s=%(limit_s)s "
                            "error=%(error)s",
                            {"limit_s": limit_s, "error": error},
                        )
                # Shortened, so that the last attempt is at the end of the time.
                await asyncio.sleep(min(_LOOK_UP_PAUSE_MS, left_ms) / 1000)
                if not self.is_running:
                    raise ClosedError("the client was closed before its name servers were reached")

    async def wait_for_brokers(self, limit_s: float) -> None:
        """Wait until a name server answers and knows a broker.

        Raises:
            NoNameServerError: none answered in time.
            NameServerAddressError: none is given, or none of them is a name server.
            NoRouteError: no broker was registered in time.
            ClosedError: the client was closed meanwhile.
        """
        end_ms = self.clock.monotonic_ms() + int(limit_s * 1000)
        was_logged = False
        while True:
            failure: RocketPyError
            try:
                async with self._attempt(limit_s, end_ms):
                    code = RequestCode.GET_BROKER_CLUSTER_INFO
                    response = await self.name_servers.invoke(code, {})
                if ClusterInfo.decode(response.body).broker_addr_table:
                    return
                failure = NoRouteError("no broker is registered at the name servers")
            except NameServerAddressError:
                raise
            except NoNameServerError as error:
                failure = error
            left_ms = end_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                raise failure
            if not was_logged:
                was_logged = True
                logger.warning(
                    "cluster not reached, start waits: limit_s=%(limit_s)s error=%(error)s",
                    {"limit_s": limit_s, "error": failure},
                )
            await asyncio.sleep(min(_LOOK_UP_PAUSE_MS, left_ms) / 1000)
            if not self.is_running:
                raise ClosedError("the client was closed before its cluster was reached")

    @contextlib.asynccontextmanager
    async def _attempt(self, limit_s: float, end_ms: int) -> AsyncIterator[None]:
        """Bound an attempt of a wait, raising NoNameServerError; a wait of 0 s is one attempt."""
        # The last attempt begins when the time has ended.
        left_ms = max(end_ms - self.clock.monotonic_ms(), _LOOK_UP_PAUSE_MS)
        try:
            async with asyncio.timeout(left_ms / 1000 if limit_s else None):
                yield
        except TimeoutError:
            asked = ", ".join(self.name_servers.addresses)
            words = f"no name server answers: no answer from {asked} within {left_ms} ms"
            raise NoNameServerError(words) from None

    async def topic_names(self) -> set[str]:
        """Return the names of topics, without system, retry and dead letter topics.

        Raises:
            NoNameServerError: none answered.
        """
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        names = TopicList.decode((await self.name_servers.invoke(code, {})).body).topic_list
        response = await self.name_servers.invoke(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        cluster = ClusterInfo.decode(response.body)
        # Brokers have topics of their names, clusters those of theirs and one for replies.
        internal = {*cluster.broker_addr_table, *cluster.cluster_addr_table}
        internal |= {reply_topic(name) for name in cluster.cluster_addr_table}
        return {
            name
            for name in names
            if name not in internal
            and not (is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
        }

    # ---- groups

    def add_producer(self, group: str, producer: ProducerMember) -> None:
        """Add a producer group to the heartbeats; connected brokers get a new one at once."""
        producers = self._producer_groups.setdefault(group, OrderedSet())
        if not producers and self.is_running and self._heartbeat_known:
            self._heartbeat_job.wake()
        producers.add(producer)

    def producers_of(self, group: str) -> Iterable[ProducerMember]:
        """The producers of a group."""
        return list(self._producer_groups.get(group, ()))

    async def remove_producer(self, producer: ProducerMember) -> None:
        """Leave the producer's group if it was the last of this client in it."""
        for group, producers in list(self._producer_groups.items()):
            if producer not in producers:
                continue
            producers.discard(producer)
            if not producers:
                del self._producer_groups[group]
                await self.unregister(producer_group=group)

    def add_consumer(self, consumer: GroupMember) -> None:
        """Have a consumer in the heartbeats.

        Raises:
            ClientError: this client already has a consumer of that group.
        """
        if consumer.group in self.consumers:
            raise ClientError(
                f"this client already has a consumer of group {consumer.group}; "
                "raise its concurrency, or connect() another client"
            )
        self.consumers[consumer.group] = consumer

    async def remove_consumer(self, consumer: GroupMember) -> None:
        """Leave the consumer's group, so that the others take its queues over at once."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self.unregister(consumer_group=consumer.group)

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Unregister this client from a group at every broker; failures are only logged.

        Takes at most `LEAVE_S`.
        """

        async def leave(address: str) -> None:
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self.api.unregister(
                        address,
                        self.client_id,
                        producer_group=producer_group,
                        consumer_group=consumer_group,
                    )
            except (RocketPyError, TimeoutError) as error:
                logger.info(
                    "unregistration failed: address=%(address)s error=%(error)r",
                    {"address": address, "error": error},
                )

        known = [address for address, failure in self._heartbeat_known.items() if not failure]
        if self._beating is not None:  # its brokers know the group soon, and are not noted yet
            addresses = self.routes.broker_addresses(with_slaves=True)
            known = [each for each in addresses if not self._heartbeat_known.get(each)]
        await asyncio.gather(*(leave(address) for address in known))

    async def check_subscriptions(
        self, group: str, subscriptions: Iterable[SubscriptionData]
    ) -> None:
        """Ask a broker of each topic whether it takes a subscription by condition.

        Raises:
            BrokerError: it does not; the subscription would never be served.
        """
        for subscription in subscriptions:
            if is_tag_type(subscription.expression_type):
                continue
            queues = await self.routes.subscribe_queues(subscription.topic)
            address = self.routes.master_address(queues[0].broker_name) if queues else None
            if address is None:
                continue
            body = CheckClientRequestBody(self.client_id, group, subscription)
            try:
                await self.api.check_client_config(address, body.encode())
            except BrokerError:
                raise
            except RocketPyError as error:  # its pulls will say it again
                logger.warning(
                    "filter not checked: address=%(address)s error=%(error)r",
                    {"address": address, "error": error},
                )

    # ---- heartbeats

    async def heartbeat(self) -> None:
        """Tell every known broker about our groups; raises the last failure after trying all."""
        beating = self._beating = asyncio.get_running_loop().create_future()
        try:
            await self._heartbeat()
        finally:
            beating.set_result(None)
            if self._beating is beating:
                self._beating = None

    async def introduce(self) -> None:
        """Send a heartbeat to brokers that may have lost ours; unreachable ones are skipped.

        At most one heartbeat a second: of one that has just begun, only the end is waited for.
        """
        pause_ms = self.clock.monotonic_ms() - self._last_heartbeat_ms
        if pause_ms >= HEARTBEAT_MIN_PAUSE_MS:
            with contextlib.suppress(RocketPyError):  # the heartbeat job tries again, and logs
                await self.heartbeat()
        elif self._beating is not None:
            await asyncio.wait([self._beating])

    async def introduce_to(self, address: str) -> bool:
        """Send a heartbeat if a broker has had none; return whether it has one."""
        if self._heartbeat_known.get(address) != "":
            if self._beating is None:
                passed_ms = self.clock.monotonic_ms() - self._last_heartbeat_ms
                await asyncio.sleep(max(0, HEARTBEAT_MIN_PAUSE_MS - passed_ms) / 1000)
            await self.introduce()
        return self._heartbeat_known.get(address) == ""

    async def _heartbeat(self) -> None:
        self._last_heartbeat_ms = self.clock.monotonic_ms()
        if not self._producer_groups and not self.consumers:
            return
        body = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in sorted(self._producer_groups)],
            consumer_data_set=[consumer.heartbeat_data() for consumer in self.consumers.values()],
        ).encode()
        addresses = self.routes.broker_addresses(with_slaves=bool(self.consumers))
        for gone in self._heartbeat_known.keys() - set(addresses):
            del self._heartbeat_known[gone]
        outcomes = await asyncio.gather(
            *(self.api.heartbeat(address, body) for address in addresses), return_exceptions=True
        )
        self._warn_of_divided_groups(outcomes)
        failure: BaseException | None = None
        is_introduced = False
        for address, outcome in zip(addresses, outcomes, strict=True):
            failed = isinstance(outcome, BaseException)
            is_introduced |= not failed and self._heartbeat_known.get(address) != ""
            self._heartbeat_known[address] = repr(outcome) if failed else ""
            if isinstance(outcome, BaseException):
                failure = outcome
        if is_introduced:  # such a broker refused to list group members until now
            self._wake_rebalance()
        if failure is not None:
            raise failure

    def _warn_of_divided_groups(self, outcomes: Iterable[RemotingCommand | BaseException]) -> None:
        """Warn once per group whose members subscribe differently, which only RocketPy reports."""
        responses = [each for each in outcomes if isinstance(each, RemotingCommand)]
        named = {
            group
            for each in responses
            for group in each.ext_fields.get(EXT_DIVIDED_GROUPS, "").split(",")
            if group
        }
        for group in sorted(named - self._divided_groups):
            logger.warning(
                "members subscribe differently, messages are missed, use the same topics and "
                "filters in all of them: group=%(group)s",
                {"group": group},
            )
        self._divided_groups = named

    async def make_known(self, topic: str) -> None:
        """Send heartbeats to the brokers of a topic that need one to pass answers on to us.

        Raises:
            RocketPyError: the topic has no route, or a broker does not answer.
        """
        queues = await self.routes.publish_queues(topic)
        names = dict.fromkeys(queue.broker_name for queue in queues)
        addresses = {address for name in names if (address := self.routes.master_address(name))}
        if self._are_introduced(addresses):
            return
        # One heartbeat for all requests that start meanwhile.
        async with self._introducing:
            if not self._are_introduced(addresses):
                await self.heartbeat()
                self._introduced |= addresses

    def _are_introduced(self, addresses: set[str]) -> bool:
        is_failed = any(map(self._heartbeat_known.get, addresses))
        return addresses <= self._introduced and not is_failed

    def disconnects(self, address: str) -> int:
        """Return how many connections to a server have ended: it may have been restarted since.

        Args:
            address: `host:port`.
        """
        return self._disconnects[address]

    def _server_disconnected(self, address: str) -> None:
        self._disconnects[address] += 1
        # The broker forgot this client with its connection.
        if self._heartbeat_known.pop(address, None) is not None:
            self.heartbeat_soon()

    def is_answering(self, address: str) -> bool:
        """Return whether a broker answered the last heartbeat; True before the first one.

        Args:
            address: `host:port`.
        """
        return not self._heartbeat_known.get(address)

    def heartbeat_soon(self) -> None:
        """Send a heartbeat at once, at most one a second: a broker may have forgotten us."""
        pause_ms = self.clock.monotonic_ms() - self._last_heartbeat_ms
        if self.is_running and pause_ms >= HEARTBEAT_MIN_PAUSE_MS:
            self._heartbeat_job.wake()

    async def _heartbeat_step(self) -> int | None:
        await self.heartbeat()
        return None

    # ---- routes

    async def _refresh_routes(self) -> int | None:
        await self.routes.refresh_all()
        self._last_route_ms = self.clock.monotonic_ms()
        return None

    def refresh_routes_soon(self, *, is_urgent: bool = False) -> None:
        """Fetch all routes at once, at most twice a second: a broker may have moved.

        Args:
            is_urgent: another master may be elected: at most ten times a second, for 3 of 30 s,
                so that many clients of a lost broker do not overload the name servers.
        """
        now = self.clock.monotonic_ms()
        if is_urgent and now - self._urgent_since_ms > ROUTE_URGENT_EVERY_MS:
            self._urgent_since_ms = now
        is_urgent = is_urgent and now - self._urgent_since_ms <= ROUTE_URGENT_MS
        pause_ms = ROUTE_URGENT_PAUSE_MS if is_urgent else ROUTE_MIN_PAUSE_MS
        if self.is_running and now - self._last_route_ms >= pause_ms:
            self._last_route_ms = now
            self._route_job.wake()

    def broker_lost(self) -> None:
        """Fetch all routes soon, and again until another master may have been elected.

        A producer that has another broker does not notice the new master otherwise, until routes
        are fetched regularly.
        """
        self.refresh_routes_soon()
        if self.is_running and not self._follow_ups:
            call_later = asyncio.get_running_loop().call_later
            self._follow_ups = [call_later(each, self._follow_up) for each in _FOLLOW_UPS_S]

    def _follow_up(self) -> None:
        self._follow_ups.pop(0)
        self.refresh_routes_soon()

    def _route_changed(self, topic: str) -> None:  # noqa: ARG002 - any change may concern any group
        self._wake_rebalance()
        addresses = self.routes.broker_addresses(with_slaves=bool(self.consumers))
        if set(addresses) <= self._heartbeat_known.keys():
            self.heartbeat_soon()
        else:  # a broker that has never heard of us cannot wait: it serves none of our consumers
            self._heartbeat_job.wake()

        self._abandon_replaced()

    def _broker_silent(self, address: str) -> None:
        """Find out whether a broker that does not answer sends was replaced by another one."""
        self._silent.add(address)
        self.refresh_routes_soon()
        self._abandon_replaced()

    def _abandon_replaced(self) -> None:
        # One that answers again stays in the set: only silent ones are abandoned.
        known = self.routes.broker_addresses(with_slaves=True) if self._silent else ()
        for address in self._silent.difference(known):
            self.remoting.abandon(address, "another broker has its place in the route")
        self._silent.intersection_update(known)

    def _wake_rebalance(self) -> None:
        for consumer in self.consumers.values():
            consumer.wake_rebalance()

    # ---- health

    def failures(self) -> dict[str, str]:
        """Return what does not work now, by name: background jobs and brokers."""
        found = {job.name: repr(job.failure) for job in self._jobs if job.failure is not None}
        if self.name_servers.failure:
            found["name server"] = self.name_servers.failure
        for address, failure in self._heartbeat_known.items():
            if failure:
                found[f"broker {address}"] = failure
        return found
