"""Faults of a broker reach open connections only."""

import asyncio
import socket
from typing import Any, cast

import pytest

from rocketpy.testing.faults import FaultyNetwork, Gate


class FakeTransport:
    """Transport over a real socket, so that a late use of a closed descriptor fails."""

    def __init__(self) -> None:
        self.sock = socket.socket()
        self.aborts = 0

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self.sock

    def abort(self) -> None:
        self.aborts += 1


@pytest.mark.parametrize("is_closed_first", [True, False])
async def test_refuse_of_a_frozen_connection_that_closes_meanwhile_does_nothing(
    *, is_closed_first: bool
) -> None:
    failures: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    faults = FaultyNetwork()
    gates = [Gate(faults, asyncio.Protocol()) for _ in range(2)]
    transports = [FakeTransport() for _ in gates]
    for gate, transport in zip(gates, transports, strict=True):
        gate.connection_made(cast("asyncio.Transport", transport))
    faults.freeze(frozen=True)
    gates[0].eof_received()

    def close() -> None:
        gates[0].connection_lost(None)
        transports[0].sock.close()

    if is_closed_first:
        close()
    faults.refuse(refused=True)
    if not is_closed_first:  # before the reset that `refuse` has scheduled
        close()
    await asyncio.sleep(0)
    assert not failures
    assert [transport.aborts for transport in transports] == [0, 1]
    transports[1].sock.close()
