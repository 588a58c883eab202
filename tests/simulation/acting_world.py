"""Simulation of a slave that acts as master: a pair, and another group to escape to.

A sender puts delayed, timed, half and plain messages on the master of the pair. The plain ones
are popped, and some of them are not acked. The master, its slave and the other group are killed,
stopped and parted meanwhile. Then everything is mended, a consumer acks what is left, and the
queues of both groups are judged.

The promises, each with the words of the failure:

- "is lost": every acknowledged message is delivered, a half is committed, a popped one acked;
- "is early": none before its time;
- "comes twice": a delayed or timed message is repeated only if it was due around a fault that
  docs/replication.md names.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import rocketpy
from rocketpy.broker.acting import escape
from rocketpy.broker.acting.escape import EscapeWriter
from rocketpy.errors import RocketPyError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.runtime.logs import through_logging
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_cluster import SimBroker, SimCluster
from rocketpy.testing.sim_files import ProcessEndedError
from rocketpy.testing.sim_loop import LoopClock, SimLoop, SimProcess
from tests.unit.broker.pop.kit import PopResponse

LATER: Final = "later"
HALVES: Final = "halves"
POPPED: Final = "popped"
GROUP: Final = "g"
PRODUCERS: Final = "p"
_TROUBLE_S: Final = 60.0
_MENDED_S: Final = 300.0
_CALL_MS: Final = 4_000
_SECRET: Final = "/secret"
_BEFORE_S: Final = 15.0
"""What was due so long before the end of a master may be delivered again by its slave."""
_AFTER_S: Final = 30.0
"""What is due until then may be delivered twice after faults that take more than the master."""
_SETTINGS: Final = {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "slaveTimeout": "1000",
    "replicationSecretFile": _SECRET,
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "messageDelayLevel": "1s 4s 15s",
    "transactionCheckInterval": "4000",
    "transactionTimeOut": "2000",
    "popCkStayBufferTime": "1000",
    "flushConsumerOffsetInterval": "1000",
}


class _Sender:
    """Sends of an `EscapeWriter` on the loop; its put would wait for them on a thread.

    The first put of a message begins the send and refuses the message; the writer's callers try
    again, and get the outcome then.
    """

    def __init__(self, writer: EscapeWriter) -> None:
        self._writer = writer
        self._tasks: dict[tuple[str, bytes], asyncio.Task[bool]] = {}

    def put(self, message: PutMessage) -> PutMessageResult:
        key = message.topic, bytes(message.body)
        task = self._tasks.get(key)
        if task is None:
            work = self._writer.send(message)
            self._tasks[key] = asyncio.get_running_loop().create_task(work)
        elif task.done():
            del self._tasks[key]
            if not task.cancelled() and task.result():
                return PutMessageResult(PutMessageStatus.PUT_OK)
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)


@contextlib.contextmanager
def sends_on_loop() -> Iterator[None]:
    """Let escaping messages be sent without threads."""
    senders: dict[EscapeWriter, _Sender] = {}
    before = EscapeWriter.put

    def put(self: EscapeWriter, message: PutMessage) -> PutMessageResult:
        if self.sink is not None and message.topic == self.sink.topic:
            return before(self, message)
        return senders.setdefault(self, _Sender(self)).put(message)

    escape.EscapeWriter.put = put  # type: ignore[method-assign]
    try:
        yield
    finally:
        escape.EscapeWriter.put = before  # type: ignore[method-assign]


class ActingCluster(SimCluster):
    """A pair and another group, with a name server that knows acting masters."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, brokers=0)
        own: list[dict[str, str]] = [
            {"brokerName": "broker-a"},
            {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE"},
            {"brokerName": "broker-b", "inSyncReplicas": "1"},
        ]
        self.brokers = [
            SimBroker(self, number, {**_SETTINGS, **each}) for number, each in enumerate(own)
        ]
        for each in self.brokers:
            each.files.write_bytes(Path(_SECRET), b"0123456789abcdef0123456789abcdef")

    async def start(self) -> None:
        """Start all."""
        self._process = SimProcess("namesrv")
        host, _, port = self.namesrv.partition(":")
        server = RemotingServerConfig(bind_address=host, listen_port=int(port))
        self._name_server = NameServer(
            NamesrvConfig(data_dir="/simulated", server=server, support_acting_master=True),
            clock=LoopClock(self.loop),
            rng=random.Random(self.loop.rng.random()),
            network=self.network.host(host),
        )
        await self._process.spawn(self._name_server.start())
        for broker in self.brokers:
            await broker.start()


class ActingWorld:
    """Simulated run of one seed.

    Attributes:
        counts: how often each thing happened.
        twice: delayed and timed messages that were delivered more than once.
    """

    def __init__(self, cluster: ActingCluster) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.rng: random.Random = cluster.loop.rng
        self.counts: Counter[str] = Counter()
        self.twice: list[bytes] = []
        self.acknowledged: dict[str, set[bytes]] = {LATER: set(), HALVES: set(), POPPED: set()}
        self.acked: set[bytes] = set()
        self._due_ms: dict[bytes, int] = {}
        self._faults: list[tuple[float, float]] = []
        self._ends_s = 0.0
        self._number = 0
        self._client = RemotingClient(
            RemotingClientConfig(),
            clock=cluster.clock,
            rng=random.Random(self.rng.random()),
            network=cluster.network.host("10.0.1.99"),
        )

    @property
    def master(self) -> SimBroker:
        return self.cluster.brokers[0]

    @property
    def slave(self) -> SimBroker:
        return self.cluster.brokers[1]

    @property
    def other(self) -> SimBroker:
        return self.cluster.brokers[2]

    # -- course ------------------------------------------------------------------------------

    async def run(self) -> None:
        for broker in (self.master, self.other):
            for topic in (LATER, HALVES, POPPED):
                broker.broker.parts.topics.put(TopicConfig(topic, 1, 1))
            broker.broker.parts.groups.put(SubscriptionGroupConfig(GROUP))
        await asyncio.sleep(8)  # the slave fetches topics and groups
        self._ends_s = self.loop.time() + _TROUBLE_S
        async with (
            self.cluster.client() as client,
            client.producer(group=PRODUCERS, tx_checker=self._committed) as producer,
        ):
            await producer.send(HALVES, b"known")
            tasks = [asyncio.ensure_future(each) for each in (self._send(), self._consume())]
            await self._make_trouble()
            await self._mend()
            await tasks[0]
            await self._until_delivered()
            tasks[1].cancel()
            await asyncio.wait(tasks[1:])
            self._judge()
        await self._client.close()
        assert not self.loop.errors, self.loop.errors

    async def _committed(self, _message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
        return rocketpy.TxState.COMMIT

    async def _until_delivered(self) -> None:
        ends_s = self.loop.time() + _MENDED_S
        while missing := self._missing():
            assert self.loop.time() < ends_s, f"{missing} is lost"
            await asyncio.sleep(1.0)
        await asyncio.sleep(40.0)  # repeats that are on their way

    def _missing(self) -> str:
        for topic in (LATER, HALVES):
            found = {each.body for each in self._stored(topic)}
            if missing := self.acknowledged[topic] - found:
                return f"{topic}: {min(missing)!r} of {len(missing)}"
        if missing := self.acknowledged[POPPED] - self.acked:
            return f"{POPPED}: {min(missing)!r} of {len(missing)}"
        return ""

    def _stored(self, topic: str) -> list[MessageExt]:
        found: list[MessageExt] = []
        for broker in (self.master, self.other):
            store = broker.broker.parts.store
            offset = 0
            while offset < store.max_offset(topic, 0):
                read = store.get_message(topic, 0, offset, 32, 1 << 20)
                found += [decode_message(bytes(each)) for each in read.buffers]
                offset = read.next_begin_offset
        return found

    def _judge(self) -> None:
        times: Counter[bytes] = Counter()
        for message in self._stored(LATER):
            due_ms = self._due_ms[message.body]
            at_ms = message.store_timestamp_ms
            assert at_ms >= due_ms, f"{message.body!r} is early by {due_ms - at_ms} ms"
            times[message.body] += 1
        self.counts["delivered"] = len(times)
        for body, count in times.items():
            if count > 1:
                self.twice.append(body)
                due_s = (self._due_ms[body] - self._zero_ms) / 1_000
                is_near = any(first <= due_s <= last for first, last in self._faults)
                assert is_near, f"{body!r}, due at {due_s} s, comes twice without a fault"

    @property
    def _zero_ms(self) -> int:
        return self.cluster.clock.time_ms() - round(self.loop.time() * 1_000)

    # -- clients -----------------------------------------------------------------------------

    async def _ask(
        self, broker: SimBroker, code: int, ext: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        return await self._client.invoke(broker.address, make_request(code, ext, body), _CALL_MS)

    async def _send(self) -> None:
        while self.loop.time() < self._ends_s:
            await asyncio.sleep(self.rng.choice([0.02, 0.1, 0.4]))
            self._number += 1
            body = b"%d" % self._number
            topic = self.rng.choice([LATER, LATER, HALVES, POPPED])
            properties, sys_flag = {"UNIQ_KEY": f"U{self._number}"}, 0
            now_ms = self.cluster.clock.time_ms()
            if topic == HALVES:
                properties |= {"TRAN_MSG": "true", "PGROUP": PRODUCERS}
                sys_flag = 4
            elif topic == LATER and self.rng.random() < 0.5:
                level = self.rng.randint(1, 3)
                properties["DELAY"] = str(level)
                self._due_ms[body] = now_ms + (1_000, 4_000, 15_000)[level - 1]
            elif topic == LATER:
                self._due_ms[body] = now_ms + self.rng.randint(1, 25_000)
                properties["TIMER_DELIVER_MS"] = str(self._due_ms[body])
            ext = {
                "a": PRODUCERS, "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": str(sys_flag),
                "g": str(now_ms), "h": "0",
                "i": "".join(f"{key}\x01{value}\x02" for key, value in properties.items()),
            }  # fmt: skip
            try:
                response = await self._ask(self.master, RequestCode.SEND_MESSAGE_V2, ext, body)
            except RocketPyError:
                self.counts["no answer"] += 1
                continue
            self.counts[f"answer {response.code}"] += 1
            if response.code == 0:
                self.acknowledged[topic].add(body)

    async def _consume(self) -> None:
        """Pop from all brokers in turn; forget some messages while there is trouble."""
        brokers = list(self.cluster.brokers)
        while True:
            await asyncio.sleep(self.rng.choice([0.05, 0.3]))
            broker = self.rng.choice(brokers)
            ext = {
                "consumerGroup": GROUP, "topic": POPPED, "queueId": "-1", "maxMsgNums": "4",
                "invisibleTime": str(self.rng.choice([5_000, 8_000, 12_000])), "pollTime": "0",
                "bornTime": str(self.cluster.clock.time_ms()), "initMode": "0", "order": "false",
            }  # fmt: skip
            with contextlib.suppress(RocketPyError):
                name = "broker-b" if broker is self.other else "broker-a"
                response = await self._ask(broker, RequestCode.POP_MESSAGE, ext)
                for message in PopResponse(response, name).messages:
                    if self.loop.time() < self._ends_s and self.rng.random() < 0.3:
                        self.counts["forgotten"] += 1
                        continue
                    await self._ack(broker, message)

    async def _ack(self, broker: SimBroker, message: MessageExt) -> None:
        handle = message.properties["POP_CK"]
        parts = handle.split(" ")
        retry = {"0": POPPED, "1": f"%RETRY%{GROUP}_{POPPED}", "2": f"%RETRY%{GROUP}+{POPPED}"}
        ext = {
            "consumerGroup": GROUP, "topic": retry[parts[4]], "queueId": parts[6],
            "offset": parts[7], "extraInfo": handle,
        }  # fmt: skip
        response = await self._ask(broker, RequestCode.ACK_MESSAGE, ext)
        self.counts[f"ack {response.code}"] += 1
        if response.code == 0:
            self.acked.add(message.body)
            self.counts["redelivered"] += message.reconsume_times > 0

    # -- trouble -----------------------------------------------------------------------------

    async def _make_trouble(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill_master,
            self._kill_master,
            self._stop_master,
            self._kill_slave,
            self._kill_both,
            self._kill_acting,
            self._kill_other,
            self._part_master,
            self._end_in_operation,
        ]
        kinds = self.rng.sample(kinds, self.rng.randint(2, 5))
        while self.loop.time() < self._ends_s:
            await asyncio.sleep(self.rng.uniform(1.0, 10.0))
            kind = self.rng.choice(kinds)
            self.counts[kind.__name__] += 1
            began_s = self.loop.time()
            await kind()
            is_simple = kind in {self._kill_master, self._stop_master}
            # A master that stops leaves the routes first, and delivers until its end.
            last_s = began_s + 6.0 if is_simple else self.loop.time() + _AFTER_S
            # Without its slave, a master continues where its files say: it may have been killed
            # several times before it wrote them (flushDelayOffsetInterval).
            before_s = _TROUBLE_S if kind == self._kill_both else _BEFORE_S
            self._faults.append((began_s - before_s, last_s))
            await self._start_ended()

    async def _start_ended(self) -> None:
        for broker in self.rng.sample(self.cluster.brokers, 3):
            while not broker.is_running:
                with contextlib.suppress(ProcessEndedError):
                    await broker.start()

    async def _away(self) -> None:
        await asyncio.sleep(self.rng.choice([0.1, 1.0, 5.0, 20.0]))

    async def _kill_master(self) -> None:
        self.master.kill()
        await self._away()

    async def _stop_master(self) -> None:
        await self.master.stop()
        await self._away()

    async def _kill_slave(self) -> None:
        self.slave.kill()
        await self._away()

    async def _kill_both(self) -> None:
        for broker in self.rng.sample([self.master, self.slave], 2):
            broker.kill()
            await asyncio.sleep(self.rng.choice([0.0, 3.0]))

    async def _kill_acting(self) -> None:
        """Kill the slave while it acts, and start it before its master."""
        self.master.kill()
        await self._away()
        self.slave.kill()
        await asyncio.sleep(self.rng.choice([0.1, 2.0]))
        await self.slave.start()
        await self._away()

    async def _kill_other(self) -> None:
        """Lose the other group while messages have to escape."""
        self.master.kill()
        await asyncio.sleep(self.rng.choice([0.0, 2.0]))
        self.other.kill()
        await self._away()
        await self.other.start()
        await self._away()

    async def _part_master(self) -> None:
        hosts = [each.host.name for each in self.cluster.brokers]
        rest = [*hosts[1:], self.cluster.namesrv.partition(":")[0]]
        self.cluster.network.partition(hosts[:1], rest)
        await self._away()
        self.cluster.network.heal()

    async def _end_in_operation(self) -> None:
        """End a process between two changes of its disk, also while roles change."""
        broker = self.rng.choice(self.cluster.brokers)
        broker.end_after(self.rng.randrange(60))
        if self.rng.random() < 0.5 and self.master.is_running:
            self.master.kill()
        await self._away()
        if broker.is_running:
            broker.files.start_process()

    async def _mend(self) -> None:
        self.cluster.network.heal()
        await self._start_ended()


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> Counter[str]:
        cluster = ActingCluster(loop)
        world = ActingWorld(cluster)
        async with asyncio.timeout(24 * 3_600.0):
            await cluster.start()
            await world.run()
            await cluster.stop()
        return world.counts + Counter(twice=len(world.twice))

    with through_logging(), sends_on_loop():
        try:
            return loop.run_until_complete(main())
        finally:
            loop.end_tasks()
            loop.close()
