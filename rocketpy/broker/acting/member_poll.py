"""Heartbeats of a broker, and the members of its group, each second at all name servers.

The lowest id of all answers counts: a slave acts only if no reachable name server has a lower one.

Source: BrokerController.sendHeartbeat, syncBrokerMemberGroup, BrokerOuterAPI,
AdminBrokerProcessor.notifyBrokerIdChanged (5.4.0).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.name_server_link import HEARTBEAT_TIMEOUT_MS
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import BadBodyError, RocketPyError
from rocketpy.proto.bodies.route import GetBrokerMemberGroupResponseBody, TopicRouteData
from rocketpy.proto.bodies.topic import DataVersion
from rocketpy.proto.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
)
from rocketpy.proto.topic_names import sync_broker_member_topic
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.connection.channel import Channel

_log = structlog.get_logger(__name__)

POLL_MS: Final = 1_000
_CALL_MS: Final = 1_000
_MIN_PAUSE_MS: Final = 100
"""Pause before an early poll, so that a flood of notifications does not load the name servers."""

Members = Mapping[int, str]
"""Addresses of the members of a group by their broker ids."""


class MemberPoll:
    """Polls the name servers; lives on the loop that calls `start`.

    Args:
        client: connections.
        configs: current settings.
        identity: names and addresses of this broker.
        topics: topic table, whose version is part of a heartbeat.

    Attributes:
        on_members: called with the members when a name server has answered.
        sends_heartbeats: whether heartbeats are sent: not by a master that is not registered yet.
    """

    def __init__(
        self,
        client: RemotingClient,
        *,
        configs: LiveBrokerConfig,
        identity: BrokerIdentity,
        topics: TopicTable,
    ) -> None:
        self._client = client
        self._configs = configs
        self._identity = identity
        self._topics = topics
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hinted = asyncio.Event()
        self.on_members: Callable[[Members], None] = lambda _: None
        self.sends_heartbeats: bool = True

    def start(self) -> None:
        """Start to poll."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep_polling())

    def hint(self) -> None:
        """Poll soon, not only after the second; on any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._hinted.set)

    def notified(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer NOTIFY_MIN_BROKER_ID_CHANGE (905) of a name server, which is a hint.

        Its content is not used. Any client can send it, and another name server may still know
        a lower id, so the poll decides.
        """
        self.hint()
        return make_response(request)

    async def stop(self) -> None:
        """Stop polling; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def members(self) -> Members | None:
        """Ask all name servers for the members; None when none of them answers."""
        addresses = self._configs.broker.name_server_addresses
        found = await asyncio.gather(*(self._members_at(each) for each in addresses))
        known = [each for each in found if each is not None]
        if not known:
            return None
        return {number: address for each in known for number, address in each.items()}

    async def poll_once(self) -> None:
        """Send a heartbeat to all name servers, and read the members."""
        if self.sends_heartbeats:
            addresses = self._configs.broker.name_server_addresses
            await asyncio.gather(*(self._heartbeat(each) for each in addresses))
        found = await self.members()
        if found is not None:
            self.on_members(found)

    async def _keep_polling(self) -> None:
        while True:
            # A notification during the poll counts: the answers may be older.
            self._hinted.clear()
            try:
                await self.poll_once()
            except Exception:  # noqa: BLE001 - the next round may succeed
                _log.exception("members of the broker group not read")
            await asyncio.sleep(_MIN_PAUSE_MS / 1_000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((POLL_MS - _MIN_PAUSE_MS) / 1_000):
                    await self._hinted.wait()

    async def _heartbeat(self, address: str) -> None:
        try:
            await self._client.invoke_oneway(address, self._heartbeat_request(), _CALL_MS)
        except RocketPyError as error:
            _log.debug("heartbeat not sent", name_server=address, error=str(error))

    def _heartbeat_request(self) -> RemotingCommand:
        identity = self._identity
        if not self._configs.broker.compatible_with_old_name_srv:
            heartbeat = BrokerHeartbeatRequestHeader(
                cluster_name=identity.cluster_name,
                broker_addr=identity.address,
                broker_name=identity.broker_name,
                broker_id=identity.broker_id,
                heartbeat_timeout_mills=HEARTBEAT_TIMEOUT_MS,
            )
            return make_request(RequestCode.BROKER_HEARTBEAT, heartbeat.to_ext())
        version = DataVersion.from_json(self._topics.data_version)
        query = QueryDataVersionRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        return make_request(RequestCode.QUERY_DATA_VERSION, query.to_ext(), version.encode())

    async def _members_at(self, address: str) -> Members | None:
        identity = self._identity
        if self._configs.broker.compatible_with_old_name_srv:
            topic = sync_broker_member_topic(identity.broker_name)
            route = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
            request = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route.to_ext())
        else:
            group = GetBrokerMemberGroupRequestHeader(
                cluster_name=identity.cluster_name, broker_name=identity.broker_name
            )
            request = make_request(RequestCode.GET_BROKER_MEMBER_GROUP, group.to_ext())
        try:
            response = await self._client.invoke(address, request, _CALL_MS)
            return self._parse(response)
        except RocketPyError as error:
            _log.debug("members not fetched", name_server=address, error=str(error))
            return None

    def _parse(self, response: RemotingCommand) -> Members | None:
        """Return the members in a response; None when it is a refusal.

        Raises:
            BadBodyError: the body is not readable.
        """
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        if response.code != ResponseCode.SUCCESS:
            raise BadBodyError(f"code {response.code}: {response.remark}")
        if not self._configs.broker.compatible_with_old_name_srv:
            group = GetBrokerMemberGroupResponseBody.decode(response.body).broker_member_group
            return {} if group is None else group.broker_addrs
        name = self._identity.broker_name
        brokers = TopicRouteData.decode(response.body).broker_datas
        return next((each.broker_addrs for each in brokers if each.broker_name == name), {})
