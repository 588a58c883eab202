"""Calls of a replica to its controller."""

import asyncio
from typing import cast

import pytest

from rocketpy.broker.failover.controller_client import ControllerClient
from rocketpy.errors import BrokerError
from rocketpy.proto.bodies.controller import (
    BrokerReplicasInfo,
    ReplicaIdentity,
    ReplicasInfo,
)
from rocketpy.proto.headers.controller import GetMetaDataResponseHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.client import RemotingClient


class FakeRemoting:
    """Controller that leads, and answers a request for a set with one code."""

    def __init__(self, code: ResponseCode, body: bytes = b"") -> None:
        self._code = code
        self._body = body

    async def invoke(self, _address: str, request: RemotingCommand, _ms: int) -> RemotingCommand:
        if request.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            header = GetMetaDataResponseHeader(is_leader=True)
            return make_response(request, ext_fields=header.to_ext())
        return make_response(request, self._code, "no", body=self._body)


def client(code: ResponseCode, body: bytes = b"") -> ControllerClient:
    remoting = cast("RemotingClient", FakeRemoting(code, body))
    return ControllerClient(remoting, ["c:1"], cluster="c", name="b")


def test_set_that_a_rule_refuses_is_known_not_to_be_stored() -> None:
    code = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    assert asyncio.run(client(code).alter(1, 4, frozenset({1, 2}), 5)) is None


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE], ids=str
)
def test_set_may_be_stored_after_an_error_of_the_controller(code: ResponseCode) -> None:
    # A write of the controller may have failed after the set was stored: it is waited for.
    with pytest.raises(BrokerError):
        asyncio.run(client(code).alter(1, 4, frozenset({1, 2}), 5))


def test_ids_of_a_group_are_those_in_the_set_and_outside_it() -> None:
    group = ReplicasInfo(
        in_sync_replicas=[ReplicaIdentity("b", 1)], not_in_sync_replicas=[ReplicaIdentity("b", 3)]
    )
    other = ReplicasInfo(in_sync_replicas=[ReplicaIdentity("x", 7)])
    body = BrokerReplicasInfo({"b": group, "x": other}).encode()
    assert asyncio.run(client(ResponseCode.SUCCESS, body).replica_ids()) == {1, 3}
    nothing = BrokerReplicasInfo().encode()
    assert asyncio.run(client(ResponseCode.SUCCESS, nothing).replica_ids()) == frozenset()
