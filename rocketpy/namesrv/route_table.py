"""Which broker serves which topic: the name server's memory.

Six tables, changed only under one lock, by requests and by the liveness scan:

    topics    topic -> broker name -> its queues and permission
    brokers   broker name -> cluster and the address of each id (0 is the master)
    clusters  cluster -> broker names
    live      (cluster, address) -> when it was last heard, its data version, its connection
    mappings  topic -> broker name -> static mapping
    served    broker name -> its topics: a broker that leaves costs its own topics, not everybody's

A broker's topics are taken over when it registers for the first time or its data version changed.
No clock and no network in here: the caller says what time it is.

Source: RouteInfoManager (5.4.0)
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketpy.namesrv.registration import Registration
from rocketpy.namesrv.route_types import (
    BrokerKey,
    MinBrokerChange,
    RegisterOutcome,
    RegisterResult,
    RouteLimits,
)
from rocketpy.proto.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig
from rocketpy.proto.perm import PERM_READ, PERM_WRITE, is_writeable
from rocketpy.proto.topic_names import sync_broker_member_topic
from rocketpy.runtime.ordered_set import OrderedSet

_SYNC_PREFIX: Final = sync_broker_member_topic("")


@dataclass(slots=True)
class _Live:
    """A broker that was heard."""

    broker_name: str
    heard_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str
    connection: object
    filter_servers: Sequence[str]


class RouteTable:
    """The tables; every method is safe to call from any thread.

    Args:
        limits: bounds; may be replaced while running.
    """

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self.limits = limits or RouteLimits()
        self._lock = threading.Lock()
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _Live] = {}
        self._mappings: dict[str, dict[str, object]] = {}
        self._served: dict[str, OrderedSet[str]] = {}
        self._route_count = 0
        self._mapping_count = 0

    # ---- what brokers say

    def register(
        self, told: Registration, connection: object, now_ms: int, *, delete_missing: bool = False
    ) -> RegisterResult:
        """Take over a broker's registration.

        Args:
            told: what it says; its names have been checked.
            connection: closing it takes the broker away, see `connection_closed`.
            now_ms: monotonic.
            delete_missing: a list without static mappings also removes the topics it lacks.
        """
        with self._lock:
            return self._register(told, connection, now_ms, delete_missing=delete_missing)

    def _register(
        self, told: Registration, connection: object, now_ms: int, *, delete_missing: bool
    ) -> RegisterResult:
        key = BrokerKey(told.cluster, told.address)
        known = self._live.get(key)
        if known is not None and known.broker_name != told.broker_name:
            self._remove(key, known.broker_name)  # one address is one broker
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
        dropped = 0
        if told.broker_id == MASTER_ID or is_prime_slave:
            wipe = is_prime_slave and bool(told.enable_acting_master)
            dropped = self._take_topics(
                told, key, is_first=is_first, wipe=wipe, delete_missing=delete_missing
            )
        is_new = key not in self._live
        self._live[key] = _Live(
            broker_name=told.broker_name,
            heard_ms=now_ms,
            timeout_ms=told.timeout_ms,
            data_version=told.data_version,
            ha_address=told.ha_address,
            connection=connection,
            filter_servers=told.filter_servers,
        )
        master_address, ha_address = self._master_for(told, addresses)
        change = None
        if told.broker_id < lowest_before:
            change = MinBrokerChange(told.broker_name, addresses, None, told.ha_address)
        return RegisterResult(
            RegisterOutcome.OK, master_address, ha_address, is_new, dropped, change
        )

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

    def _take_topics(
        self,
        told: Registration,
        key: BrokerKey,
        *,
        is_first: bool,
        wipe: bool,
        delete_missing: bool,
    ) -> int:
        """Take over the topics where something changed; return how many found no room."""
        live = self._live.get(key)
        changed = is_first or live is None or live.data_version != told.data_version
        if delete_missing and not told.mappings:
            served = self._served.get(told.broker_name, ())
            for topic in [name for name in served if name not in told.topics]:
                self._drop(topic, told.broker_name)
        dropped = 0
        for topic, config in told.topics.items():
            is_known = told.broker_name in self._topics.get(topic, ())
            if is_known and not changed:
                continue
            queue = _queue_data(told.broker_name, config, wipe=wipe)
            dropped += not self._put_queue(topic, queue)
        if changed:
            for topic, mapping in told.mappings.items():
                self._put_mapping(topic, told.broker_name, mapping)
        return dropped

    def _put_queue(self, topic: str, queue: QueueData) -> bool:
        """Set a broker's queues of a topic; False when there is no room."""
        queues = self._topics.get(topic)
        if queues is None or queue.broker_name not in queues:
            if self._route_count >= self.limits.max_routes:
                return False
            if queues is None:
                if len(self._topics) >= self.limits.max_topics:
                    return False
                queues = self._topics[topic] = {}
            self._route_count += 1
            self._served.setdefault(queue.broker_name, OrderedSet()).add(topic)
        queues[queue.broker_name] = queue
        return True

    def _put_mapping(self, topic: str, broker_name: str, mapping: object) -> None:
        if broker_name not in self._topics.get(topic, ()):
            return
        mappings = self._mappings.setdefault(topic, {})
        if broker_name not in mappings:
            if self._mapping_count >= self.limits.max_mappings:
                return
            self._mapping_count += 1
        mappings[broker_name] = mapping

    def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> bool:
        """Merge the queues of one topic.

        Returns:
            False when one of the brokers is unknown, and nothing changed, or there is no room.
        """
        with self._lock:
            if not all(each.broker_name in self._brokers for each in queue_datas):
                return False
            # A list: every queue is tried, also after one that found no room.
            return min([self._put_queue(topic, each) for each in queue_datas], default=True)

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """Note that a broker was heard; an unknown one stays unknown."""
        with self._lock:
            live = self._live.get(key)
            if live is not None:
                live.heard_ms = now_ms

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """Return the data version a broker last registered with, or None."""
        with self._lock:
            live = self._live.get(key)
            return None if live is None else live.data_version

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
                self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)
            if min(left) != min(broker.broker_addrs):
                heir = self._live.get(BrokerKey(broker.cluster, left[min(left)]))
                return MinBrokerChange(
                    broker_name, left, key.address, heir.ha_address if heir else None
                )
            return None
        del self._brokers[broker_name]
        self._leave_cluster(broker.cluster, broker_name)
        for topic in list(self._served.get(broker_name, ())):
            self._drop(topic, broker_name)
        return None

    def _leave_cluster(self, cluster: str, broker_name: str) -> None:
        names = self._clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster, None)

    def _drop(self, topic: str, broker_name: str) -> None:
        """Take one broker name out of one topic; the last one takes the topic along."""
        queues = self._topics.get(topic)
        if queues is not None:
            if queues.pop(broker_name, None) is not None:
                self._route_count -= 1
                self._forget_served(topic, broker_name)
            if not queues:
                del self._topics[topic]
        mappings = self._mappings.get(topic)
        if mappings is not None:
            self._mapping_count -= broker_name in mappings
            mappings.pop(broker_name, None)
            if not mappings:
                del self._mappings[topic]

    def _forget_served(self, topic: str, broker_name: str) -> None:
        served = self._served[broker_name]
        served.discard(topic)
        if not served:
            del self._served[broker_name]

    # ---- what administrators do

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster, until a broker registers it again."""
        with self._lock:
            names = self._topics.get(topic, {}) if not cluster else self._clusters.get(cluster, ())
            for name in list(names):
                self._drop(topic, name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Make every topic of a broker name read-only; return how many."""
        with self._lock:
            return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make every topic of a broker name readable and writeable; return how many."""
        with self._lock:
            return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for topic in self._served.get(broker_name, ()):
            queues = self._topics[topic]
            queue = queues[broker_name]
            queues[broker_name] = replace(queue, perm=change(queue.perm))
            count += 1
        return count

    # ---- what everybody asks

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """Return queues and brokers of a topic; None when no live broker serves it.

        Args:
            topic: its name.
            acting_master: show the slave with the lowest id as master where there is none.
        """
        with self._lock:
            queues = self._topics.get(topic, {})
            brokers = [self._brokers[name] for name in queues if name in self._brokers]
            if not brokers:
                return None
            if acting_master and not topic.startswith(_SYNC_PREFIX):
                brokers = [_with_acting_master(each, queues[each.broker_name]) for each in brokers]
            return TopicRouteData(
                queue_datas=list(queues.values()),
                broker_datas=brokers,
                filter_server_table=self._filter_servers(brokers),
                topic_queue_mapping_by_broker=dict(self._mappings.get(topic, {})) or None,
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
            return sorted(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return every topic that a broker of the cluster serves, sorted."""
        with self._lock:
            names = self._clusters.get(cluster, set())
            return sorted(t for t, queues in self._topics.items() if not names.isdisjoint(queues))

    def topics_by_flag(self, matches: Callable[[int], bool]) -> list[str]:
        """Return every topic whose system flag matches (its first broker's), sorted."""
        with self._lock:
            return sorted(
                topic
                for topic, queues in self._topics.items()
                if queues and matches(next(iter(queues.values())).topic_sys_flag)
            )


def _queue_data(broker_name: str, config: TopicConfig, *, wipe: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & ~PERM_WRITE if wipe else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


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
