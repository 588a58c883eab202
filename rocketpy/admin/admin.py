"""Entry to the admin operations: `rocketpy.admin.connect()`.

Example:
    ::

        import asyncio
        import rocketpy.admin


        async def main() -> None:
            async with rocketpy.admin.connect("127.0.0.1:9876") as admin:
                await admin.create_topic("orders", queues=8)
                for group in await admin.groups():
                    print(group.group, group.lag)


        asyncio.run(main())
"""

import functools
import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, cast

from rocketpy.admin import clusters as of_clusters
from rocketpy.admin import dead_letters as of_dead_letters
from rocketpy.admin import failover as of_failover
from rocketpy.admin import groups as of_groups
from rocketpy.admin import key_values as of_key_values
from rocketpy.admin import messages as of_messages
from rocketpy.admin import offsets as of_offsets
from rocketpy.admin import replication as of_replication
from rocketpy.admin import topics as of_topics
from rocketpy.admin.arguments import Arguments
from rocketpy.admin.servers import Servers
from rocketpy.client.cluster.name_servers import NameServers, find_addresses
from rocketpy.client.cluster.remoting import Remoting
from rocketpy.client.config import Checked
from rocketpy.client.credentials import Credentials, RequestSigner, find_credentials
from rocketpy.client.lifecycle import ProcessBound, require_loop
from rocketpy.client.options.durations import Duration, to_ms
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import Clock, SystemClock

TIMEOUT_MS = 5_000


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(Checked):
    """Options of `connect`, as it describes them."""

    name_servers: str | Sequence[str] | None
    timeout: Duration
    remoting: RemotingClientConfig | None
    credentials: Credentials | None
    clock: Clock | None


class _HasServers(Protocol):
    @property
    def servers(self) -> Servers: ...


