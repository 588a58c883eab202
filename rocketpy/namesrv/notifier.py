"""Notifies the brokers of a set of changes of its lowest id (905), if configured.

Source: RouteInfoManager.notifyMinBrokerIdChanged (5.4.0)
"""

import asyncio
from collections.abc import Callable

import structlog

from rocketpy.errors import RocketPyError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.route_types import MinBrokerChange
from rocketpy.proto.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.ordered_set import OrderedSet

_logger = structlog.get_logger(__name__)

_TIMEOUT_MS = 3_000


class MinBrokerNotifier:
    """Sender of the notifications, without retries.

    Args:
        settings: the current settings; off by default.
        make_client: creates the client on first use.
    """

    def __init__(
        self, settings: LiveConfig[NamesrvConfig], make_client: Callable[[], RemotingClient]
    ) -> None:
        self._settings = settings
        self._make_client = make_client
        self._client: RemotingClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def start(self) -> None:
        """Use the running loop for notifications."""
        self._loop = asyncio.get_running_loop()

    def notify(self, change: MinBrokerChange) -> None:
        """Send the notifications if enabled, without waiting; on any thread."""
        if self._loop is not None and self._settings.current.notify_min_broker_id_changed:
            self._loop.call_soon_threadsafe(self._start_sending, change)

    async def stop(self) -> None:
        """Cancel notifications in flight and close the connections."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _start_sending(self, change: MinBrokerChange) -> None:
        if self._client is None:
            self._client = self._make_client()
        for address in receivers(change):
            task = asyncio.ensure_future(self._send(self._client, address, notice(change)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, client: RemotingClient, address: str, request: RemotingCommand) -> None:
        try:
            await client.invoke_oneway(address, request, _TIMEOUT_MS)
        except RocketPyError as error:
            _logger.warning("notification failed", broker=address, reason=str(error))


def receivers(change: MinBrokerChange) -> list[str]:
    """Return the receivers: all after a broker left, else all but the new lowest id."""
    lowest = min(change.members)
    everyone = change.offline_address is not None or len(change.members) == 1
    return [address for number, address in change.members.items() if everyone or number != lowest]


def notice(change: MinBrokerChange) -> RemotingCommand:
    """Build the notification."""
    lowest = min(change.members)
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=lowest,
        broker_name=change.broker_name,
        min_broker_addr=change.members[lowest],
        offline_broker_addr=change.offline_address,
        ha_broker_addr=change.ha_address,
    )
    return make_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.to_ext(), oneway=True)
