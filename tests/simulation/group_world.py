"""Simulation of a broker group with a controller: three replicas, senders, and faults of all.

Real controller, real replicas with real brokers and stores run on simulated disks and a simulated
network, with clocks of different rates. Each sender puts numbered messages into its own queue, one
after the other, at any replica that takes them. Machines are killed, stopped, lose power (also in
the middle of a file operation), are parted in any combination, slow, or full, and their wall clocks
are set. Then everything is mended, the group has to heal, and the replicas are judged.

The promises, each with the words of the failure:

- "is lost", "has moved", "comes twice", "is invented", "order": what was answered SEND_OK is on
  all replicas at its offset, once, and in the order of its sender;
- "differs": the logs of the replicas are equal byte by byte;
- "two masters": an epoch has one master; with `allAckInSyncStateSet=false`, at most one replica may
  acknowledge at a time;
- "does not heal": all replicas are in the set again, and have the whole log.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.failover.mastership import Mastership
from rocketpy.broker.replication.acknowledgements import Acknowledgements
from rocketpy.errors import RocketPyError
from rocketpy.proto.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.logs import through_logging
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import GetMessageStatus
from rocketpy.testing.sim_loop import LoopClock, SimLoop
from rocketpy.testing.sim_network import SimNetwork
from tests.simulation.group_node import (
    CONTROLLER_HOST,
    CONTROLLER_PORT,
    ControllerMachine,
    GroupNode,
    Machine,
    replication_config,
)

TOPIC: Final = "t"
SENDERS: Final = 2
REPLICAS: Final = 3
TROUBLE_S: Final = 60.0
MENDED_S: Final = 300.0
_CALL_MS: Final = 4_000


@dataclass
class GroupHistory:
    """Sends of one seed.

    Attributes:
        sent: number of messages that each sender began to send.
        acknowledged: queue offset of each acknowledged message, by sender and number.
    """

    sent: Counter[int] = field(default_factory=Counter)
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)

    def check(self, store: MessageStore, name: str) -> None:
        """Judge the queues of one replica."""
        for sender in range(SENDERS):
            numbers = _numbers(store, sender)
            last = -1
            for number in numbers:
                assert number < self.sent[sender], f"{name}: message {number} is invented"
                if (sender, number) in self.acknowledged:
                    assert number > last, f"{name}: order: {number} after {last}"
                    last = number
            assert len(set(numbers)) == len(numbers), f"{name}: a message comes twice"
            places = {number: offset for offset, number in enumerate(numbers)}
            for (who, number), offset in self.acknowledged.items():
                if who == sender:
                    where = places.get(number)
                    assert where is not None, f"{name}: acknowledged {number} is lost"
                    assert where == offset, f"{name}: {number} has moved from {offset} to {where}"


def _numbers(store: MessageStore, queue_id: int) -> list[int]:
    numbers: list[int] = []
    offset = 0
    while True:
        result = store.get_message(TOPIC, queue_id, offset, 32, 1 << 20)
        if result.status is not GetMessageStatus.FOUND:
            return numbers
        for record in result.buffers:
            message = decode_message(bytes(record), check_crc=True)
            assert message.queue_offset == len(numbers), "a hole in a queue"
            sender, number = map(int, message.body.split(b":")[:2])
            assert sender == queue_id, "a message of another queue"
            numbers.append(number)
        offset = result.next_begin_offset


class GroupWorld:
    """Simulated run of one seed.

    Attributes:
        needs_all: `allAckInSyncStateSet`.
        counts: how often each thing happened.
    """

    def __init__(self, loop: SimLoop, seed: int, unproven: int = 0) -> None:
        self.loop = loop
        self.unproven = unproven
        self.rng: random.Random = loop.rng
        self.network = SimNetwork(loop)
        self.sync = seed % 2 == 0
        self.needs_all = seed % 5 != 4
        self.file_bytes = self.rng.choice([8_192, 65_536])
        self.failover = FailoverConfig(
            enable_controller_mode=True,
            controller_addr=f"{CONTROLLER_HOST}:{CONTROLLER_PORT}",
            all_ack_in_sync_state_set=self.needs_all,
            ha_max_time_slave_not_catchup=self.rng.choice([1_000, 3_000, 15_000]),
            controller_heart_beat_timeout_mills=self.rng.choice([3_000, 10_000]),
        )
        self.replication = replication_config(
            self.rng.choice([1_000, 3_000]),
            min_in_sync=self.rng.choice([1, 2]) if self.needs_all else 1,
            copies=2 if self.needs_all else 1,
        )
        self.history = GroupHistory()
        self.counts: Counter[str] = Counter()
        self.controller = ControllerMachine(self)
        self.nodes = [GroupNode(self, number) for number in range(1, 1 + REPLICAS)]
        self._masters: dict[int, str] = {}
        self._checked: set[Acknowledgements] = set()
        self._shown: dict[tuple[int, int], bytes] = {}
        self._ends_s = 0.0
        self._broken: list[AssertionError] = []

    @property
    def machines(self) -> list[Machine]:
        return [self.controller, *self.nodes]

    # -- course ------------------------------------------------------------------------------

    async def run(self) -> None:
        await self.controller.start()
        for node in self.nodes:
            await node.start()
        watch = asyncio.ensure_future(self._watch())
        await self._until_healed()
        self._ends_s = self.loop.time() + TROUBLE_S
        senders = [asyncio.ensure_future(self._send(each)) for each in range(SENDERS)]
        await self._make_trouble()
        await self._mend()
        await self._until_healed()
        await asyncio.gather(*senders)
        await self._until_healed()
        watch.cancel()
        if self._broken:
            raise self._broken[0]
        self._judge()

    async def _watch(self) -> None:
        """Look for two masters, often and at no fixed times."""
        while not self._broken:
            await asyncio.sleep(self.rng.uniform(0.001, 0.05))
            try:
                self._check_masters()
                self._check_shown(self.rng.choice(self.nodes))
            except AssertionError as error:
                self._broken.append(error)

    def _check_masters(self) -> None:
        acting = []
        for each in self.nodes:
            mastership = each.node.mastership if each.is_master and each.node else None
            if mastership is None:
                continue
            epoch = mastership.master.epoch
            other = self._masters.setdefault(epoch, each.name)
            assert other == each.name, f"two masters of epoch {epoch}: {other}, {each.name}"
            if not self.needs_all and mastership.may_acknowledge():
                acting.append(each.name)
            self._check_minimum(each, mastership)
        assert len(acting) < 2, f"two masters may acknowledge: {acting}"

    def _check_shown(self, node: GroupNode) -> None:
        """Compare the last messages that a replica shows with those that others have shown."""
        store = node.store
        if store is None or not self.needs_all or not node.is_settled:
            return
        for queue in range(SENDERS):
            end = store.max_offset(TOPIC, queue)
            for offset in range(max(store.min_offset(TOPIC, queue), end - 3), end):
                result = store.get_message(TOPIC, queue, offset, 1, 1 << 20)
                if result.status is not GetMessageStatus.FOUND:
                    continue
                body = decode_message(bytes(result.buffers[0])).body
                before = self._shown.setdefault((queue, offset), body)
                assert body == before, f"{node.name}: another message at {queue}, {offset}"

    def _check_minimum(self, node: GroupNode, mastership: Mastership) -> None:
        """A master whose stored set has too few members must confirm nothing."""
        running = node.node and node.node.broker
        server = running and running.parts.replication.server
        if not self.needs_all or not server or server.acknowledgements in self._checked:
            return
        acknowledgements = server.acknowledgements
        self._checked.add(acknowledgements)
        update = acknowledgements._update

        def checked() -> None:
            before = acknowledgements.confirmed_end
            update()
            members = mastership.members
            if len(members) < self.replication.min_in_sync_replicas:
                self.counts["too few"] += 1
                if acknowledgements.confirmed_end != before:
                    self._broken.append(AssertionError(f"{node.name}: confirmed by {members}"))

        acknowledgements._update = checked  # type: ignore[method-assign]

    async def _until_healed(self) -> None:
        ends_s = self.loop.time() + MENDED_S
        while not self._broken and (reason := self._unhealed()):
            assert self.loop.time() < ends_s, f"the group does not heal: {reason}"
            await asyncio.sleep(0.5)

    def _unhealed(self) -> str:
        """Return what is missing; empty if nothing is."""
        masters = [each for each in self.nodes if each.is_master]
        if len(masters) != 1:
            return f"{len(masters)} masters"
        node = masters[0].node
        assert node is not None
        assert node.mastership is not None
        if len(node.mastership.members) != REPLICAS:
            return f"only {sorted(node.mastership.members)} in the set"
        stores = [each.store for each in self.nodes if each.is_settled]
        ends = {store.max_phy_offset for store in stores if store is not None}
        if len(stores) != REPLICAS or len(ends) != 1:
            return f"{len(stores)} replicas run, ends {ends}"
        if any(store.dispatch_behind_bytes for store in stores if store is not None):
            return "a replica hides messages"
        server = None if node.broker is None else node.broker.parts.replication.server
        if server is None or {server.acknowledgements.confirmed_end} != ends:
            return "not confirmed"
        return ""

    def _judge(self) -> None:
        logs = []
        for each in self.nodes:
            store = each.store
            assert store is not None
            if self.needs_all:
                self.history.check(store, each.name)
            part = store.log_part(store.min_phy_offset, 1 << 30)
            logs.append(b"" if part is None else bytes(part))
        assert len(set(logs)) == 1, "the log of a replica differs"

    # -- senders -----------------------------------------------------------------------------

    async def _send(self, sender: int) -> None:
        host = self.network.host(f"10.0.1.{sender + 1}")
        client = RemotingClient(
            RemotingClientConfig(),
            clock=LoopClock(self.loop),
            rng=random.Random(sender),
            network=host,
        )
        targets = [each.address for each in self.nodes]
        while self.loop.time() < self._ends_s + 10.0 and not self._broken:
            number = self.history.sent[sender]
            self.history.sent[sender] += 1
            header = SendMessageRequestHeader(
                producer_group="p", topic=TOPIC, default_topic="TBW102",
                default_topic_queue_nums=SENDERS, queue_id=sender, sys_flag=0,
                born_timestamp=1, flag=0, properties="",
            )  # fmt: skip
            body = b"%d:%d:" % (sender, number) + b"x" * (number * 37 % 300)
            request = make_request(RequestCode.SEND_MESSAGE, header.to_ext(), body)
            try:
                response = await client.invoke(targets[0], request, _CALL_MS)
            except RocketPyError:
                self.counts["no answer"] += 1
                targets.append(targets.pop(0))
                await asyncio.sleep(0.1)
                continue
            self.counts[f"answer {response.code}"] += 1
            if response.code == ResponseCode.SUCCESS:
                found = SendMessageResponseHeader.from_ext(response.ext_fields)
                self.history.acknowledged[sender, number] = found.queue_offset
            else:
                targets.append(targets.pop(0))
            await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.2]))
        await client.close()

    # -- trouble -----------------------------------------------------------------------------

    async def _make_trouble(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill,
            self._kill_master,
            self._stop,
            self._end_in_operation,
            self._kill_controller,
            self._kill_several,
            self._part,
            self._part,
            self._part_two,
            self._cut,
            self._slow,
            self._delay,
            self._fill,
            self._set_clock,
        ]
        kinds = self.rng.sample(kinds, self.rng.randint(2, 7))
        while self.loop.time() < self._ends_s and not self._broken:
            await asyncio.sleep(self.rng.uniform(0.05, 6.0))
            await self._start_ended()
            kind = self.rng.choice(kinds)
            self.counts[kind.__name__] += 1
            await kind()

    async def _start_ended(self) -> None:
        for machine in self.rng.sample(self.machines, len(self.machines)):
            if not machine.is_running:
                await self._start_again(machine)

    async def _start_again(self, machine: Machine) -> None:
        await asyncio.sleep(self.rng.choice([0.1, 1.0, 5.0]))
        while not machine.is_running:
            assert isinstance(machine, GroupNode | ControllerMachine)
            await machine.start()

    def _end(self, machine: Machine) -> None:
        """End a machine's process, or its power where nothing acknowledged may be lost by that."""
        may_lose_power = self.sync or machine is self.controller
        if may_lose_power and self.rng.random() < 0.5:
            self.counts["power"] += 1
            machine.lose_power()
        else:
            machine.kill()

    @property
    def _master(self) -> GroupNode:
        masters = [each for each in self.nodes if each.is_master]
        return self.rng.choice(masters or self.nodes)

    async def _kill(self) -> None:
        machine = self.rng.choice(self.nodes)
        self._end(machine)
        await self._start_again(machine)

    async def _kill_master(self) -> None:
        master = self._master
        self._end(master)
        await self._start_again(master)

    async def _kill_controller(self) -> None:
        self._end(self.controller)
        await self._start_again(self.controller)

    async def _kill_several(self) -> None:
        machines = self.rng.sample(self.machines, self.rng.randint(2, 4))
        for machine in machines:
            if machine.is_running:
                self._end(machine)
            await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.5, 2.0]))
        for machine in self.rng.sample(machines, len(machines)):
            await self._start_again(machine)

    async def _stop(self) -> None:
        machine = self.rng.choice([self._master, self.rng.choice(self.nodes)])
        if machine.is_running:
            await machine.stop()
        await self._start_again(machine)

    async def _end_in_operation(self) -> None:
        """End a process between two changes of its disk, often while it takes another role."""
        machine = self.rng.choice(self.machines)
        if machine.is_running:
            machine.files.end_process_after(self.rng.randrange(80), lambda: self._end(machine))
        if self.rng.random() < 0.5:
            await self._kill_master()
        await asyncio.sleep(self.rng.choice([1.0, 4.0]))
        if machine.is_running:
            machine.files.start_process()
        await self._start_again(machine)

    @property
    def _hosts(self) -> list[str]:
        senders = [f"10.0.1.{number + 1}" for number in range(SENDERS)]
        return [*(each.host.name for each in self.machines), *senders]

    async def _part(self) -> None:
        """Part all hosts into two groups; now and then the master has some of the senders."""
        hosts = self.rng.sample(self._hosts, len(self._hosts))
        place = self.rng.randrange(1, len(hosts))
        self.network.partition(hosts[:place], hosts[place:])
        await self._wait_and_heal()

    async def _part_two(self) -> None:
        """Part two hosts, which both reach all others."""
        one, other = self.rng.sample(self._hosts, 2)
        self.network.partition([one], [other])
        await self._wait_and_heal()

    async def _wait_and_heal(self) -> None:
        await asyncio.sleep(self.rng.choice([0.5, 4.0, 15.0, 25.0]))
        self.network.heal()

    async def _cut(self) -> None:
        for _ in range(self.rng.choice([1, 1, 5])):
            self.network.cut_one()
            await asyncio.sleep(self.rng.choice([0, 0.3]))

    async def _slow(self) -> None:
        machine = self.rng.choice(self.machines)
        machine.host.read_bytes_per_s = self.rng.choice([500, 5_000])
        await asyncio.sleep(self.rng.uniform(1.0, 12.0))
        machine.host.read_bytes_per_s = None

    async def _delay(self) -> None:
        self.network.latency_ms = self.rng.choice([(0.1, 2.0), (20.0, 400.0)])

    async def _fill(self) -> None:
        """The disk of a machine is full for a while, also while it takes another role."""
        machine = self.rng.choice(self.machines)
        machine.files.capacity_bytes = machine.files.used_bytes
        if self.rng.random() < 0.5:
            await self._kill_master()
        await asyncio.sleep(self.rng.uniform(0.5, 8.0))
        machine.files.capacity_bytes = None

    async def _set_clock(self) -> None:
        clock = self.rng.choice(self.machines).clock
        clock.jump(self.rng.choice([-60_000, -5_000, 5_000, 3_600_000]))

    async def _mend(self) -> None:
        self.network.heal()
        self.network.latency_ms = (0.1, 2.0)
        for machine in self.machines:
            machine.host.read_bytes_per_s = None
            machine.files.capacity_bytes = None
            if machine.is_running:
                machine.files.start_process()
        await self._start_ended()


def run_seed(seed: int, unproven: int = 0) -> Counter[str]:
    """Run one seed and return what happened.

    Args:
        seed: of everything random.
        unproven: number of replicas without the secret, as those of Apache.
    """
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> Counter[str]:
        world = GroupWorld(loop, seed, unproven)
        async with asyncio.timeout(24 * 3_600.0):
            await world.run()
        return world.counts + Counter(acknowledged=len(world.history.acknowledged))

    with through_logging():
        try:
            return loop.run_until_complete(main())
        finally:
            loop.end_tasks()
            loop.close()
