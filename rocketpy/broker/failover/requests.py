"""Processors of a replica for fail-over: 1007, 1008 (from the controller), and fields of 28.

Source: AdminBrokerProcessor.getBrokerEpochCache, notifyBrokerRoleChanged (5.4.0)
"""

from typing import Protocol

from rocketpy.broker.broker import Broker
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.bodies.controller import (
    RUNTIME_CONTROLLERS,
    RUNTIME_LEASE_MS,
    RUNTIME_MIN_IN_SYNC,
    EpochEntry,
    EpochEntryCache,
)
from rocketpy.proto.headers.controller import NotifyBrokerRoleChangedRequestHeader
from rocketpy.proto.replication.epochs import Epochs
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel


class Node(Protocol):
    """Replica, as its requests see it."""

    broker: Broker | None

    @property
    def broker_id(self) -> int:
        """Id of the replica."""
        ...

    @property
    def epochs(self) -> Epochs:
        """Epoch list of the log."""
        ...

    def check(self) -> None:
        """Ask the controller soon."""
        ...

    async def hand_over_if_asked(self) -> bool:
        """Hand over if the controller itself asks for it, and return whether it did."""
        ...


def add_node_requests(table: RequestTable, node: Node) -> None:
    """Register the requests of a replica."""

    def epoch_cache(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return make_response(request, body=_epochs(node).encode())

    async def role_changed(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = NotifyBrokerRoleChangedRequestHeader.from_ext(request.ext_fields)
        if not header.rocketpy_hand_over:
            # Only a hint, because any client can send it: the node asks the controller.
            node.check()
        elif not await node.hand_over_if_asked():
            return make_response(request, ResponseCode.SYSTEM_ERROR, "no hand-over here")
        return make_response(request)

    # Replaces the refusal of brokers without a controller.
    table.replace([RequestCode.GET_BROKER_EPOCH_CACHE], lambda _refusing: epoch_cache)
    table.add("adminBroker", {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: role_changed})


def runtime_info(config: FailoverConfig, min_in_sync: int, lease_ms: int | None) -> dict[str, str]:
    """Return the fields that a replica adds to the runtime information (28).

    Args:
        config: settings of fail-over.
        min_in_sync: smallest sync-state set with which sends are accepted.
        lease_ms: time until the lease ends; None where there is none.
    """
    info = {
        RUNTIME_CONTROLLERS: ";".join(config.controller_addresses),
        RUNTIME_MIN_IN_SYNC: str(min_in_sync),
    }
    if lease_ms is not None:
        info[RUNTIME_LEASE_MS] = str(lease_ms)
    return info


def _epochs(node: Node) -> EpochEntryCache:
    broker, epochs = node.broker, node.epochs
    cache = EpochEntryCache(broker_id=node.broker_id)
    if broker is not None:
        identity = broker.parts.identity
        cache.cluster_name, cache.broker_name = identity.cluster_name, identity.broker_name
        cache.max_offset = broker.parts.store.max_phy_offset
    for index, each in enumerate(epochs):
        is_last = index + 1 == len(epochs)
        end = cache.max_offset if is_last else epochs[index + 1].start
        cache.epoch_list.append(
            EpochEntry(epoch=each.number, start_offset=each.start, end_offset=end)
        )
    return cache
