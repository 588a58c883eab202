"""Simulation of a replicated log: a master, one or two slaves, and faults of all of them.

Real stores, HA ports and slaves run on simulated disks and a simulated network. A sender puts
messages on the master and waits for the copies. Processes are killed, lose power (also in the
middle of a file operation), links are cut, parted, slow or flip a bit, disks fill up and fail, and
strangers connect. An operator resynchronises a slave that was refused, by emptying its directory.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.ha_client import MasterAddresses
from rocketpy.broker.replication.replica_state import REFUSED_STATES, State
from rocketpy.broker.replication.store_log import StoreLog
from rocketpy.errors import ConnectError
from rocketpy.proto.replication.classic_frames import encode_report
from rocketpy.proto.replication.pair_frames import (
    PREAMBLE,
    TAG_BYTES,
    DiskState,
    Hello,
    Proof,
    Report,
    encode_handshake,
)
from rocketpy.proto.replication.pair_frames import encode_report as encode_pair_report
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessageStatus
from rocketpy.testing.sim_loop import SimLoop
from rocketpy.testing.sim_network import SimNetwork
from tests.simulation.replica_history import Message, ReplicaHistory, check_prefix
from tests.simulation.replica_node import HA_PORT, ROOT, Node
from tests.simulation.store_history import QUEUES, TOPICS, Sent, put_message, read_all

TROUBLE_S = 20.0
MENDED_S = 100.0
SLAVE_TIMEOUT_MS = 3_000


@dataclass(frozen=True)
class Rules:
    """Rules of replication that a test switches off, to see that the checker finds the loss.

    Attributes:
        flush: a slave with SYNC_FLUSH confirms only what is on its disk.
    """

    flush: bool = True


@dataclass
class Addresses:
    """Addresses of the master."""

    address: str
    ha_address: str


class ReplicaWorld:
    """Simulated run of one seed.

    Attributes:
        sync: SYNC_FLUSH on all machines; otherwise power is lost by the master only, and what it
            loses then is the mode's risk.
        needed: `inSyncReplicas`.
        counts: how often each thing happened.
        flips: bits to flip on the way to slaves.
    """

    def __init__(self, loop: SimLoop, seed: int, rules: Rules) -> None:
        self.loop = loop
        self.rng: random.Random = loop.rng
        self.sync = seed % 2 == 0
        self.confirms_disk = self.sync and rules.flush
        self.network = SimNetwork(loop)
        slaves = 1 + seed % 3 // 2
        self.needed = self.rng.choice([2, 1 + slaves])
        self.file_bytes = self.rng.choice([8_192, 16_384, 65_536])
        self.config = ReplicationConfig(
            in_sync_replicas=self.needed,
            slave_timeout=SLAVE_TIMEOUT_MS,
            ha_transfer_batch_size=self.rng.choice([1_024, 32_768]),
            ha_allowed_peers="10.77.0.0/16",
            replication_secret_file="secret",
        )
        self.history = ReplicaHistory()
        self.counts: Counter[str] = Counter()
        self.flips = 0
        self.nodes = [Node(self, number) for number in range(1 + slaves)]
        self.addresses: MasterAddresses = Addresses(
            f"{self.master.host.name}:10911", f"{self.master.host.name}:{HA_PORT}"
        )
        self._ends_s = 0.0
        self._numbers = 0
        self._recovered_end = 0
        self._is_over = False
        self._lost_page_cache = False
        self._broken: list[AssertionError] = []

    @property
    def master(self) -> Node:
        return self.nodes[0]

    @property
    def slaves(self) -> list[Node]:
        return self.nodes[1:]

    def store_config(self, broker_id: int) -> MessageStoreConfig:
        return MessageStoreConfig(
            store_path_root_dir=str(ROOT),
            flush_disk_type="SYNC_FLUSH" if self.sync else "ASYNC_FLUSH",
            broker_role="SLAVE" if broker_id else "SYNC_MASTER",
            mapped_file_size_commit_log=self.file_bytes,
            mapped_file_size_consume_queue=400,
            max_hash_slot_num=50,
            max_index_num=100,
            clean_file_forcibly_enable=False,
            timer_wheel_enable=False,
        )

    async def ask_protocol(self, _address: str) -> int:
        await asyncio.sleep(self.network.delay_s())
        if not self.master.is_running:
            raise ConnectError("the master is away")
        return 1

    # -- course ------------------------------------------------------------------------------

    async def run(self) -> None:
        for node in self.nodes:
            assert await node.start()
        self._ends_s = self.loop.time() + TROUBLE_S
        operator = asyncio.ensure_future(self._operate())
        reader = asyncio.ensure_future(self._read())
        await self._make_trouble()
        await self._mend()
        await self._until_equal()
        for task in (operator, reader):
            task.cancel()
        if self._broken:
            raise self._broken[0]
        self._judge()

    def opened(self, node: Node) -> None:
        """Judge the log of a store that was just opened, before anything else happens."""
        end = node.store.max_phy_offset
        if node is self.master:
            # Consumers could read all of that before.
            self._recovered_end = node.store.replicas.confirmed or 0
            if self._lost_page_cache and not self.sync:
                self.history.lost_by_mode(end)
            self._lost_page_cache = False
        self._check_copies()

    def power_lost(self, node: Node) -> None:
        if node is self.master:
            self._lost_page_cache = True

    def _check_copies(self) -> None:
        if not all(each.is_running for each in self.nodes):
            return
        ends = [1 << 62 if each.is_resyncing else each.store.max_phy_offset for each in self.nodes]
        try:
            self.history.check_copies(ends, self.needed)
        except AssertionError as error:  # it is raised in a task of the process
            self._broken.append(error)

    async def _until_equal(self) -> None:
        end_s = self.loop.time() + MENDED_S
        while not self._is_equal() and not self._broken:
            states = [str(each.client.state) for each in self.slaves if each.client]
            assert self.loop.time() < end_s, f"slaves do not catch up: {states}"
            await asyncio.sleep(0.2)

    def _is_equal(self) -> bool:
        end = self.master.store.max_phy_offset
        # With SYNC_FLUSH, what was received is readable after its flush only.
        return all(
            each.is_following
            and each.store.max_phy_offset == end
            and not each.store.dispatch_behind_bytes
            for each in self.slaves
        )

    def _judge(self) -> None:
        for slave in self.slaves:
            check_prefix(self.master.store, slave.store, slave.name)
        for node in self.nodes:
            self.history.check_store(node.store)
        assert not self.loop.errors, self.loop.errors

    # -- people ------------------------------------------------------------------------------

    async def send(self) -> None:
        """Put messages until the master's process ends; several may wait for their copies."""
        store = self.master.store
        while not self._is_over:
            for _ in range(self.rng.choice([1, 1, 3, 8])):
                self._put(store)
            await asyncio.sleep(self.rng.choice([0, 0.01, 0.2, 1.0]))

    def _put(self, store: MessageStore) -> None:
        number = self._numbers
        self._numbers += 1
        message = self.history.begin(number, self.loop.time())
        topic, queue_id = self.rng.choice(TOPICS[:2]), self.rng.randrange(QUEUES)
        result = store.put_message(put_message(Sent(number, topic, 0, queue_id)))
        if result.status is not PutMessageStatus.PUT_OK:
            self.counts["refused"] += 1
            return
        message.place = (topic, queue_id, result.queue_offset, result.phy_offset)
        message.phy_end = result.phy_end
        store.when_durable(result.phy_end, lambda ok: self._answered(message, ok))

    def _answered(self, message: Message, ok: bool) -> None:
        self.counts["acknowledged" if ok else "unknown"] += 1
        if ok:
            self.history.acknowledge(message)

    async def _read(self) -> None:
        """A consumer reads everything that it may see, now and then."""
        while True:
            await asyncio.sleep(self.rng.choice([0.5, 5.0]))
            if self.master.is_running:
                found = read_all(self.master.store)
                if self.master.store.replicas.confirmed is not None:
                    self._check_seen(found)

    def _check_seen(self, found: list[Any]) -> None:
        try:
            timeout_s = SLAVE_TIMEOUT_MS / 1_000
            fresh = [each for each in found if each.place.phy_offset >= self._recovered_end]
            ends = sorted((each.longest_end for each in self.slaves), reverse=True)
            copied_end = ends[self.needed - 2]
            self.history.check_seen(fresh, copied_end, self.loop.time(), timeout_s)
        except AssertionError as error:
            self._broken.append(error)

    async def _operate(self) -> None:
        """Empty a slave that stays refused, as `rocketpy store resync` with nothing in common."""
        refused: Counter[str] = Counter()
        while True:
            await asyncio.sleep(1.0)
            for node in self.slaves:
                client = node.client
                if node.is_resyncing and node.is_following and self.master.is_running:
                    ends = node.store.max_phy_offset, self.history.acknowledged_end
                    node.is_resyncing = ends[0] < ends[1]
                is_refused = (
                    node.is_running
                    and client is not None
                    and client.state.state in REFUSED_STATES - {State.REFUSED}
                )
                refused[node.name] = refused[node.name] + 1 if is_refused else 0
                if refused[node.name] > 5:
                    refused[node.name] = 0
                    await self._resync(node)

    async def _resync(self, node: Node) -> None:
        self.counts["resync"] += 1
        await node.stop()
        self.files_cleared(node)
        node.is_resyncing = True
        await self._start_again(node)

    @staticmethod
    def files_cleared(node: Node) -> None:
        node.files.start_process()
        node.files.remove_tree(ROOT)
        node.files.sync_directories()

    # -- trouble -----------------------------------------------------------------------------

    def _kinds(self) -> list[Callable[[Node], Awaitable[None]]]:
        kinds: list[Callable[[Node], Awaitable[None]]] = [
            self._kill,
            self._stop,
            self._end_in_operation,
            self._cut,
            self._part,
            self._slow,
            self._delay,
            self._flip,
            self._fill,
            self._fail,
            self._stranger,
        ]
        return [*kinds, self._lose_power, self._lose_power]

    async def _make_trouble(self) -> None:
        kinds = self._kinds()
        kinds = self.rng.sample(kinds, self.rng.randint(2, 6))
        self._spawn_sender()
        while self.loop.time() < self._ends_s and not self._broken:
            await asyncio.sleep(self.rng.uniform(0.05, 3.0))
            for node in self.nodes:
                if not node.is_running:
                    await self._start_again(node)
            kind = self.rng.choice(kinds)
            self.counts[kind.__name__] += 1
            await kind(self.rng.choice(self.nodes))

    def _spawn_sender(self) -> None:
        node = self.master
        assert node.process is not None
        node.process.spawn(self.send())

    async def _start_again(self, node: Node) -> None:
        await asyncio.sleep(self.rng.choice([0.1, 1.0, 5.0]))
        while not node.is_running:
            if self.rng.random() < 0.15:
                node.files.start_process()
                end = node.lose_power if self._may_lose_power(node) else node.kill
                node.files.end_process_after(self.rng.randrange(20), end)
            if await node.start() and node is self.master:
                self._spawn_sender()

    def _may_lose_power(self, node: Node) -> bool:
        return self.sync or node is self.master

    async def _kill(self, node: Node) -> None:
        node.kill()
        await self._start_again(node)

    async def _stop(self, node: Node) -> None:
        await node.stop()
        await self._start_again(node)

    async def _lose_power(self, node: Node) -> None:
        if self._may_lose_power(node):
            node.lose_power()
            await self._start_again(node)

    async def _end_in_operation(self, node: Node) -> None:
        end = node.lose_power if self._may_lose_power(node) else node.kill
        node.files.end_process_after(self.rng.randrange(60), end)
        await asyncio.sleep(2.0)
        if node.is_running:
            node.files.start_process()
        else:
            await self._start_again(node)

    async def _cut(self, _node: Node) -> None:
        for _ in range(self.rng.choice([1, 1, 5])):
            self.network.cut_one()
            await asyncio.sleep(self.rng.choice([0, 0.3]))

    async def _part(self, node: Node) -> None:
        others = [each.host.name for each in self.nodes if each is not node]
        self.network.partition([node.host.name], others)
        await asyncio.sleep(self.rng.choice([0.5, 4.0, 25.0]))
        self.network.heal()

    async def _slow(self, node: Node) -> None:
        node.host.read_bytes_per_s = self.rng.choice([2_000, 20_000])
        await asyncio.sleep(self.rng.uniform(1.0, 6.0))
        node.host.read_bytes_per_s = None

    async def _delay(self, _: Node) -> None:
        self.network.latency_ms = self.rng.choice([(0.1, 2.0), (20.0, 200.0)])

    async def _flip(self, _: Node) -> None:
        self.flips += 1

    async def _fill(self, node: Node) -> None:
        """The disk of a slave is full for a while."""
        if node is not self.master:
            node.files.capacity_bytes = node.files.used_bytes
            await asyncio.sleep(self.rng.uniform(0.5, 5.0))
            node.files.capacity_bytes = None

    async def _fail(self, node: Node) -> None:
        """The disk of a slave fails until the machine is started again."""
        if node is not self.master and self.sync:
            node.files.fail_flushes()
            await asyncio.sleep(self.rng.uniform(0.5, 5.0))
            node.lose_power()
            await self._start_again(node)

    async def _stranger(self, _: Node) -> None:
        """A stranger acknowledges everything, in either protocol."""
        stranger = Stranger(self)
        host = self.network.host(f"10.99.0.{self.rng.randrange(1, 9)}")
        try:
            async with asyncio.timeout(2.0):
                await host.connect(lambda: stranger, self.master.host.name, HA_PORT, tls=None)
        except (OSError, TimeoutError):
            return
        await asyncio.sleep(1.0)

    async def _mend(self) -> None:
        self.network.heal()
        self.network.latency_ms = (0.1, 2.0)
        self.flips = 0
        for node in self.nodes:
            node.host.read_bytes_per_s = None
            node.files.capacity_bytes = None
            if node.is_running:
                node.files.start_process()
        for node in self.nodes:
            if not node.is_running:
                await self._start_again(node)
        await asyncio.sleep(1.0)
        self._is_over = True


