"""Processor of GET_BROKER_HA_STATUS (907): replication as operators and slaves see it.

Source: AdminBrokerProcessor.getBrokerHaStatus, HARuntimeInfo (5.4.0).
"""

from collections.abc import Callable
from typing import Final

from rocketpy.broker.replication.ha_client import HaClient
from rocketpy.broker.replication.ha_server import HaServer, RefusedSlave
from rocketpy.broker.replication.replica_connection import ReplicaConnection
from rocketpy.broker.replication.replica_state import State
from rocketpy.broker.replication.store_log import StoreLog
from rocketpy.proto.bodies.stats import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from rocketpy.proto.replication.pair_frames import VERSION, DiskState, Refusal
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel

_MAX_REASON_CHARS: Final = 500
_REFUSED_AS: Final = {
    Refusal.BEHIND_RANGE: State.BEHIND_RANGE,
    Refusal.BEYOND_END: State.BEYOND_END,
    Refusal.DIFFERENT_LOG: State.DIFFERENT_LOG,
    Refusal.OTHER_LOG: State.DIFFERENT_LOG,
}


class HaStatus:
    """Status of a master, or of a slave.

    Args:
        log: the log of this broker.
        server: of a master.
        client: of a slave.
        has_pair_protocol: whether slaves may speak the pair protocol.
        ha_address: returns the address of the HA port, for slaves.
    """

    def __init__(
        self,
        log: StoreLog,
        *,
        server: HaServer | None,
        client: HaClient | None,
        has_pair_protocol: bool,
        ha_address: Callable[[], str] = str,
    ) -> None:
        self._log = log
        self._server = server
        self._client = client
        self._pair_protocol = VERSION if has_pair_protocol else None
        self._ha_address = ha_address

    def process(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer the request."""
        response = make_response(request, 0)
        response.body = self.read().encode()
        return response

    def read(self) -> HARuntimeInfo:
        """Return the status."""
        if self._client is not None:
            found = self._slave(self._client).to_json()
            return HARuntimeInfo(master=False, ha_client_runtime_info=found)
        end = self._log.end_phy_offset
        status = HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            pair_protocol=self._pair_protocol,
            ha_address=self._ha_address() or None if self._server is not None else None,
        )
        if self._server is not None:
            self._add_slaves(status, self._server, end)
        return status

    def _add_slaves(self, status: HARuntimeInfo, server: HaServer, end: int) -> None:
        acknowledgements = server.acknowledgements
        served = [each for each in list(server.connections) if each.stream is not None]
        rows = [self._served(server, each, end) for each in served]
        rows += [_refused(each, end) for each in list(server.refusals.values())]
        status.ha_connection_info = [each.to_json() for each in rows]
        # Apache counts slaves; ours counts the master as well.
        status.in_sync_slave_nums = acknowledgements.in_sync_count - 1
        status.needed_replicas = acknowledgements.needed
        status.confirmed_offset = acknowledgements.confirmed_end
        status.send_refusal = acknowledgements.refusal

    @staticmethod
    def _served(server: HaServer, each: ReplicaConnection, end: int) -> HAConnectionInfo:
        stream = each.stream
        assert stream is not None
        progress = stream.progress
        is_writing = progress.state is DiskState.WRITING
        return HAConnectionInfo(
            addr=each.address,
            slave_ack_offset=progress.confirmed,
            diff=end - progress.confirmed,
            in_sync=server.acknowledgements.is_in_sync(progress),
            transferred_byte_in_second=stream.pace.bytes_per_s,
            transfer_from_where=stream.sent,
            broker_id=each.broker_id,
            state=(State.STREAMING if is_writing else State.STALLED).name,
            protocol=each.protocol and each.protocol.value,
            reason=None if is_writing else f"disk {progress.state.name.lower()}",
        )

    def _slave(self, client: HaClient) -> HAClientInfo:
        link, state = client.link, client.state
        return HAClientInfo(
            master_addr=client.ha_address,
            max_offset=self._log.end_phy_offset,
            last_read_timestamp=0 if link is None else link.read_ms,
            last_write_timestamp=0 if link is None else link.written_ms,
            master_flush_offset=0 if link is None else link.confirmed,
            is_activated=state.is_connected,
            state=state.state.name,
            protocol=None if link is None else link.protocol.value,
            reason=state.reason[:_MAX_REASON_CHARS] or None,
        )


def _refused(each: RefusedSlave, end: int) -> HAConnectionInfo:
    return HAConnectionInfo(
        addr=each.address,
        diff=end,
        broker_id=each.broker_id,
        state=_REFUSED_AS.get(each.refusal.code, State.REFUSED).name,
        protocol=each.protocol and each.protocol.value,
        reason=each.refusal.text[:_MAX_REASON_CHARS],
    )
