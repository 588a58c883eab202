"""A load of sends, each on the record, and what brokers hold of them afterwards."""

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import SystemClock
from tests.conformance.worlds import ScriptedRemoting

TOPIC = "load"
_SEND = 310
_READ_LIMIT_S = 100.0


class Load:
    """Some workers that send one message after the other while a test does harm.

    Attributes:
        sent: results by body.
        failed: errors by body, with the seconds that the send took.
        phase: what attempts are counted under; the test changes it.
        attempts: by phase and broker's address.
        timeout_s: of each send.
        ever_avoided: brokers that the producer kept away from at some time.
    """

    def __init__(self, namesrv: str, *, workers: int = 8, timeout_s: float = 3, **options: Any):
        self.sent: dict[bytes, SendResult] = {}
        self.failed: dict[bytes, tuple[RocketPyError, float]] = {}
        self.phase = "warming"
        self.attempts: dict[str, Counter[str]] = defaultdict(Counter)
        self.ever_avoided: set[str] = set()
        self.timeout_s = timeout_s
        self.workers = workers
        self._namesrv = namesrv
        self._options = options
        self._producer: Any = None
        self._is_over = False
        self._script: dict[int, list[Any]] = defaultdict(list)

    def client(self) -> Client:
        """Return a client whose attempts to send are counted."""
        config = ClientConfig(name_servers=self._namesrv, group="load")
        clock, rng = SystemClock(), random.Random(1)

        def make_remoting() -> ScriptedRemoting:
            remoting = RemotingClient(RemotingClientConfig(), clock=clock, rng=rng)
            return ScriptedRemoting(remoting, self._script, self)  # type: ignore[arg-type]

        return Client(config, clock=clock, rng=rng, make_remoting=make_remoting)

    def append(self, request: tuple[str, RemotingCommand]) -> None:
        """Count a request, as the list that a `ScriptedRemoting` writes to."""
        address, command = request
        if command.code == _SEND:
            self.attempts[self.phase][address] += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send all the while; at the end, what is under way is waited for."""
        async with self.client() as client:
            # The topic and the connections are made by another producer: they take their time.
            first = client.producer(timeout=30)
            await asyncio.gather(*[first.send(TOPIC, b"first") for _ in range(16)])
            self.phase = "before"
            producer = client.producer(timeout=self.timeout_s, **self._options)
            self._producer = producer
            workers = [
                asyncio.create_task(self._work(producer, number)) for number in range(self.workers)
            ]
            try:
                yield
            finally:
                self._is_over = True
                await asyncio.gather(*workers)

    async def _work(self, producer: Any, worker: int) -> None:
        number = 0
        names: set[str] = set()
        while not self._is_over:
            body = b"%d-%d" % (worker, number)
            number += 1
            began = time.monotonic()
            try:
                self.sent[body] = result = await producer.send(TOPIC, body)
                names.add(result.queue.broker_name)
            except RocketPyError as error:
                self.failed[body] = error, time.monotonic() - began
            self.ever_avoided.update(filter(self.avoids, names))
            await asyncio.sleep(0.01)

    def avoids(self, broker: str) -> bool:
        """Whether the producer keeps away from a broker now."""
        started = self._producer._started  # None before its first send
        faults = None if started is None else started._faults
        return faults is not None and not faults.is_available(broker)

    async def peace(self, *brokers: str) -> None:
        """Count a second of attempts as "before"; later, where one is avoided without any harm.

        A machine that stands still for half a second makes a broker slow.
        """
        for _ in range(3):
            while any(map(self.avoids, brokers)):  # noqa: ASYNC110 - as a person looks
                await asyncio.sleep(0.5)
            self.attempts["before"].clear()
            await asyncio.sleep(1)
            if not any(map(self.avoids, brokers)):
                return

    async def watch(self, bad: str) -> None:
        """Count two seconds of attempts as "trouble"; again while some are made at the bad one.

        On a busy machine it may take its time until all have noticed.
        """
        self.phase = "trouble"
        for _ in range(4):
            self.attempts["trouble"].clear()
            await asyncio.sleep(2)
            if not self.attempts["trouble"][bad]:
                return

    def check_failures(self) -> None:
        """Every send succeeded, or had all its time."""
        early = {body: end for body, end in self.failed.items() if end[1] < self.timeout_s - 0.05}
        assert early == {}

    async def check_stored(self) -> None:
        """Every acknowledged message is where its result says."""
        wanted = {(result.queue, result.offset): body for body, result in self.sent.items()}
        found: dict[tuple[MessageQueue, int], bytes] = {}
        async with (
            self.client() as client,
            client.pull_consumer(group="reader", auto_commit=False) as consumer,
        ):
            with contextlib.suppress(TimeoutError):  # what is missing then, the assertion shows
                async with asyncio.timeout(_READ_LIMIT_S):
                    queues = await consumer.queues(TOPIC)
                    while not {queue for queue, _ in wanted} <= set(queues):
                        await asyncio.sleep(0.2)  # a broker that comes back registers in a while
                        queues = await consumer.queues(TOPIC)
                    await consumer.assign(queues)
                    await consumer.seek_to_begin()
                    while not wanted.keys() <= found.keys():
                        for message in await consumer.poll(max_messages=1000, timeout=1):
                            found[message.queue, message.offset] = message.body
        assert {place: found.get(place) for place in wanted} == wanted
