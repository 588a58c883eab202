"""Single scenes of a group with a controller that its seeds reach too seldom."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy.broker.delay.delivery import DelayDelivery
from rocketpy.errors import RocketPyError
from rocketpy.proto.headers.send import SendMessageRequestHeader
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.logs import through_logging
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.results import GetMessageStatus
from rocketpy.testing.sim_loop import LoopClock, SimLoop
from tests.simulation.group_node import ROOT, GroupNode
from tests.simulation.group_world import TOPIC, GroupWorld

_NO_ANSWER = -1
_CALL_MS = 4_000
_WAIT_S = 100.0


class Scene(GroupWorld):
    """Group without random faults."""

    async def begin(self) -> tuple[GroupNode, GroupNode, GroupNode]:
        """Start everything; return the master and the others."""
        await self.controller.start()
        for each in self.nodes:
            await each.start()
        await self._until_healed()
        master = self._master
        one, two = (each for each in self.nodes if each is not master)
        return master, one, two

    async def healed(self) -> None:
        await self._until_healed()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        ends_s = self.loop.time() + _WAIT_S
        while not condition():
            assert self.loop.time() < ends_s, what
            await asyncio.sleep(0.05)

    async def in_set(self, node: GroupNode, count: int) -> None:
        """Wait until a replica is the master of a set of this size."""
        await self.until(lambda: len(self.members(node)) == count, f"a set of {count}")

    def members(self, node: GroupNode) -> frozenset[int]:
        mastership = node.node.mastership if node.is_master and node.node else None
        return frozenset() if mastership is None else mastership.members

    def isolate(self, node: GroupNode) -> None:
        """Part a replica from all but the first sender."""
        alone = [node.host.name, "10.0.1.1"]
        self.network.partition(alone, [each for each in self._hosts if each not in alone])

    async def send(self, node: GroupNode, number: int, *, level: int = 0, sender: int = 1) -> int:
        """Send a message, and return the response code."""
        client = RemotingClient(
            RemotingClientConfig(),
            clock=LoopClock(self.loop),
            rng=random.Random(1),
            network=self.network.host(f"10.0.1.{sender}"),
        )
        header = SendMessageRequestHeader(
            producer_group="p", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=1,
            queue_id=0, sys_flag=0, born_timestamp=1, flag=0,
            properties=f"DELAY\x01{level}\x02" if level else "",
        )  # fmt: skip
        request = make_request(RequestCode.SEND_MESSAGE, header.to_ext(), b"%d" % number)
        try:
            return (await client.invoke(node.address, request, _CALL_MS)).code
        except RocketPyError:
            return _NO_ANSWER
        finally:
            await client.close()

    async def acknowledged(self, node: GroupNode, number: int, *, level: int = 0) -> None:
        """Send a message until it is acknowledged."""
        ends_s = self.loop.time() + _WAIT_S
        while await self.send(node, number, level=level, sender=2) != ResponseCode.SUCCESS:
            assert self.loop.time() < ends_s, "no message is acknowledged"
            await asyncio.sleep(0.1)

    @staticmethod
    def numbers(node: GroupNode) -> list[int]:
        """Return the messages that consumers of a replica see."""
        store, offset, numbers = node.store, 0, list[int]()
        assert store is not None
        while True:
            result = store.get_message(TOPIC, 0, offset, 32, 1 << 20)
            if result.status is not GetMessageStatus.FOUND:
                return numbers
            numbers += [int(decode_message(bytes(each)).body) for each in result.buffers]
            offset = result.next_begin_offset


def play(course: Callable[[Scene], Awaitable[None]], seed: int = 2) -> None:
    """Run a scene."""
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> None:
        scene = Scene(loop, seed)
        async with asyncio.timeout(24 * 3_600.0):
            await course(scene)

    with through_logging():
        try:
            loop.run_until_complete(main())
        finally:
            loop.end_tasks()
            loop.close()


def _paths(files: StoreFiles, directory: Path) -> list[Path]:
    paths = [directory / each for each in files.list_files(directory)]
    for each in files.list_directories(directory):
        paths += _paths(files, directory / each)
    return paths


_EPOCHS = ("epochFileCheckpoint", "epochFileCheckpoint.bak")


async def _start_with_new_controller(scene: Scene, *lost: str) -> None:
    """Start the group with an empty controller, and without some files of each replica."""
    controller = scene.controller
    for each in scene.nodes:
        await each.stop()
        for name in ("brokerIdentity", *lost):
            each.files.remove(ROOT / name)
    controller.kill()
    controller.files.remove(Path("/controller/controller.log"))
    await controller.start()
    for each in scene.nodes:
        await each.start()
    await scene.healed()


def test_first_master_of_an_old_log_that_is_replaced_at_once_joins_again() -> None:
    async def course(scene: Scene) -> None:
        master, *_ = await scene.begin()
        await scene.acknowledged(master, 0)
        await _start_with_new_controller(scene, *_EPOCHS)
        first = next(each for each in scene.nodes if each.is_master)
        scene.isolate(first)
        assert await scene.send(first, 1) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        others = [each for each in scene.nodes if each is not first]
        await scene.until(lambda: any(each.is_master for each in others), "another master")
        scene.network.heal()
        await scene.healed()
        assert [scene.numbers(each) for each in scene.nodes] == [[0], [0], [0]]

    play(course)


def test_first_master_whose_messages_no_replica_has_joins_again() -> None:
    """It is cut off before any other replica has a message."""

    async def course(scene: Scene) -> None:
        master, *others = await scene.begin()
        scene.isolate(master)
        assert await scene.send(master, 0) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await scene.until(lambda: any(each.is_master for each in others), "another master")
        elected = next(each for each in others if each.is_master)
        await scene.acknowledged(elected, 1)
        scene.network.heal()
        await scene.healed()
        assert [scene.numbers(each) for each in scene.nodes] == [[1], [1], [1]]

    play(course)


async def elect_often(scene: Scene, count: int) -> None:
    """Stop the master and start it again, some times."""
    for _ in range(count):
        master = next(each for each in scene.nodes if each.is_master)
        await scene.acknowledged(master, scene.loop.rng.randrange(100))
        await master.stop()
        await scene.until(lambda: any(each.is_master for each in scene.nodes), "a master")
        await master.start()
        await scene.healed()


def test_slave_keeps_its_broker_when_another_master_is_elected() -> None:
    async def course(scene: Scene) -> None:
        await scene.begin()
        for number in range(4):
            master = next(each for each in scene.nodes if each.is_master)
            await scene.acknowledged(master, number)
            running = {each: each.node.broker for each in scene.nodes if each.node is not None}
            await master.stop()
            await scene.until(lambda: any(each.is_master for each in scene.nodes), "a master")
            await scene.acknowledged(next(each for each in scene.nodes if each.is_master), number)
            [slave] = [each for each in scene.nodes if each is not master and not each.is_master]
            assert slave.node is not None
            assert slave.node.broker is running[slave]
            await master.start()
            await scene.healed()
        numbers = [scene.numbers(each) for each in scene.nodes]
        assert numbers[0] == numbers[1] == numbers[2]

    play(course)


def test_live_changes_of_settings_last_over_changes_of_the_role() -> None:
    async def course(scene: Scene) -> None:
        for each in scene.nodes:
            each.config = replace(each.config, min_in_sync_replicas=1)
        master, one, two = await scene.begin()
        await scene.in_set(master, 3)
        for each in scene.nodes:
            assert each.node
            assert each.node.broker
            each.node.broker.parts.configs.update({"minInSyncReplicas": "3"})
        await scene.acknowledged(master, 0)
        two.kill()
        await scene.in_set(master, 2)
        assert await scene.send(master, 1) != ResponseCode.SUCCESS
        await two.start()
        await scene.acknowledged(master, 2)
        await master.stop()
        await scene.until(lambda: one.is_master or two.is_master, "no other master")
        other = one if one.is_master else two
        await scene.in_set(other, 2)
        if other is one:  # the other one has started again since
            assert await scene.send(other, 3) != ResponseCode.SUCCESS

    play(course)


@pytest.mark.parametrize("cut_s", [5.0, 12.0])
def test_controller_that_was_cut_off_from_all_replicas_keeps_the_master(cut_s: float) -> None:
    async def course(scene: Scene) -> None:
        scene.failover = replace(scene.failover, controller_heart_beat_timeout_mills=10_000)
        master, _, _ = await scene.begin()
        mastership = master.node and master.node.mastership
        alone = scene.controller.host.name
        for _ in range(5):
            scene.network.partition([alone], [each for each in scene._hosts if each != alone])
            await asyncio.sleep(cut_s)
            scene.network.heal()
            await asyncio.sleep(20.0)
            await scene.healed()
        assert master.node
        assert master.node.mastership is mastership, "the same role in the same epoch"

    # Without leases: a master with one acknowledges nothing after 10 s.
    play(course, 5)


def test_group_whose_controller_lost_its_state_joins_a_new_one() -> None:
    """Its epochs begin again, and those of the logs do not."""

    async def course(scene: Scene) -> None:
        await scene.begin()
        await elect_often(scene, 3)
        before = [scene.numbers(each) for each in scene.nodes]
        await _start_with_new_controller(scene)
        assert [scene.numbers(each) for each in scene.nodes] == before
        await elect_often(scene, 1)

    play(course)


def test_new_replica_with_a_full_disk_uses_up_one_id_only() -> None:
    """A group has a bounded number of ids in use, and a replica tries again each second."""

    async def course(scene: Scene) -> None:
        await scene.controller.start()
        late, *others = scene.nodes
        for each in others:
            await each.start()
        await late.start()
        late.files.capacity_bytes = 0
        await asyncio.sleep(80.0)
        assert late.node is not None
        assert late.node.broker_id == 0
        late.files.capacity_bytes = None
        await scene.healed()
        assert sorted(each.node.broker_id for each in scene.nodes if each.node) == [1, 2, 3]

    play(course)


def test_replica_with_a_full_disk_is_not_elected() -> None:
    """It could not store the epoch, and the group would have no master until there is room."""

    async def course(scene: Scene) -> None:
        master, one, two = await scene.begin()
        await scene.acknowledged(master, 0)
        await scene.healed()
        assert one.node is not None
        assert two.node is not None
        full, other = (one, two) if one.node.broker_id < two.node.broker_id else (two, one)
        full.files.capacity_bytes = full.files.used_bytes
        await scene.in_set(master, 2)
        master.kill()
        await scene.until(lambda: other.is_master, "a master")
        full.files.capacity_bytes = None
        await master.start()
        await scene.healed()

    play(course)


def test_master_whose_disk_fails_is_replaced_and_joins_again() -> None:
    async def course(scene: Scene) -> None:
        master, one, two = await scene.begin()
        await scene.in_set(master, 3)
        await scene.acknowledged(master, 0)
        master.files.fail_flushes("commitlog")
        assert await scene.send(master, 1) != ResponseCode.SUCCESS
        await scene.until(lambda: one.is_master or two.is_master, "no other master")
        other = one if one.is_master else two
        await scene.acknowledged(other, 2)
        master.files.on_flush = None
        await scene.in_set(other, 3)
        assert [each for each in scene.numbers(other) if each != 1] == [0, 2]

    play(course)


def test_master_whose_disk_fails_alone_is_replaced_by_the_next_that_joins() -> None:
    async def course(scene: Scene) -> None:
        master, one, two = await scene.begin()
        await scene.in_set(master, 3)
        await scene.acknowledged(master, 0)
        one.kill()
        two.kill()
        master.files.fail_flushes("commitlog")
        await scene.send(master, 1)
        await scene.until(lambda: bool(master.store and master.store.has_failed), "no failure")
        await scene.in_set(master, 1)
        await asyncio.sleep(5)
        assert master.is_master
        await one.start()
        await scene.until(lambda: one.is_master, "no other master")
        master.files.on_flush = None
        await scene.acknowledged(one, 2)
        assert [each for each in scene.numbers(one) if each != 1] == [0, 2]

    play(course)


def test_copy_of_a_replica_does_not_take_its_place() -> None:
    """A machine was cloned: what the copy lacks would be lost with the master."""

    async def course(scene: Scene) -> None:
        master, replica, third = await scene.begin()
        await third.stop()
        await scene.in_set(master, 2)
        await replica.stop()
        copy = GroupNode(scene, 9)
        for path in _paths(replica.files, ROOT):
            copy.files.make_directories(path.parent)
            copy.files.write_bytes(path, replica.files.read_bytes(path))
        await replica.start()
        await scene.until(lambda: replica.is_settled, "the replica runs")
        await scene.acknowledged(master, 0)
        await scene.in_set(master, 2)
        await copy.start()
        await asyncio.sleep(5.0)
        await scene.acknowledged(master, 1)
        master.kill()
        await scene.until(lambda: replica.is_master, "the replica is elected")
        await asyncio.sleep(5.0)
        assert not copy.is_master
        assert scene.numbers(replica) == [0, 1]

    play(course)


def test_delayed_message_whose_delivery_was_cut_is_delivered_by_the_same_replica_again() -> None:
    """The isolated master delivers; the next one does not get to it before it is lost."""

    async def course(scene: Scene) -> None:
        master, other, third = await scene.begin()
        await scene.acknowledged(master, 0)
        await third.stop()
        await scene.in_set(master, 2)
        await scene.acknowledged(master, 1, level=3)
        await asyncio.sleep(9.0)
        scene.isolate(master)
        await scene.until(lambda: other.is_master, "another master")
        assert other.node is not None
        assert other.node.broker is not None
        features = other.node.broker.parts.features
        delivery = next(each for each in features if each.name == "delay").loop_services[0]
        assert isinstance(delivery, DelayDelivery)
        delivery._levels = ()  # it has much to do
        scene.network.heal()
        await scene.in_set(other, 2)
        other.kill()
        await scene.until(lambda: master.is_master, "the first master again")
        await scene.until(lambda: scene.numbers(master) == [0, 1], "message 1 is delivered")

    play(course)


async def _begin_unclean(scene: Scene, *nodes: GroupNode) -> GroupNode:
    """Start some replicas, with elections outside the set; return the master of all of them."""
    for each in scene.nodes:
        each.config = replace(each.config, min_in_sync_replicas=1)
    await scene.controller.start()
    assert scene.controller.controller
    scene.controller.controller.settings.update({"enableElectUncleanMaster": "true"})
    for each in nodes:
        await each.start()
    await scene.until(lambda: any(len(scene.members(each)) == len(nodes) for each in nodes), "set")
    return next(each for each in nodes if each.is_master)


def test_unclean_election_prefers_an_old_log_to_an_empty_one_with_the_newest_epoch_list() -> None:
    """The list of the master arrives before its log."""

    async def course(scene: Scene) -> None:
        empty = scene.nodes[2]
        master = await _begin_unclean(scene, *scene.nodes[:2])
        [old] = [each for each in scene.nodes[:2] if each is not master]
        for number in range(5):
            await scene.acknowledged(master, number)
        old.kill()
        await scene.in_set(master, 1)
        await master.stop()
        await master.start()
        await scene.acknowledged(master, 5)
        empty.host.read_bytes_per_s = 300
        started = asyncio.ensure_future(empty.start())
        await scene.until(lambda: bool(empty.node and empty.node.epochs), "the list")
        master.kill()
        empty.host.read_bytes_per_s = None
        await started
        await old.start()
        await scene.until(lambda: old.is_master or empty.is_master, "another master")
        assert scene.numbers(old) == [0, 1, 2, 3, 4]

    play(course)


def test_unclean_election_prefers_a_longer_log_to_one_that_was_cut_without_its_epoch_list() -> None:
    """The process ended between the cut of the log and that of the list."""

    async def course(scene: Scene) -> None:
        longest = await _begin_unclean(scene, *scene.nodes)
        damaged, other = (each for each in scene.nodes if each is not longest)
        await scene.acknowledged(longest, 0)
        damaged.kill()
        other.kill()
        await scene.in_set(longest, 1)
        await scene.acknowledged(longest, 1)
        longest.kill()
        await damaged.start()
        await scene.acknowledged(damaged, 2)
        damaged.kill()
        await other.start()
        await scene.acknowledged(other, 3)

        def end_at_the_list(operation: str, path: Path) -> None:
            if operation == "change" and path.name.startswith("epochFile"):
                damaged.files.end_process_after(0, damaged.kill)

        damaged.files.on_operation = end_at_the_list
        await damaged.start()
        await scene.until(lambda: not damaged.is_running, "the cut")
        damaged.files.on_operation = None
        other.kill()
        await longest.start()
        await damaged.start()
        await scene.until(lambda: longest.is_master or damaged.is_master, "another master")
        assert scene.numbers(longest) == [0, 1]

    play(course)
