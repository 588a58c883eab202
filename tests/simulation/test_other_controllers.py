"""Groups whose controllers have several states, or an old one."""

import asyncio
from dataclasses import replace

from tests.simulation.group_node import CONTROLLER_PORT, ControllerMachine, GroupNode
from tests.simulation.test_failover_scenes import Scene, play

_OTHER_HOST = "10.0.0.8"


def _with_other_controller(scene: Scene) -> ControllerMachine:
    """Name a second controller, which shares no state with the first one."""
    address = f"{scene.failover.controller_addr};{_OTHER_HOST}:{CONTROLLER_PORT}"
    scene.failover = replace(scene.failover, controller_addr=address)
    return ControllerMachine(scene, _OTHER_HOST)


async def _master(scene: Scene) -> GroupNode:
    await scene.until(lambda: any(each.is_master for each in scene.nodes), "a master")
    return next(each for each in scene.nodes if each.is_master)


def test_replicas_follow_no_second_controller_with_another_state() -> None:
    """A replica that starts while the first one is away would get another group."""

    async def course(scene: Scene) -> None:
        one, two, late = scene.nodes
        await scene.controller.start()
        for each in (one, two):
            await each.start()
        await scene.in_set(await _master(scene), 2)
        other = _with_other_controller(scene)
        await other.start()
        for each in (one, two):
            await each.stop()
            await each.start()
        scene.controller.kill()
        await late.start()
        await asyncio.sleep(20.0)
        assert not any(each.is_master for each in scene.nodes)
        for each in (one, two, late):
            assert each.node is not None
            assert [found.code for found in each.node.not_ready()] == ["other_controller"]
        assert late.node is not None
        assert late.node.broker_id == 0
        await scene.controller.start()
        await scene.in_set(await _master(scene), 2)
        assert not late.is_master
        other.kill()
        scene.failover = replace(
            scene.failover, controller_addr=scene.failover.controller_addr.split(";", 1)[0]
        )
        await late.stop()
        await late.start()
        await scene.healed()

    play(course)