class Stranger(asyncio.Protocol):
    """Peer that knows no secret: it claims to have everything that it was sent.

    It knows the log of the master, to look like a slave that has all of it.
    """

    def __init__(self, world: ReplicaWorld) -> None:
        self._world = world
        self._transport: Any = None
        self._has_proven = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        world = self._world
        if world.rng.random() < 0.2:
            self._transport.write(encode_report(1 << 40))
            return
        log = StoreLog(world.master.store, world.file_bytes)
        hello = Hello(
            cluster="c",
            name="b",
            id=9,
            nonce=bytes(32),
            log=log.identity,
            min=log.min_phy_offset,
            end=log.end_phy_offset,
            file=world.file_bytes,
            disk=True,
        )
        self._transport.write(PREAMBLE + encode_handshake(hello))

    def data_received(self, data: bytes) -> None:
        world = self._world
        if not world.master.is_running:
            return
        if not self._has_proven:
            self._has_proven = True
            samples = [(*each,) for each in world.master.store.log_samples(64, 4_096)]
            self._transport.write(encode_handshake(Proof(proof=bytes(32), samples=samples)))
            return
        end = world.master.store.max_phy_offset
        report = encode_pair_report(Report(end, end, DiskState.WRITING))
        self._transport.write(report + bytes(TAG_BYTES))


def run_seed(seed: int, rules: Rules | None = None) -> Counter[str]:
    """Run one seed and return what happened."""
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> Counter[str]:
        world = ReplicaWorld(loop, seed, rules or Rules())
        async with asyncio.timeout(24 * 3_600.0):
            await world.run()
        return world.counts

    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()
