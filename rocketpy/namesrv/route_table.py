"""Route table of a name server: topics, brokers and clusters.

Requests and the liveness scan change it under one lock:

    routes    topic -> broker name -> its queues and permission (`TopicRoutes`)
    brokers   broker name -> cluster and the address of each id (0 is the master)
    clusters  cluster -> broker names
    live      (cluster, address) -> time of its last request, its data version, its connection

Two live brokers of one name and id would take the routes from each other with each registration.
The first one keeps them while its connection is open and it registers in time; the registration of
the second one waits (`waiting`) and is applied at once when the first one leaves.

A broker's topics are applied when it registers for the first time or its data version changed.
The module has no clock and no network: the caller passes the time.

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
"""Topics that are applied between two pauses: about 4 ms."""


@dataclass(slots=True)
class _Live:
    """Live broker.

    Attributes:
        is_whole: all topics of its data version are in the tables.
        former: connection that registered the address before `connection`. If it registers again,
            two processes use one address.
    """

    broker_name: str
    heard_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str
    connection: object
    filter_servers: Sequence[str]
    is_whole: bool
    former: object = None


class _Waiting(NamedTuple):
    """Registration of a second live broker with one name and id."""

    registration: Registration
    connection: object
    heard_ms: int


class _Begun(NamedTuple):
    """Registration in progress, with topics still to apply.

    Attributes:
        key: of its broker.
        live: state of the broker; a later registration replaces it.
        result: response to the broker.
        serves: whether its topics count: it is the master, or acts as one.
        changed: all topics are applied, not only unknown ones.
        wipe: its topics are read-only.
    """

    key: BrokerKey
    live: _Live
    result: RegisterResult
    serves: bool
    changed: bool
    wipe: bool


class RouteTable:
    """Thread-safe tables of routes.

    Args:
        limits: bounds; may be replaced at run time.
    """

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self._routes = TopicRoutes(limits or RouteLimits())
        self._lock = threading.Lock()
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _Live] = {}
        self._waiting: dict[BrokerKey, _Waiting] = {}

    @property
    def limits(self) -> RouteLimits:
        """Bounds of the tables."""
        return self._routes.limits

    @limits.setter
    def limits(self, limits: RouteLimits) -> None:
        self._routes.limits = limits

    # ---- registrations

    def register(
        self,
        registration: Registration,
        connection: object,
        now_ms: int,
        *,
        delete_missing: bool = False,
    ) -> RegisterResult:
        """Apply a registration without a pause; see `register_in_steps`."""
        steps = self.register_in_steps(
            registration, connection, now_ms, delete_missing=delete_missing
        )
        return run_to_end(steps)

    def register_in_steps(
        self,
        registration: Registration,
        connection: object,
        now_ms: int,
        *,
        delete_missing: bool = False,
    ) -> Steps[RegisterResult]:
        """Apply a broker's registration, with a pause after each few topics.

        Each topic changes atomically. The data version is set when all topics are applied.

        Args:
            registration: the registration, with checked names.
            connection: when it closes, the broker is removed; see `connection_closed`.
            now_ms: monotonic time.
            delete_missing: a list without static mappings also removes topics that it lacks.

        Returns:
            The result, when the generator ends.
        """
        with self._lock:
            begun = self._begin(registration, connection, now_ms)
        if isinstance(begun, RegisterResult):
            return begun
        dropped = 0
        if begun.serves:
            for work in self._topic_steps(registration, begun, delete_missing=delete_missing):
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
        self, registration: Registration, connection: object, now_ms: int
    ) -> RegisterResult | _Begun:
        """Apply everything except the topics."""
        key = BrokerKey(registration.cluster, registration.address)
        holder = self._live_holder(registration, connection)
        if holder is not None:
            return self._wait(key, registration, connection, now_ms, *holder)
        self._waiting.pop(key, None)
        known = before = self._live.get(key)
        if known is not None and known.broker_name != registration.broker_name:
            self._remove(key, known.broker_name)  # one address is one broker
            known = None
        old = self._brokers.get(registration.broker_name)
        lowest_before = min(old.broker_addrs if old else {}, default=registration.broker_id)
        addresses = _other_addresses(registration, old)
        refused = self._refuse(registration, key, addresses)
        if refused is not None:
            return RegisterResult(refused)
        is_first = registration.broker_id not in addresses
        addresses[registration.broker_id] = registration.address
        self._put_broker(registration, addresses, old)
        is_prime_slave = (
            registration.enable_acting_master is not None
            and registration.broker_id != MASTER_ID
            and registration.broker_id == min(addresses)
        )
        changed = (
            is_first
            or known is None
            or not known.is_whole
            or known.data_version != registration.data_version
        )
        live = self._live[key] = _Live(
            broker_name=registration.broker_name,
            heard_ms=now_ms,
            timeout_ms=registration.timeout_ms,
            data_version=registration.data_version,
            ha_address=registration.ha_address,
            connection=connection,
            filter_servers=registration.filter_servers,
            is_whole=not changed,
            former=_former_connection(before, connection),
        )
        master_address, ha_address = self._master_for(registration, addresses)
        change = None
        if registration.broker_id < lowest_before:
            change = MinBrokerChange(
                registration.broker_name, addresses, None, registration.ha_address
            )
        result = RegisterResult(
            RegisterOutcome.OK,
            master_address,
            ha_address,
            known is None,
            min_change=change,
            rival=self._rival_of(registration, before, connection),
        )
        serves = registration.broker_id == MASTER_ID or is_prime_slave
        wipe = is_prime_slave and bool(registration.enable_acting_master)
        return _Begun(key, live, result, serves=serves, changed=changed, wipe=wipe)

    def _live_holder(
        self, registration: Registration, connection: object
    ) -> tuple[str, object] | None:
        """Return another live broker with the name and id, which keeps its routes.

        A broker with another state version is not a rival: it was elected later or earlier. A
        new address on the same connection is the same process.

        Returns:
            Its address and its connection.
        """
        broker = self._brokers.get(registration.broker_name)
        address = None if broker is None else broker.broker_addrs.get(registration.broker_id)
        if broker is None or address is None or address == registration.address:
            return None
        live = self._live.get(BrokerKey(broker.cluster, address))
        if live is None or live.connection is connection:
            return None
        versions = live.data_version.state_version, registration.data_version.state_version
        return (address, live.connection) if versions[0] == versions[1] else None

    def _wait(
        self,
        key: BrokerKey,
        registration: Registration,
        connection: object,
        now_ms: int,
        rival: str,
        holder: object,
    ) -> RegisterResult:
        """Keep the registration of a second broker until the first one leaves."""
        known = self._waiting.get(key)
        if known is None and len(self._waiting) + len(self._live) >= self.limits.max_brokers:
            return RegisterResult(RegisterOutcome.FULL)
        if len(registration.topics) == 1:  # one changed topic
            before = known.registration.topics if known is not None else {}
            registration = replace(registration, topics={**before, **registration.topics})
        self._waiting[key] = _Waiting(registration, connection, now_ms)
        return RegisterResult(
            RegisterOutcome.WAITING, is_new=known is None, rival=rival, holder=holder
        )

    def _rival_of(
        self, registration: Registration, before: _Live | None, connection: object
    ) -> str:
        """Return the address of another broker that uses the name and id; empty without one.

        It is the broker's address if two processes use that.
        """
        if before is not None and before.former is connection:
            return registration.address
        for key, waiting in self._waiting.items():
            other = waiting.registration
            if (other.broker_name, other.broker_id) == (
                registration.broker_name,
                registration.broker_id,
            ) and key.address != registration.address:
                return key.address
        return ""

    def take_over(self) -> list[tuple[Registration, RegisterResult]]:
        """Apply the registrations that waited for a name and id that is free now; return them."""
        applied = []
        for key, waiting in list(self._waiting.items()):
            registration = waiting.registration
            with self._lock:
                is_free = (
                    self._waiting.get(key) is waiting
                    and self._live_holder(registration, waiting.connection) is None
                )
            if is_free:
                result = self.register(registration, waiting.connection, waiting.heard_ms)
                applied.append((registration, result))
        return applied

    def _put_broker(
        self, registration: Registration, addresses: dict[int, str], old: BrokerData | None
    ) -> None:
        self._brokers[registration.broker_name] = BrokerData(
            cluster=registration.cluster,
            broker_name=registration.broker_name,
            broker_addrs=addresses,
            enable_acting_master=bool(registration.enable_acting_master),
            zone_name=registration.zone_name,
        )
        if old is not None and old.cluster != registration.cluster:
            self._leave_cluster(old.cluster, registration.broker_name)
        self._clusters.setdefault(registration.cluster, set()).add(registration.broker_name)

    def _master_for(self, registration: Registration, addresses: dict[int, str]) -> tuple[str, str]:
        """Return the address and HA address of a slave's master; empty without one."""
        if registration.broker_id == MASTER_ID or MASTER_ID not in addresses:
            return "", ""
        address = addresses[MASTER_ID]
        master = self._live.get(BrokerKey(registration.cluster, address))
        return ("", "") if master is None else (address, master.ha_address)

    def _refuse(
        self, registration: Registration, key: BrokerKey, addresses: dict[int, str]
    ) -> RegisterOutcome | None:
        holder = addresses.get(registration.broker_id)
        if holder is not None and holder != registration.address:
            live = self._live.get(BrokerKey(registration.cluster, holder))
            if live and live.data_version.state_version > registration.data_version.state_version:
                self._live.pop(key, None)
                return RegisterOutcome.STALE
        if holder is None and len(registration.topics) == 1:
            return RegisterOutcome.NOT_YET_REGISTERED
        if key not in self._live and len(self._live) >= self.limits.max_brokers:
            return RegisterOutcome.FULL
        return None

    def _topic_steps(
        self, registration: Registration, begun: _Begun, *, delete_missing: bool
    ) -> Iterator[Callable[[], int]]:
        """Yield steps to run under the lock; each returns the number of topics without room."""
        routes, name = self._routes, registration.broker_name
        if delete_missing and not registration.mappings:
            with self._lock:
                missing = [
                    each for each in routes.of_broker(name) if each not in registration.topics
                ]
            for some in chunked(missing, _STEP_TOPICS):
                yield partial(routes.drop, some, name)
        for configs in chunked(registration.topics.items(), _STEP_TOPICS):
            yield partial(
                routes.put_configs, configs, name, only_new=not begun.changed, wipe=begun.wipe
            )
        if begun.changed:
            for mappings in chunked(registration.mappings.items(), _STEP_TOPICS):
                yield partial(routes.put_mappings, mappings, name)

    def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> bool:
        """Merge the queues of one topic.

        Returns:
            False if one of the brokers is unknown, which changes nothing, or a table is full.
        """
        with self._lock:
            if not all(each.broker_name in self._brokers for each in queue_datas):
                return False
            # A list, not a generator: every queue is tried, also after one without room.
            return min([self._routes.put(topic, each) for each in queue_datas], default=True)

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """Refresh a known broker."""
        with self._lock:
            live = self._live.get(key)
            if live is not None:
                live.heard_ms = now_ms
            waiting = self._waiting.get(key)
            if waiting is not None:
                self._waiting[key] = waiting._replace(heard_ms=now_ms)

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """Return a broker's registered data version; None until all topics are applied."""
        with self._lock:
            live = self._live.get(key)
            return live.data_version if live is not None and live.is_whole else None

    # ---- removal of brokers

    def unregister(self, key: BrokerKey, broker_name: str) -> MinBrokerChange | None:
        """Remove a broker address, and topics without another broker."""
        with self._lock:
            if self._waiting.pop(key, None) is not None and key not in self._live:
                return None
            return self._remove(key, broker_name)

    def connection_closed(
        self, connection: object
    ) -> list[tuple[BrokerKey, MinBrokerChange | None]]:
        """Remove the brokers that last registered over this connection; return them."""
        with self._lock:
            for key in [k for k, each in self._waiting.items() if each.connection is connection]:
                del self._waiting[key]
            gone = [
                (key, live.broker_name)
                for key, live in self._live.items()
                if live.connection is connection
            ]
            return [(key, self._remove(key, name)) for key, name in gone]

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, object]]:
        """Remove expired brokers; return them and their connections."""
        with self._lock:
            late = [
                (key, live)
                for key, live in self._live.items()
                if now_ms - live.heard_ms > live.timeout_ms
            ]
            for key, live in late:
                self._remove(key, live.broker_name)
            gone: list[tuple[BrokerKey, object]] = [(key, live.connection) for key, live in late]
            for key, waiting in list(self._waiting.items()):
                if now_ms - waiting.heard_ms > waiting.registration.timeout_ms:
                    del self._waiting[key]
                    gone.append((key, waiting.connection))
            return gone

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

    # ---- administration

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or in one cluster, until a broker registers it again."""
        with self._lock:
            routes = self._routes
            names = routes.queues(topic) if not cluster else self._clusters.get(cluster, ())
            for name in list(names):
                routes.drop((topic,), name)

    def serves_many(self, broker_name: str) -> bool:
        """Return whether a change of all topics of a broker name takes more than a few ms."""
        return len(self._routes.of_broker(broker_name)) > _STEP_TOPICS

    def wipe_write_perm(self, broker_name: str) -> Steps[int]:
        """Make every topic of a broker name read-only, in steps; return their number."""
        return self._change_perm(broker_name, _wiped)

    def add_write_perm(self, broker_name: str) -> Steps[int]:
        """Make every topic of a broker name readable and writeable, in steps."""
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

    # ---- queries

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """Return queues and brokers of a topic; None without a live broker.

        Args:
            topic: its name.
            acting_master: return the slave with the lowest id as master if there is none.
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


def _former_connection(known: _Live | None, connection: object) -> object:
    """Return the connection that registered an address before this one."""
    if known is None:
        return None
    return known.former if known.connection is connection else known.connection


def _other_addresses(registration: Registration, old: BrokerData | None) -> dict[int, str]:
    """Return the addresses of a set; a slave that became master loses the one of its old id."""
    return {
        number: address
        for number, address in (old.broker_addrs if old else {}).items()
        if address != registration.address or number == registration.broker_id
    }


def _wiped(perm: int) -> int:
    return perm & ~PERM_WRITE


def _with_acting_master(broker: BrokerData, queues: QueueData) -> BrokerData:
    """Change the lowest id to 0 in sets without a master that have read-only topics."""
    addresses = broker.broker_addrs
    if not addresses or MASTER_ID in addresses or not broker.enable_acting_master:
        return broker
    if is_writeable(queues.perm):
        return broker
    moved = dict(addresses)
    moved[MASTER_ID] = moved.pop(min(moved))
    return replace(broker, broker_addrs=moved)
