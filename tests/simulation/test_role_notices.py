"""Notifications of role changes (1008): of the controller, and of strangers."""

import random

from rocketpy.proto.headers.controller import (
    ElectMasterRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.store.results import PutMessage
from rocketpy.testing.sim_loop import LoopClock
from tests.simulation.group_node import CONTROLLER_HOST, CONTROLLER_PORT, NAME
from tests.simulation.test_failover_scenes import Scene, play


async def call(scene: Scene, address: str, request: RemotingCommand) -> RemotingCommand:
    client = RemotingClient(
        RemotingClientConfig(),
        clock=LoopClock(scene.loop),
        rng=random.Random(1),
        network=scene.network.host("10.0.2.1"),
    )
    try:
        return await client.invoke(address, request, 5_000)
    finally:
        await client.close()


def hand_over() -> RemotingCommand:
    header = NotifyBrokerRoleChangedRequestHeader(rocketpy_hand_over=True)
    return make_request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.to_ext())


def test_hand_over_that_a_stranger_asks_for_stops_no_send() -> None:
    async def course(scene: Scene) -> None:
        master, *_ = await scene.begin()
        for number in range(20):
            answer = await call(scene, master.address, hand_over())
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert await scene.send(master, number) == ResponseCode.SUCCESS
        assert master.is_master

    play(course)


def test_hand_over_that_an_operator_asks_the_controller_for_elects_the_designated_replica() -> None:
    async def course(scene: Scene) -> None:
        master, one, _ = await scene.begin()
        assert master.node is not None
        assert master.node.mastership is not None
        assert one.node is not None
        mastership = master.node.mastership
        await scene.acknowledged(master, 0)
        header = ElectMasterRequestHeader(
            broker_name=NAME, broker_id=one.node.broker_id, designate_elect=True
        )
        request = make_request(RequestCode.CONTROLLER_ELECT_MASTER, header.to_ext())
        answer = await call(scene, f"{CONTROLLER_HOST}:{CONTROLLER_PORT}", request)
        assert answer.code == ResponseCode.SUCCESS
        assert "hands over" in (mastership.send_refusal() or "")
        await scene.until(lambda: one.is_master, "the designated replica")
        await scene.healed()

    play(course)


def test_hand_over_flushes_the_log_so_that_all_progress_is_copied() -> None:
    async def course(scene: Scene) -> None:
        scene.sync = False
        master, *_ = await scene.begin()
        assert master.node is not None
        assert master.node.broker is not None
        store = master.node.broker.parts.store
        await scene.acknowledged(master, 0)
        store.put_message(PutMessage("T", 0, b"delivered"))
        assert store.flushed_phy_offset < store.max_phy_offset
        end = store.max_phy_offset
        assert await master.node.hand_over()
        assert store.flushed_phy_offset >= end

    play(course)
