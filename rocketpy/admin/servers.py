"""Requests to the servers of a cluster, by role or address; the base of all admin operations.

Source: MQAdminImpl, DefaultMQAdminExtImpl (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from rocketpy.client.cluster.name_servers import NameServers
from rocketpy.client.cluster.remoting import Remoting
from rocketpy.errors import (
    BrokerError,
    ClientError,
    NoRouteError,
    RocketPyError,
    ServersFailedError,
    TopicNotExistError,
    own_copy,
)
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketpy.proto.headers.base import Header
from rocketpy.proto.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
)
from rocketpy.proto.headers.topic import DeleteTopicRequestHeader
from rocketpy.proto.topic_names import retry_topic
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.proto.wire.json_body import Body
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.suggestions import hint

B = TypeVar("B", bound=Body)
T = TypeVar("T")


def checked(response: RemotingCommand) -> RemotingCommand:
    """Return a successful response; raises BrokerError for every other code."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError.from_code(response.code, response.remark)
    return response


class Servers:
    """Every server of a cluster: requests, routes and addresses.

    Args:
        name_servers: any of them answers queries.
        remoting: sends the requests.
        clock: for queries by time.
        timeout_ms: limit of one request.
    """

    def __init__(
        self, name_servers: NameServers, remoting: Remoting, *, clock: Clock, timeout_ms: int
    ) -> None:
        self.clock = clock
        self._name_servers = name_servers
        self._remoting = remoting
        self._timeout_ms = timeout_ms
        self._silent: dict[str, tuple[int, RocketPyError]] = {}

    async def close(self) -> None:
        """Close every connection; a second call does nothing."""
        await self._remoting.close()

    # ---- requests

    async def invoke(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Send a request to a server, for operations without a method; codes are not checked."""
        return await self._remoting.invoke(address, command, self._timeout_ms)

    async def ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to one server; raises BrokerError when it refuses."""
        request = make_request(code, {} if header is None else header.to_ext(), body)
        response = await self.invoke(address, request)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            response.remark = (
                f"{response.remark}; is {address} a name server instead of a broker, "
                "or the other way round?"
            )
        return checked(response)

    async def ask_namesrv(self, code: int, header: Header | None = None) -> RemotingCommand:
        """Send a request to any name server; raises BrokerError when it refuses."""
        ext_fields = {} if header is None else header.to_ext()
        return checked(await self._name_servers.invoke(code, ext_fields))

    async def tell_namesrvs(
        self, code: int, header: Header | None = None, body: bytes = b""
    ) -> dict[str, RemotingCommand]:
        """Send a request to every name server; they do not replicate.

        Raises:
            ServersFailedError: some of them failed; the others have the request.
            RocketPyError: all of them failed.
        """
        return await self.change(
            self.namesrv_addresses(), lambda address: self.ask(address, code, header, body)
        )

    async def each(
        self, servers: Mapping[str, str], question: Callable[[str], Awaitable[T]]
    ) -> tuple[dict[str, T], dict[str, RocketPyError]]:
        """Ask several servers concurrently; a server that does not answer hides no other.

        A server that let a request time out is not asked again for two time-outs, so that an
        operation of many requests waits for it once.

        Args:
            servers: addresses by name.
            question: requests to one address.

        Returns:
            The results and the failures, by name.

        Raises:
            ServersFailedError: none of several servers answered.
            RocketPyError: the only server did not answer, or one of them refused.
        """
        outcomes = await asyncio.gather(
            *(self._outcome(address, question) for address in servers.values())
        )
        done: dict[str, T] = {}
        failures: dict[str, RocketPyError] = {}
        for name, (result, error) in zip(servers, outcomes, strict=True):
            if error is not None:
                failures[name] = error
            else:
                done[name] = result[0]
        if failures and not done:
            refusals = [each for each in failures.values() if isinstance(each, BrokerError)]
            if refusals or len(failures) == 1:
                raise [*refusals, *failures.values()][0]
            raise ServersFailedError({}, failures)
        return done, failures

    async def _outcome(
        self, address: str, question: Callable[[str], Awaitable[T]]
    ) -> tuple[tuple[T, ...], RocketPyError | None]:
        """Return the result of a question as a tuple of one, or the failure."""
        began_ms = self.clock.monotonic_ms()
        until_ms, known = self._silent.get(address, (began_ms, None))
        if known is not None and began_ms < until_ms:
            return (), own_copy(known)
        try:
            result = await question(address)
        except RocketPyError as error:
            now_ms = self.clock.monotonic_ms()
            if isinstance(error, ClientError) and 2 * (now_ms - began_ms) >= self._timeout_ms:
                self._silent[address] = now_ms + 2 * self._timeout_ms, own_copy(error)
            return (), error
        self._silent.pop(address, None)
        return (result,), None

    async def change(
        self, servers: Mapping[str, str], change: Callable[[str], Awaitable[T]]
    ) -> dict[str, T]:
        """Change several servers concurrently.

        Args:
            servers: addresses by name.
            change: requests to one address.

        Returns:
            The results by name.

        Raises:
            ServersFailedError: some servers failed; the others have the change.
            RocketPyError: all of them failed.
        """
        done, failures = await self.each(servers, change)
        if failures:
            raise ServersFailedError(done, failures)
        return done

    async def bodies(
        self, servers: Mapping[str, str], code: int, kind: type[B], header: Header | None = None
    ) -> tuple[dict[str, B], dict[str, RocketPyError]]:
        """Ask several servers for a body of one kind; see `each`."""

        async def body(address: str) -> B:
            return kind.decode((await self.ask(address, code, header)).body)

        return await self.each(servers, body)

    # ---- members of the cluster

    def namesrv_addresses(self) -> dict[str, str]:
        """Return the addresses of all name servers, by themselves, for `each` and `change`.

        Raises:
            ClientError: none is given.
        """
        if not self._name_servers.addresses:
            raise ClientError("no name server given: pass one, or set NAMESRV_ADDR")
        return {address: address for address in self._name_servers.addresses}

    async def cluster_info(self) -> ClusterInfo:
        """Return every broker, and the broker names of each cluster.

        Raises:
            NoNameServerError: none is configured or none answers.
        """
        response = await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(response.body)

    async def broker_addresses(self, *, cluster: str = "", broker: str = "") -> dict[str, str]:
        """Return the masters' addresses by broker name.

        Args:
            cluster: only this cluster.
            broker: only this broker name.

        Raises:
            ClientError: the cluster or broker does not exist.
        """
        found: dict[str, str] = {}
        info = await self.cluster_info()
        for data in _selected(info, cluster, broker):
            if data.master_addr is not None:
                found[data.broker_name] = data.master_addr
        if not found:
            wanted = (
                f" of broker {broker}" if broker else f" of cluster {cluster}" if cluster else ""
            )
            name = broker or cluster
            known = sorted(info.broker_addr_table if broker else info.cluster_addr_table)
            near = "" if name in known else hint(name, known)
            raise ClientError(f"no master{wanted} is registered with the name server{near}")
        return found

    async def all_masters(self, *, cluster: str = "") -> dict[str, str]:
        """Return the masters' addresses by broker name, for changes that no broker may miss.

        Args:
            cluster: only this cluster.

        Raises:
            NoRouteError: only slaves of a broker are registered, and its tables would keep what the
                others lose.
            ClientError: the cluster does not exist.
        """
        _check_masters(_selected(await self.cluster_info(), cluster, ""))
        return await self.broker_addresses(cluster=cluster)

    async def readable_brokers(self) -> dict[str, str]:
        """Return the address of each master, else of its slave with the lowest id, by name.

        Raises:
            ClientError: no broker is registered.
        """
        found = _readable((await self.cluster_info()).broker_addr_table.values())
        if not found:
            raise ClientError("no broker is registered with the name server")
        return found

    async def broker_names(self) -> dict[str, str]:
        """Return the name of the broker at each address, slaves included."""
        info = await self.cluster_info()
        return {
            address: data.broker_name
            for data in info.broker_addr_table.values()
            for address in data.broker_addrs.values()
        }

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic.

        Raises:
            TopicNotExistError: no broker serves it.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            response = await self.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except TopicNotExistError as error:  # Apache's remark points to a page about clients
            raise no_topic(topic) from error
        return TopicRouteData.decode(response.body)

    async def topic_masters(self, topic: str, broker: str = "") -> dict[str, str]:
        """Return the masters that serve a topic, by broker name, for changes.

        Args:
            topic: its name.
            broker: the only broker that is changed; empty for all.

        Raises:
            TopicNotExistError: no broker serves it.
            NoRouteError: one of its brokers has no master now.
        """
        brokers = (await self.topic_route(topic)).broker_datas
        _check_masters(each for each in brokers if broker in {"", each.broker_name})
        return self._found(topic, brokers)

    async def topic_brokers(self, topic: str) -> dict[str, str]:
        """Return the masters that serve a topic, else their slaves, by broker name, for queries.

        Raises:
            TopicNotExistError: no broker serves it.
        """
        return self._found(topic, (await self.topic_route(topic)).broker_datas)

    @staticmethod
    def _found(topic: str, brokers: Iterable[BrokerData]) -> dict[str, str]:
        found = _readable(brokers)
        if not found:
            raise NoRouteError(f"topic {topic} has no broker")
        return found

    async def group_brokers(self, group: str) -> dict[str, str]:
        """Return the brokers that serve a group, for queries: those of its retry topic, else all.

        A master is preferred to its slaves.
        """
        try:
            return await self.topic_brokers(retry_topic(group))
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        return await self.readable_brokers()

    async def drop_topic(self, topic: str, brokers: Mapping[str, str], cluster: str = "") -> None:
        """Delete a topic at brokers (215), then in the routes (216).

        Raises:
            ServersFailedError: some brokers failed, so that the routes still have the topic; or all
                brokers have deleted it, and some name servers failed.
        """

        async def drop(address: str) -> str:
            await self.drop_topic_at(address, topic)
            return address

        done = await self.change(brokers, drop)
        failures = await self.drop_route(topic, cluster)
        if failures:
            raise ServersFailedError(done, failures)

    async def drop_topic_at(self, address: str, topic: str) -> None:
        """Delete a topic at one broker (215)."""
        header = DeleteTopicRequestHeader(topic=topic)
        await self.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def drop_route(self, topic: str, cluster: str = "") -> dict[str, RocketPyError]:
        """Delete a topic in the routes of all name servers (216); returns their failures."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster or None)
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        _, failures = await self.each(
            self.namesrv_addresses(), lambda address: self.ask(address, code, header)
        )
        return failures


def no_topic(topic: str) -> TopicNotExistError:
    """Return the error for a topic that does not exist."""
    return TopicNotExistError(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist")


def _readable(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Return the address of the lowest id of each broker, which is the master's if it has one."""
    return {
        data.broker_name: data.broker_addrs[min(data.broker_addrs)]
        for data in brokers
        if data.broker_addrs
    }


def _check_masters(brokers: Iterable[BrokerData]) -> None:
    """Raise NoRouteError if only slaves of a broker are registered: they take no changes."""
    names = [each.broker_name for each in brokers if each.broker_addrs and not each.master_addr]
    if names:
        raise NoRouteError(
            f"no master of {', '.join(sorted(names))} is registered now, and its slaves take no "
            "changes: start the master, then repeat this"
        )


def _selected(info: ClusterInfo, cluster: str, broker: str) -> list[BrokerData]:
    table: Mapping[str, BrokerData] = info.broker_addr_table
    names = sorted(info.cluster_addr_table.get(cluster, set())) if cluster else sorted(table)
    return [table[name] for name in names if name in table and broker in {"", name}]
