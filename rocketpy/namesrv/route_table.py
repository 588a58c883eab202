"""Which broker serves which topic: the name server's memory.

Changed only under one lock, by requests and by the liveness scan:

    routes    topic -> broker name -> its queues and permission (`TopicRoutes`)
    brokers   broker name -> cluster and the address of each id (0 is the master)
    clusters  cluster -> broker names
    live      (cluster, address) -> when it was last heard, its data version, its connection

A broker's topics are taken over when it registers for the first time or its data version changed.
No clock and no network in here: the caller says what time it is.

Source: RouteInfoManager (5.4.0)
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from rocketpy.namesrv.registration import Registration
from rocketpy.namesrv.route_types import (
    BrokerKey,
    MinBrokerChange,
    RegisterOutcome,
    RegisterResult,
    RouteLimits,
)
from rocketpy.namesrv.topic_routes import TopicRoutes
from rocketpy.proto.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from rocketpy.proto.bodies.topic import DataVersion
from rocketpy.proto.perm import PERM_READ, PERM_WRITE, is_writeable
from rocketpy.proto.topic_names import sync_broker_member_topic
from rocketpy.runtime.service import Steps, chunked, run_to_end

_SYNC_PREFIX: Final = sync_broker_member_topic("")
_STEP_TOPICS: Final = 1_024
"""Topics that are taken over between two pauses: about 4 ms."""


@dataclass(slots=True)
class _Live:
    """A broker that was heard; `is_whole`: all topics of its data version are in the tables."""

    broker_name: str
    heard_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str
    connection: object
    filter_servers: Sequence[str]
    is_whole: bool


class _Begun(NamedTuple):
    """A registration whose topics are being taken over.

    Attributes:
        key: of its broker.
        live: replaced by that of a later registration.
        result: what its broker is told in the end.
        serves: its topics count: it is the master, or stands in for one.
        changed: all topics are taken over, not only those that are unknown.
        wipe: its topics are read-only.
    """

    key: BrokerKey
    live: _Live
    result: RegisterResult
    serves: bool
    changed: bool
    wipe: bool


class RouteTable:
    """The tables; every method is safe to call from any thread.

    Args:
        limits: bounds; may be replaced while running.
    """

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self._routes = TopicRoutes(limits or RouteLimits())
        self._lock = threading.Lock()
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _Live] = {}

    @property
    def limits(self) -> RouteLimits:
        """Bounds of the tables."""
        return self._routes.limits

    @limits.setter
    def limits(self, limits: RouteLimits) -> None:
        self._routes.limits = limits

    # ---- what brokers say

    def register(
        self, told: Registration, connection: object, now_ms: int, *, delete_missing: bool = False
    ) -> RegisterResult:
        """Take over a registration without a pause; see `register_in_steps`."""
        steps = self.register_in_steps(told, connection, now_ms, delete_missing=delete_missing)
        return run_to_end(steps)

    def register_in_steps(
        self, told: Registration, connection: object, now_ms: int, *, delete_missing: bool = False
    ) -> Steps[RegisterResult]:
        """Take over a broker's registration, with a pause after each few topics.

        A topic changes all at once. The broker's data version counts when all of them are there.

        Args:
            told: what it says; its names have been checked.
            connection: closing it takes the broker away, see `connection_closed`.
            now_ms: monotonic.
            delete_missing: a list without static mappings also removes the topics it lacks.

        Returns:
            What became of it, once the generator has ended.
        """
        with self._lock:
            begun = self._begin(told, connection, now_ms)
        if isinstance(begun, RegisterResult):
            return begun
        dropped = 0
        if begun.serves:
            for work in self._topic_steps(told, begun, delete_missing=delete_missing):
                with self._lock:
                    if self._live.get(begun.key) is not begun.live:
                        return RegisterResult(RegisterOutcome.OVERTAKEN)
                    dropped += work()
                yield
        with self._lock:
            if self._live.get(begun.key) is not begun.live:
                return RegisterResult(RegisterOutcome.OVERTAKEN)
            begun.live.is_whole = True
            return replace(begun.result, dropped_topics=dropped)

    def _begin(
        self, told: Registration, connection: object, now_ms: int
    ) -> RegisterResult | _Begun:
        """Take over all but the topics."""
        key = BrokerKey(told.cluster, told.address)
        known = self._live.get(key)
        if known is not None and known.broker_name != told.broker_name:
            self._remove(key, known.broker_name)  # one address is one broker
            known = None
        old = self._brokers.get(told.broker_name)
        addresses = dict(old.broker_addrs) if old else {}
        lowest_before = min(addresses, default=told.broker_id)
        # A slave that became master: the same address under its old id goes.
        addresses = {
            number: address
            for number, address in addresses.items()
            if address != told.address or number == told.broker_id
        }
        refused = self._refuse(told, key, addresses)
        if refused is not None:
            return RegisterResult(refused)
        is_first = told.broker_id not in addresses
        addresses[told.broker_id] = told.address
        self._put_broker(told, addresses, old)
        is_prime_slave = (
            told.enable_acting_master is not None
            and told.broker_id != MASTER_ID
            and told.broker_id == min(addresses)
        )
        changed = (
            is_first
            or known is None
            or not known.is_whole
            or known.data_version != told.data_version
        )
        live = self._live[key] = _Live(
            broker_name=told.broker_name,
            heard_ms=now_ms,
            timeout_ms=told.timeout_ms,
            data_version=told.data_version,
            ha_address=told.ha_address,
            connection=connection,
            filter_servers=told.filter_servers,
            is_whole=not changed,
        )
        master_address, ha_address = self._master_for(told, addresses)
        change = None
        if told.broker_id < lowest_before:
            change = MinBrokerChange(told.broker_name, addresses, None, told.ha_address)
        result = RegisterResult(
            RegisterOutcome.OK, master_address, ha_address, known is None, min_change=change
        )
        serves = told.broker_id == MASTER_ID or is_prime_slave
        wipe = is_prime_slave and bool(told.enable_acting_master)
        return _Begun(key, live, result, serves=serves, changed=changed, wipe=wipe)

    def _put_broker(
        self, told: Registration, addresses: dict[int, str], old: BrokerData | None
    ) -> None:
        self._brokers[told.broker_name] = BrokerData(
            cluster=told.cluster,
            broker_name=told.broker_name,
            broker_addrs=addresses,
            enable_acting_master=bool(told.enable_acting_master),
            zone_name=told.zone_name,
        )
        if old is not None and old.cluster != told.cluster:
            self._leave_cluster(old.cluster, told.broker_name)
        self._clusters.setdefault(told.cluster, set()).add(told.broker_name)

    def _master_for(self, told: Registration, addresses: dict[int, str]) -> tuple[str, str]:
        """Return a slave's master and that one's HA address; empty for a master, or without one."""
        if told.broker_id == MASTER_ID or MASTER_ID not in addresses:
            return "", ""
        address = addresses[MASTER_ID]
        master = self._live.get(BrokerKey(told.cluster, address))
        return ("", "") if master is None else (address, master.ha_address)

    def _refuse(
        self, told: Registration, key: BrokerKey, addresses: dict[int, str]
    ) -> RegisterOutcome | None:
        holder = addresses.get(told.broker_id)
        if holder is not None and holder != told.address:
            live = self._live.get(BrokerKey(told.cluster, holder))
            if live and live.data_version.state_version > told.data_version.state_version:
                self._live.pop(key, None)
                return RegisterOutcome.STALE
        if holder is None and len(told.topics) == 1:
            return RegisterOutcome.NOT_YET_REGISTERED
        if key not in self._live and len(self._live) >= self.limits.max_brokers:
            return RegisterOutcome.FULL
        return None

    def _topic_steps(
        self, told: Registration, begun: _Begun, *, delete_missing: bool
    ) -> Iterator[Callable[[], int]]:
        """Yield pieces of work, to be done under the lock; each returns how many had no room."""
        routes, name = self._routes, told.broker_name
        if delete_missing and not told.mappings:
            with self._lock:
                missing = [each for each in routes.of_broker(name) if each not in told.topics]
            for some in chunked(missing, _STEP_TOPICS):
                yield partial(routes.drop, some, name)
        for configs in chunked(told.topics.items(), _STEP_TOPICS):
            yield partial(
                routes.put_configs, configs, name, only_new=not begun.changed, wipe=begun.wipe
            )
        if begun.changed:
            for mappings in chunked(told.mappings.items(), _STEP_TOPICS):
                yield partial(routes.put_mappings, mappings, name)

    def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> bool:
        """Merge the queues of one topic.

        Returns:
            False when one of the brokers is unknown, and nothing changed, or there is no room.
        """
        with self._lock:
            if not all(each.broker_name in self._brokers for each in queue_datas):
                return False
            # A list: every queue is tried, also after one that found no room.
            return min([self._routes.put(topic, each) for each in queue_datas], default=True)

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """Note that a broker was heard; an unknown one stays unknown."""
        with self._lock:
            live = self._live.get(key)
            if live is not None:
                live.heard_ms = now_ms

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """Return the data version a broker last registered with; None unless all is taken over."""
        with self._lock:
            live = self._live.get(key)
            return live.data_version if live is not None and live.is_whole else None

    # ---- brokers that leave

    def unregister(self, key: BrokerKey, broker_name: str) -> MinBrokerChange | None:
        """Forget one broker address, and what nobody else serves."""
        with self._lock:
            return self._remove(key, broker_name)

    def connection_closed(
        self, connection: object
    ) -> list[tuple[BrokerKey, MinBrokerChange | None]]:
        """Forget the brokers that last registered over this connection; return them."""
        with self._lock:
            gone = [
                (key, live.broker_name)
                for key, live in self._live.items()
                if live.connection is connection
            ]
            return [(key, self._remove(key, name)) for key, name in gone]

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, object]]:
        """Forget the brokers that were silent for too long; return them and their connections."""
        with self._lock:
            late = [
                (key, live)
                for key, live in self._live.items()
                if now_ms - live.heard_ms > live.timeout_ms
            ]
            for key, live in late:
                self._remove(key, live.broker_name)
            return [(key, live.connection) for key, live in late]

    def _remove(self, key: BrokerKey, broker_name: str) -> MinBrokerChange | None:
        self._live.pop(key, None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return None
        left = {
            number: address
            for number, address in broker.broker_addrs.items()
            if address != key.address
        }
        if left:
            self._brokers[broker_name] = replace(broker, broker_addrs=left)
            if MASTER_ID not in left and broker.enable_acting_master:
                served = self._routes.of_broker(broker_name)
                self._routes.change_perm(served, broker_name, _wiped)
            if min(left) != min(broker.broker_addrs):
                heir = self._live.get(BrokerKey(broker.cluster, left[min(left)]))
                return MinBrokerChange(
                    broker_name, left, key.address, heir.ha_address if heir else None
                )
            return None
        del self._brokers[broker_name]
        self._leave_cluster(broker.cluster, broker_name)
        self._routes.drop_broker(broker_name)
        return None

    def _leave_cluster(self, cluster: str, broker_name: str) -> None:
        names = self._clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster, None)

    # ---- what administrators do

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster, until a broker registers it again."""
        with self._lock:
            routes = self._routes
            names = routes.queues(topic) if not cluster else self._clusters.get(cluster, ())
            for name in list(names):
                routes.drop((topic,), name)

    def serves_many(self, broker_name: str) -> bool:
        """Whether changing all topics of a broker name takes more than a few milliseconds."""
        return len(self._routes.of_broker(broker_name)) > _STEP_TOPICS

    def wipe_write_perm(self, broker_name: str) -> Steps[int]:
        """Make every topic of a broker name read-only, a few at a time; return how many."""
        return self._change_perm(broker_name, _wiped)

    def add_write_perm(self, broker_name: str) -> Steps[int]:
        """Make every topic of a broker name readable and writeable, a few at a time."""
        return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> Steps[int]:
        with self._lock:
            served = list(self._routes.of_broker(broker_name))
        count = 0
        for some in chunked(served, _STEP_TOPICS):
            with self._lock:
                count += self._routes.change_perm(some, broker_name, change)
            yield
        return count

    # ---- what everybody asks

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """Return queues and brokers of a topic; None when no live broker serves it.

        Args:
            topic: its name.
            acting_master: show the slave with the lowest id as master where there is none.
        """
        with self._lock:
            queues = self._routes.queues(topic)
            brokers = [self._brokers[name] for name in queues if name in self._brokers]
            if not brokers:
                return None
            if acting_master and not topic.startswith(_SYNC_PREFIX):
                brokers = [_with_acting_master(each, queues[each.broker_name]) for each in brokers]
            return TopicRouteData(
                queue_datas=list(queues.values()),
                broker_datas=brokers,
                filter_server_table=self._filter_servers(brokers),
                topic_queue_mapping_by_broker=dict(self._routes.mappings(topic)) or None,
            )

    def _filter_servers(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        table = {}
        for broker in brokers:
            for address in broker.broker_addrs.values():
                live = self._live.get(BrokerKey(broker.cluster, address))
                if live is not None and live.filter_servers:
                    table[address] = list(live.filter_servers)
        return table

    def brokers(self) -> dict[str, BrokerData]:
        """Return every broker name with its addresses."""
        with self._lock:
            return dict(sorted(self._brokers.items()))

    def clusters(self) -> dict[str, list[str]]:
        """Return every cluster with its broker names, sorted."""
        with self._lock:
            return {name: sorted(brokers) for name, brokers in sorted(self._clusters.items())}

    def members(self, broker_name: str) -> dict[int, str]:
        """Return id and address of every broker of a name; empty when unknown."""
        with self._lock:
            broker = self._brokers.get(broker_name)
            return dict(broker.broker_addrs) if broker else {}

    def topics(self) -> list[str]:
        """Return every topic, sorted."""
        with self._lock:
            return sorted(self._routes.topics())

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return every topic that a broker of the cluster serves, sorted."""
        with self._lock:
            names = self._clusters.get(cluster, set())
            return sorted(t for t, queues in self._routes.items() if not names.isdisjoint(queues))

    def topics_by_flag(self, matches: Callable[[int], bool]) -> list[str]:
        """Return every topic whose system flag matches (its first broker's), sorted."""
        with self._lock:
            return sorted(
                topic
                for topic, queues in self._routes.items()
                if queues and matches(next(iter(queues.values())).topic_sys_flag)
            )


def _wiped(perm: int) -> int:
    return perm & ~PERM_WRITE


def _with_acting_master(broker: BrokerData, queues: QueueData) -> BrokerData:
    """Move the lowest id to 0 where a set lost its master and its topics are read-only."""
    addresses = broker.broker_addrs
    if not addresses or MASTER_ID in addresses or not broker.enable_acting_master:
        return broker
    if is_writeable(queues.perm):
        return broker
    moved = dict(addresses)
    moved[MASTER_ID] = moved.pop(min(moved))
    return replace(broker, broker_addrs=moved)
