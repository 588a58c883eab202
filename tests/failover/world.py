"""Group under faults: what a fault may do to processes, links and clocks."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import rocketpy
from rocketpy.proto.headers.controller import GetReplicaInfoResponseHeader as ReplicaInfo
from tests.failover.group import CLIENT
from tests.failover.network import CUT, Network, Quality
from tests.failover.skewed import Skew
from tests.integration.broker.failover_group import NAMESRV
from tests.replication.history import QUEUES, History

_WITHIN_S = 120.0
_POLL_S = 0.05
_T = TypeVar("_T")


async def poll(read: Callable[[], _T | None], what: str, within_s: float = _WITHIN_S) -> _T:
    """Return the first result that is not None.

    Raises:
        AssertionError: there is none in time.
    """
    deadline = time.monotonic() + within_s
    while True:
        found = await asyncio.to_thread(read)
        if found is not None:
            return found
        assert time.monotonic() < deadline, what
        await asyncio.sleep(_POLL_S)


class Group(Protocol):
    """Group, as rounds see it.

    Attributes:
        network: where its processes are; None: on loopback.
        namesrv: `host:port` of the name server.
        replicas: names of the replicas by their addresses.
        etcd: names of the members of etcd.
        skews: clocks, by the names of the processes.
    """

    network: Network | None
    namesrv: str
    replicas: dict[str, str]
    etcd: Sequence[str]
    skews: dict[str, Skew]

    @property
    def master(self) -> str | None:
        """Name of the master; None without one."""
        ...

    @property
    def leader(self) -> str | None:
        """Name of the controller that leads; None without one."""
        ...

    def start(self, name: str) -> None:
        """Start a process that has ended."""
        ...

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; wait for the end of a process that is killed or stopped."""
        ...

    def log_end(self, name: str) -> bytes:
        """Return the commit log of a replica, or its part that may differ from the others."""
        ...

    def forget_equal(self) -> None:
        """Note that all logs are equal up to their ends."""
        ...

    def info(self) -> tuple[ReplicaInfo, set[int]]:
        """Return the master and the sync-state set, as the controller has stored them."""
        ...

    def wait_for_etcd(self) -> None:
        """Wait until every member of etcd serves."""
        ...


class Senders:
    """Clients of one round, on a thread in the network of the clients.

    Attributes:
        gap_s: longest time without an acknowledged message, after `stop`.
    """

    def __init__(self, group: Group, history: History) -> None:
        self.gap_s = 0.0
        self._group = group
        self._history = history
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the round.

        Raises:
            BaseException: a sender has failed.
        """
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_WITHIN_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            if self._group.network is not None:
                self._group.network.enter(CLIENT)
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._send())
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self._error = error

    async def _send(self) -> None:
        async with (
            rocketpy.connect(self._group.namesrv) as client,
            client.producer(retries=0) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for queue_id in range(QUEUES):
                tasks.create_task(self._history.send(producer, queue_id, self._stop))
            await self._watch()

    async def _watch(self) -> None:
        count, since = self._history.count, time.monotonic()
        while not self._stop.is_set():
            await asyncio.sleep(0.01)
            if self._history.count != count:
                now = time.monotonic()
                self.gap_s = max(self.gap_s, now - since)
                count, since = self._history.count, now


class World:
    """Group under faults.

    Attributes:
        group: the processes.
        rng: chooses faults, victims and times.
        heals_within_s: limit of the time until the group is whole again.
        span_s: how long the fault of this round lasts, if that is not its own matter.
    """

    def __init__(self, group: Group, rng: random.Random) -> None:
        self.group = group
        self.rng = rng
        self.heals_within_s = _WITHIN_S
        self.span_s = 0.0

    @property
    def replicas(self) -> list[str]:
        return list(self.group.replicas.values())

    async def wait(self, longest_s: float = 1.5) -> None:
        await asyncio.sleep(self.rng.uniform(0.05, longest_s))

    async def master(self) -> str:
        return await poll(lambda: self.group.master, "no master")

    async def slave(self) -> str:
        master = await self.master()
        return self.rng.choice([each for each in self.replicas if each != master])

    async def controller(self) -> str:
        return await poll(lambda: self.group.leader, "no controller leads")

    async def roles(self) -> dict[str, str]:
        """Return names of processes by what they are now."""
        master = await self.master()
        slave, other = self.rng.sample([each for each in self.replicas if each != master], 2)
        controller = await self.controller()
        names = dict(zip(("etcd", "etcd2", "etcd3"), self._members(), strict=False))
        return names | {
            "master": master, "slave": slave, "other": other, "controller": controller,
            "client": CLIENT, "namesrv": NAMESRV,
        }  # fmt: skip

    async def send_signal(self, name: str, number: signal.Signals) -> None:
        await asyncio.to_thread(self.group.signal, name, number)

    async def start(self, *names: str) -> None:
        """Start processes that have ended, in any order."""
        for name in self.rng.sample(names, len(names)):
            await asyncio.to_thread(self.group.start, name)

    async def restart(
        self, *names: str, number: signal.Signals = signal.SIGKILL, span_s: float | None = None
    ) -> None:
        """End processes, and start them a little later, or after `span_s`."""
        for name in names:
            await self.send_signal(name, number)
        if span_s is None:
            await self.wait()
        else:
            await asyncio.sleep(span_s)
        await self.start(*names)

    async def freeze(self, name: str, span_s: float) -> None:
        await self.send_signal(name, signal.SIGSTOP)
        await asyncio.sleep(span_s)
        await self.send_signal(name, signal.SIGCONT)

    async def change_links(
        self, links: Sequence[tuple[str, str]], quality: Quality = CUT, *, resets: bool = False
    ) -> None:
        """Change links, also closing their connections."""
        assert self.group.network is not None
        for one, other in links:
            await asyncio.to_thread(self.group.network.set, one, other, quality)
        if resets:
            for one, other in links:
                await asyncio.to_thread(self.group.network.close_connections, one, other)

    async def heal_links(self) -> None:
        assert self.group.network is not None
        await asyncio.to_thread(self.group.network.heal)

    def set_clock(self, name: str, *, step_ms: int = 0, rate: float = 1.0) -> None:
        self.group.skews[name].set(step_ms=step_ms, rate=rate)

    def heal_clocks(self) -> None:
        for each in self.group.skews.values():
            each.set()

    async def sends_again(self, history: History) -> None:
        wanted = history.count + 20
        await poll(lambda: history.count >= wanted or None, "sends are not acknowledged again")

    async def healed(self) -> None:
        """Wait until all replicas are in the set, and have the same log."""
        group = self.group
        await asyncio.to_thread(group.wait_for_etcd)

        def is_healed() -> bool | None:
            info, members = group.info()
            if info.master_broker_id is None or len(members) != len(group.replicas):
                return None
            logs = [group.log_end(name) for name in group.replicas.values()]
            return logs.count(logs[0]) == len(logs) or None

        await poll(is_healed, "the group does not heal", self.heals_within_s)
        await asyncio.to_thread(group.forget_equal)

    def _members(self) -> list[str]:
        return self.rng.sample(self.group.etcd, len(self.group.etcd))