def _operation(
    function: Callable[Concatenate[Servers, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_HasServers, P], Coroutine[Any, Any, R]]:
    """Return a method that calls a coroutine function with the servers as first argument."""
    checked = Arguments(function)
    call = cast("Callable[..., Coroutine[Any, Any, R]]", function)

    @functools.wraps(function)
    async def method(self: _HasServers, /, *args: P.args, **kwargs: P.kwargs) -> R:
        by_place, by_name = checked(args, kwargs)
        return await call(self.servers, *by_place, **by_name)

    return method


class Admin(ProcessBound):
    """The operations of mqadmin as methods, for Apache and RocketPy clusters.

    Every operation queries the servers; nothing is cached. Names and addresses of brokers come
    from the name servers. Use it with `async with`.

    Each operation is a function of the module named above it, with its docstring.

    Args:
        name_servers: `host:port` of every name server.
        remoting: sends the requests; closed by `close`.
        clock: for queries by time.
        rng: chooses the first name server.
        timeout_ms: limit of one request.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        remoting: Remoting,
        *,
        clock: Clock,
        rng: random.Random,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._servers = Servers(
            NameServers(name_servers, remoting, rng, timeout_ms),
            remoting,
            clock=clock,
            timeout_ms=timeout_ms,
        )

    @property
    def servers(self) -> Servers:
        """The cluster's servers, which the operations use; for further operations of a program."""
        return self._servers

    async def __aenter__(self) -> Self:
        require_loop()
        return self

    def __await__(self) -> Generator[None, None, Self]:
        """Return it, as `admin = await connect(...)`; `await admin.close()` ends it."""
        return self.__aenter__().__await__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- any server: servers.py

    close: Final = _operation(Servers.close)
    invoke: Final = _operation(Servers.invoke)
    cluster_info: Final = _operation(Servers.cluster_info)
    broker_addresses: Final = _operation(Servers.broker_addresses)
    broker_names: Final = _operation(Servers.broker_names)
    topic_route: Final = _operation(Servers.topic_route)

    # ---- topics: topics.py

    topics: Final = _operation(of_topics.topics)
    topic_configs: Final = _operation(of_topics.topic_configs)
    topic_config: Final = _operation(of_topics.topic_config)
    topic_groups: Final = _operation(of_topics.topic_groups)
    topic_status: Final = _operation(of_topics.topic_status)
    topic_statistics: Final = _operation(of_topics.topic_statistics)
    create_topic: Final = _operation(of_topics.create_topic)
    update_topic: Final = _operation(of_topics.update_topic)
    put_topic_config: Final = _operation(of_topics.put_topic_config)
    delete_topic: Final = _operation(of_topics.delete_topic)
    order_conf: Final = _operation(of_topics.order_conf)
    set_order_conf: Final = _operation(of_topics.set_order_conf)
    delete_order_conf: Final = _operation(of_topics.delete_order_conf)
    topic_exists: Final = _operation(of_topics.topic_exists)

    # ---- groups and producers: groups.py

    group_configs: Final = _operation(of_groups.group_configs)
    group_config: Final = _operation(of_groups.group_config)
    create_group: Final = _operation(of_groups.create_group)
    update_group: Final = _operation(of_groups.update_group)
    delete_group: Final = _operation(of_groups.delete_group)
    check_group: Final = _operation(of_groups.check_group)
    group_names: Final = _operation(of_groups.group_names)
    groups: Final = _operation(of_groups.groups)
    group_lag: Final = _operation(of_groups.group_lag)
    queue_owners: Final = _operation(of_groups.queue_owners)
    consumer_connection: Final = _operation(of_groups.consumer_connection)
    group_members: Final = _operation(of_groups.group_members)
    producer_connection: Final = _operation(of_groups.producer_connection)
    producers: Final = _operation(of_groups.producers)
    running_info: Final = _operation(of_groups.running_info)

    # ---- offsets of groups: offsets.py

    reset_offset: Final = _operation(of_offsets.reset_offset)
    clone_offsets: Final = _operation(of_offsets.clone_offsets)
    set_offsets: Final = _operation(of_offsets.set_offsets)

    # ---- messages: messages.py

    message_by_offset_id: Final = _operation(of_messages.message_by_offset_id)
    message_by_unique_id: Final = _operation(of_messages.message_by_unique_id)
    messages_by_unique_id: Final = _operation(of_messages.messages_by_unique_id)
    message_by_id: Final = _operation(of_messages.message_by_id)
    messages_by_key: Final = _operation(of_messages.messages_by_key)
    message_at: Final = _operation(of_messages.message_at)
    queue_range: Final = _operation(of_messages.queue_range)
    peek: Final = _operation(of_messages.peek)
    trace: Final = _operation(of_messages.trace)

    # ---- dead letters: dead_letters.py

    dead_letters: Final = _operation(of_dead_letters.dead_letters)
    requeue_dead_letter: Final = _operation(of_dead_letters.requeue_dead_letter)

    # ---- brokers, name servers and controllers: clusters.py

    brokers: Final = _operation(of_clusters.brokers)
    replicas: Final = _operation(of_replication.replicas)
    group_statuses: Final = _operation(of_failover.group_statuses)
    broker_runtime: Final = _operation(of_clusters.broker_runtime)
    broker_stats: Final = _operation(of_clusters.broker_stats)
    ping_namesrv: Final = _operation(of_clusters.ping_namesrv)
    ping_broker: Final = _operation(of_clusters.ping_broker)
    ping_controller: Final = _operation(of_clusters.ping_controller)
    namesrv_not_ready: Final = _operation(of_clusters.namesrv_not_ready)
    broker_not_ready: Final = _operation(of_clusters.broker_not_ready)
    controller_not_ready: Final = _operation(of_clusters.controller_not_ready)
    wipe_write_permission: Final = _operation(of_clusters.wipe_write_permission)
    add_write_permission: Final = _operation(of_clusters.add_write_permission)
    broker_config: Final = _operation(of_clusters.broker_config)
    update_broker_config: Final = _operation(of_clusters.update_broker_config)
    namesrv_config: Final = _operation(of_clusters.namesrv_config)
    update_namesrv_config: Final = _operation(of_clusters.update_namesrv_config)
    clean_expired_queues: Final = _operation(of_clusters.clean_expired_queues)
    clean_unused_topics: Final = _operation(of_clusters.clean_unused_topics)
    delete_expired_log: Final = _operation(of_clusters.delete_expired_log)

    # ---- the name servers' key-value table: key_values.py

    kv_get: Final = _operation(of_key_values.kv_get)
    kv_list: Final = _operation(of_key_values.kv_list)
    kv_put: Final = _operation(of_key_values.kv_put)
    kv_delete: Final = _operation(of_key_values.kv_delete)


def connect(
    name_servers: str | Sequence[str] | None = None,
    *,
    timeout: Duration = TIMEOUT_MS / 1000,
    remoting: RemotingClientConfig | None = None,
    credentials: Credentials | None = None,
    clock: Clock | None = None,
) -> Admin:
    """Return the admin operations of a cluster; nothing is sent yet.

    Args:
        name_servers: `"host:9876;host2:9876"` or a sequence; None takes `NAMESRV_ADDR` from
            the environment.
        timeout: limit of one request, in seconds or as a timedelta.
        remoting: settings of the connections (TLS, limits).
        credentials: account of a cluster with access control; None takes it from the environment
            (`ROCKETPY_ACCESS_KEY`, `ROCKETPY_SECRET_KEY`).
        clock: the system clock by default.

    Raises:
        ConfigError: an option that cannot be used; names it.
    """
    _Options(
        name_servers=name_servers,
        timeout=timeout,
        remoting=remoting,
        credentials=credentials,
        clock=clock,
    )
    used = clock or SystemClock()
    rng = random.SystemRandom()
    client = RemotingClient(remoting or RemotingClientConfig(), clock=used, rng=rng)
    account = find_credentials(credentials)
    if account is not None:
        client.hooks.append(RequestSigner(account))
    addresses = find_addresses(name_servers)
    return Admin(addresses, client, clock=used, rng=rng, timeout_ms=to_ms(timeout))
