"""Processor of EXCHANGE_BROKER_HA_INFO (906) at a slave, which hands over to its returned master.

The response is sent when the services that deliver due messages have ended, so that the progress
which the master fetches next is complete.

Source: AdminBrokerProcessor.exchangeBrokerHaInfo (5.4.0).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rocketpy.broker.acting.acting_parts import ActingMaster
from rocketpy.broker.acting.gate import GatedService
from rocketpy.broker.cluster.master_address import MasterAddress
from rocketpy.proto.headers.admin import ExchangeHAInfoRequestHeader
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Response

_CHECKS: Final = 80
_CHECK_S: Final = 0.05


class HandOver:
    """Processor of the request.

    Args:
        acting: state of this slave.
        master: address of the master.
        gates: services that have to end.
        call_master: connects to the master's HA port at once.
    """

    def __init__(
        self,
        acting: ActingMaster,
        master: MasterAddress,
        gates: Sequence[GatedService],
        *,
        call_master: Callable[[], None],
    ) -> None:
        self._acting = acting
        self._master = master
        self._gates = gates
        self._call_master = call_master

    def process(self, _channel: Channel, request: RemotingCommand) -> Response:
        """Answer the request."""
        return self._process(request)

    async def _process(self, request: RemotingCommand) -> RemotingCommand:
        header = ExchangeHAInfoRequestHeader.from_ext(request.ext_fields)
        if not header.master_ha_address:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "this broker is not a master")
        self._acting.master_asks()
        self._master.registered(header.master_address, header.master_ha_address)
        self._call_master()
        for _ in range(_CHECKS):
            # A running step holds the lock of its gate, at most for one escaping message.
            if all(await asyncio.gather(*map(_is_idle, self._gates))):
                return make_response(request)
            await asyncio.sleep(_CHECK_S)
        return make_response(
            request, ResponseCode.SYSTEM_BUSY, "due messages are still delivered: try again"
        )


async def _is_idle(gate: GatedService) -> bool:
    return await asyncio.to_thread(lambda: gate.is_idle)
