"""Groups whose controllers have several states, or an old one."""

import asyncio
from dataclasses import replace
from pathlib import Path

from rocketpy.controller.elections import ElectionRequest
from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.controller.rules import Verdict
from tests.simulation.group_node import CONTROLLER_PORT, ControllerMachine, GroupNode
from tests.simulation.test_failover_scenes import Scene, elect_often, play

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


async def _restore_older_state(scene: Scene, *, is_slave_lost: bool = False) -> GroupNode:
    """Restore the controller from a backup of three elections ago; return the present master.

    Args:
        scene: the scene, with a group that has healed.
        is_slave_lost: whether a slave of the set ends as well.
    """
    log = Path("/controller/controller.log")
    backup = scene.controller.files.read_bytes(log)
    await elect_often(scene, 3)
    master = await _master(scene)
    scene.controller.kill()
    if is_slave_lost:
        next(each for each in scene.nodes if each is not master).kill()
    scene.controller.files.write_bytes(log, backup)
    await scene.controller.start()
    return master


def _group(scene: Scene) -> ReplicaGroup:
    controller = scene.controller.controller
    assert controller is not None
    (group,) = controller._context.groups
    return group


async def _elect(scene: Scene, node: GroupNode) -> Verdict:
    """Elect a replica, as an operator does."""
    controller = scene.controller.controller
    assert controller is not None
    assert node.node is not None
    store, decisions = controller._context.store, controller._context.decisions
    asked = ElectionRequest(designated=node.node.broker_id)
    return await store.change(
        lambda: decisions.answer(_group(scene), asked, scene.controller.clock.monotonic_ms())
    )


async def _all_follow(scene: Scene, epoch: int) -> None:
    await scene.until(
        lambda: all(each.node and each.node.master.epoch == epoch for each in scene.nodes),
        "all know the elected master",
    )


def test_controller_that_is_restored_from_a_backup_elects_the_present_master_again() -> None:
    async def course(scene: Scene) -> None:
        await scene.begin()
        master = await _restore_older_state(scene)
        assert master.node is not None
        before = master.node.master.epoch
        await scene.until(lambda: _group(scene).master_epoch > before, "an election")
        assert _group(scene).master_id == master.node.broker_id
        await _all_follow(scene, _group(scene).master_epoch)
        await scene.healed()
        await elect_often(scene, 2)

    play(course)


def test_restored_controller_elects_no_replica_while_one_of_the_present_set_is_away() -> None:
    """It may have been elected after the present master; an operator knows."""

    async def course(scene: Scene) -> None:
        await scene.begin()
        master = await _restore_older_state(scene, is_slave_lost=True)
        await asyncio.sleep(30.0)
        assert master.node is not None
        assert _group(scene).master_epoch < master.node.master.epoch
        assert master.is_master
        assert (await _elect(scene, master)).is_accepted
        for each in scene.nodes:
            if not each.is_running:
                await each.start()
        await _all_follow(scene, _group(scene).master_epoch)
        await scene.healed()
        await elect_often(scene, 2)

    play(course)


def test_restored_controller_elects_no_member_of_its_old_set_when_the_master_is_lost() -> None:
    """The backup is of the same epoch; that member lacks what was acknowledged since."""

    async def course(scene: Scene) -> None:
        master, one, two = await scene.begin()
        log = Path("/controller/controller.log")
        backup = scene.controller.files.read_bytes(log)
        await two.stop()
        await scene.in_set(master, 2)
        await scene.acknowledged(master, 7)
        await asyncio.sleep(2.0)
        scene.controller.kill()
        scene.controller.files.write_bytes(log, backup)
        master.kill()
        await scene.controller.start()
        await two.start()
        await asyncio.sleep(30.0)
        assert not any(each.is_master for each in scene.nodes)
        await master.start()
        await asyncio.sleep(5.0)
        assert "elect that one" in (await _elect(scene, two)).remark
        assert (await _elect(scene, one)).is_accepted
        await scene.healed()
        assert [scene.numbers(each) for each in scene.nodes] == [[7], [7], [7]]

    play(course)
