"""Notifications of elections to the brokers of a group (1008), and hand-over requests to masters.

Source: ControllerManager.notifyBrokerRoleChanged (5.4.0); the hand-over is ours.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.controller import SyncStateSet
from rocketpy.proto.headers.controller import NotifyBrokerRoleChangedRequestHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.ordered_set import OrderedSet

_logger = structlog.get_logger(__name__)

_TIMEOUT_MS: Final = 3_000
HAND_OVER_TIMEOUT_MS: Final = 2_000
"""Wait for a master to hand over: it waits 1 s for its replicas, and tools wait 5 s for us."""


class RoleNotifier:
    """Sender of notifications, without retries: brokers ask by their heartbeats as well.

    Args:
        make_client: creates the client on first use.
    """

    def __init__(self, make_client: Callable[[], RemotingClient]) -> None:
        self._make_client = make_client
        self._client: RemotingClient | None = None
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def notify(self, group: ReplicaGroup) -> None:
        """Notify every replica of a group of its master, without waiting."""
        for replica in group.replicas.values():
            self._spawn(self._send(replica.address, notice(group)))

    async def ask_hand_over(self, group: ReplicaGroup) -> bool:
        """Ask the master to refuse sends from now on; return whether it does."""
        address = group.master_address
        assert address is not None, "only a group with a master"
        request = notice(group, hand_over=True)
        try:
            response = await self._used_client().invoke(address, request, HAND_OVER_TIMEOUT_MS)
        except RocketPyError as error:
            _logger.warning("hand-over failed", broker=group.name, error=str(error))
            return False
        if response.code != ResponseCode.SUCCESS:
            _logger.warning("hand-over refused", broker=group.name, remark=response.remark)
        return response.code == ResponseCode.SUCCESS

    async def stop(self) -> None:
        """Cancel notifications in flight and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _used_client(self) -> RemotingClient:
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, address: str, request: RemotingCommand) -> None:
        try:
            await self._used_client().invoke_oneway(address, request, _TIMEOUT_MS)
        except RocketPyError as error:
            _logger.warning("notification failed", address=address, error=str(error))


def notice(group: ReplicaGroup, *, hand_over: bool = False) -> RemotingCommand:
    """Build the notification about a group.

    Args:
        group: the group.
        hand_over: ask the master to hand over instead.
    """
    header = NotifyBrokerRoleChangedRequestHeader(
        master_address=group.master_address,
        master_broker_id=group.master_id,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.set_epoch,
        rocketpy_hand_over=hand_over or None,
    )
    body = SyncStateSet(set(group.members), group.set_epoch).encode()
    return make_request(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.to_ext(), body, oneway=not hand_over
    )
