"""Replica of a broker group with a controller: runs one broker at a time, in the role it has.

A change of roles stops the broker and starts one of the other role on the same directory and port.
A slave stays when only its master changes.
docs/failover.md has the states and rules. Everything runs on the loop that calls `start`.

Source: ReplicasManager, AutoSwitchHAService (5.4.0)
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from rocketpy.broker.broker import Broker
from rocketpy.broker.clients.expected_members import EXPECTED_MS
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.failover.controller_client import ControllerClient, GroupInfo, ReplicaStatus
from rocketpy.broker.failover.known_controller import KnownController
from rocketpy.broker.failover.log_cut import CutRetention, cut_log, finish_log_cut, least_end
from rocketpy.broker.failover.mastership import Mastership
from rocketpy.broker.failover.node_settings import NodeSettings
from rocketpy.broker.failover.node_state import Assignment, MasterInfo, NodeRole, NodeState
from rocketpy.broker.failover.requests import add_node_requests, runtime_info
from rocketpy.broker.failover.shared_call import SharedCall, run_to_end
from rocketpy.broker.request_table import RequestTable
from rocketpy.errors import RocketPyError, StoreError
from rocketpy.proto.replication.epochs import Epochs, epochs_before, with_epoch
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.network.network import Network
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.runtime.readiness import NotReady
from rocketpy.runtime.service import Service, ServiceRunner
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.replication.epoch_file import (
    BrokerIdentityFile,
    EpochFile,
    read_identity,
    write_identity,
)

_log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0
_TICK_S: Final = 0.1
"""Pause between two checks of the sync-state set."""
_JOIN_TICK_S: Final = 0.01
"""The same while sends are refused because too few replicas have joined a new master."""
_HAND_OVER_S: Final = 1.0
"""Longest wait for the needed replicas; sends are refused meanwhile."""
_LAST_TABLES_S: Final = 0.5
"""Longest wait for the last tables of the old master; the group has no new master meanwhile."""
_POLL_S: Final = 0.01
_NOTICE_PAUSE_MS: Final = 100
"""Least time between two requests to the controller that notifications (1008) cause."""


class ReplicaNode:
    """Replica in this process.

    Args:
        settings: settings of the replica.
        clock: time.
        rng: chooses queues and retry pauses.
        files: the file system.
        network: for listening and connecting; None: sockets of the machine.
        threads: see `Broker`.
        run: see `Broker`.

    Attributes:
        broker: the running broker; None between two roles, and while no master is known.

    Raises:
        ConfigError: settings contradict each other.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        files: StoreFiles | None = None,
        network: Network | None = None,
        threads: bool = True,
        run: Callable[[Service, Clock], ServiceRunner] | None = None,
    ) -> None:
        settings.check()
        self.broker: Broker | None = None
        self._settings = settings
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._files = files or RealFiles()
        self._network = network
        self._threads = threads
        self._run = run
        self._root = Path(settings.store.store_path_root_dir)
        identity = BrokerIdentity(settings.broker)
        identity.listens_on(settings.broker.listen_port)
        self._address = identity.address
        self._remoting = RemotingClient(
            settings.client, clock=self._clock, rng=self._rng, network=network
        )
        self._known = KnownController(self._root, self._files)
        self._client = ControllerClient(
            self._remoting,
            settings.failover.controller_addresses,
            cluster=settings.broker.broker_cluster_name,
            name=settings.broker.broker_name,
            known=self._known,
        )
        self._epochs = EpochFile(self._root, self._files)
        self._cuts = CutRetention(settings.store, self._files, self._clock)
        self._id = 0
        # Id that is applied for, and the text that proves it.
        self._applied = 0
        self._code = ""
        self._state = NodeState(0)
        self._info = GroupInfo(MasterInfo())
        self._mastership: Mastership | None = None
        self._cut_at: int | None = None
        self._last_end = 0
        # The log reaches this offset; its end is unknown until a broker has recovered it.
        self._least_end = 0
        self._members: Mapping[str, list[str]] = {}
        self._changed = asyncio.Event()
        # Set when a mastership begins: its replicas are waited for at once.
        self._elected = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._is_registered = False
        self._must_ask = False
        self._is_asked = SharedCall(self._is_hand_over_asked, _NOTICE_PAUSE_MS, self._clock)
        self._ask_again_ms = 0

    # -- state -------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return self._address

    @property
    def broker_id(self) -> int:
        """Id that the controller has given; 0 before."""
        return self._id

    @property
    def role(self) -> NodeRole:
        """Role that the replica has taken."""
        return self._state.current.role

    @property
    def master(self) -> MasterInfo:
        """Newest known master."""
        return self._state.known

    @property
    def epochs(self) -> Epochs:
        """Epoch list of the log."""
        return self._epochs.epochs

    @property
    def send_path(self) -> str:
        """Path of fast-path eligible sends: `compiled` or `python`."""
        return "python" if self.broker is None else self.broker.send_path

    @property
    def mastership(self) -> Mastership | None:
        """Current mastership; None while this replica is not the master."""
        return self._mastership

    def not_ready(self) -> list[NotReady]:
        """Return why clients are not served; empty if they are."""
        broker = self.broker
        if broker is None and self._known.problem:
            return [NotReady("other_controller", self._known.problem)]
        if broker is None:
            return [NotReady("waiting_for_master", "no controller has named a master yet")]
        return broker.not_ready()

    # -- start and stop ----------------------------------------------------------------------

    async def start(self) -> None:
        """Read the files of the replica, and join the group in the background.

        Raises:
            StoreError: the files of the replica are damaged, or of another broker, or another
                process uses the directory.
            OSError: the disk failed.
        """
        # The lock first: a registration would end the mastership of a running process.
        self._files.make_directories(self._root)
        finish_log_cut(self._settings.store, self._files)
        self._epochs.load()
        self._least_end = least_end(self._settings.store, self._files, self.epochs)
        self._load_identity()
        spawn = asyncio.get_running_loop().create_task
        self._tasks = [
            spawn(self._repeat(self._join_and_follow)),
            spawn(self._repeat(self._beat)),
            spawn(self._repeat(self._watch_set)),
        ]

    async def stop(self) -> None:
        """Hand the mastership over, if another replica can take it, and stop; idempotent."""
        self._is_stopping = True
        await self._resign()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await self._stop_broker()
        await self._remoting.close()

    async def _resign(self) -> None:
        """Refuse sends, and ask for another master, if this replica is the master."""
        if (mastership := self._mastership) is None:
            return
        with contextlib.suppress(RocketPyError, TimeoutError):
            async with asyncio.timeout(3 * _HAND_OVER_S):
                mastership.end()
                await self.hand_over()
                info = await self._client.elect(self._id, hand_over=mastership.master.epoch)
                if info is not None:
                    await self._serve_elected(info)
                    self.observe(info)

    async def hand_over(self) -> bool:
        """Refuse sends, flush the log, and wait at most 1 s until the needed replicas have it.

        Returns:
            Whether this replica is the master and refuses sends now.
        """
        broker, mastership = self.broker, self._mastership
        if broker is None or mastership is None:
            return False
        server = broker.parts.replication.server
        if server is None or not mastership.hand_over():
            return False
        for feature in broker.parts.features:
            feature.hand_over()
        # The progress that the elected replica takes counts what is on disk; the rest is repeated.
        flush = asyncio.ensure_future(asyncio.to_thread(broker.parts.store.flush_log))
        deadline_ms = self._clock.monotonic_ms() + int(_HAND_OVER_S * 1_000)
        while self._clock.monotonic_ms() < deadline_ms:
            server.membership_changed()
            if server.acknowledgements.confirmed_end >= server.log.end_phy_offset:
                break
            await asyncio.sleep(_POLL_S)
        await asyncio.wait({flush}, timeout=_HAND_OVER_S)
        return True

    async def hand_over_if_asked(self) -> bool:
        """Hand over (1008) if the controller confirms it: any client can send that request.

        Returns:
            Whether this replica is the master and refuses sends now.
        """
        return self._mastership is not None and await self._is_asked() and await self.hand_over()

    async def _is_hand_over_asked(self) -> bool:
        return (await self._client.heartbeat(self._id, self._status())).hands_over

    async def _serve_elected(self, info: GroupInfo) -> None:
        """Wait until the elected replica has the last tables: it closes its connection then."""
        server = None if self.broker is None else self.broker.parts.replication.server
        deadline_ms = self._clock.monotonic_ms() + int(2 * _LAST_TABLES_S * 1_000)
        while server is not None and self._clock.monotonic_ms() < deadline_ms:
            if all(each.broker_id != info.master.master_id for each in server.streaming):
                return
            await asyncio.sleep(_POLL_S)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except (RocketPyError, OSError, TimeoutError) as error:
                _log.warning("replica step failed", step=step.__name__, error=str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception:  # noqa: BLE001 - as a service runner: one fault must not end it
                # The replica must not leave its group because of one fault.
                _log.exception("replica step failed", step=step.__name__)
                await asyncio.sleep(_RETRY_S)

    # -- joining -----------------------------------------------------------------------------

    def _load_identity(self) -> None:
        broker = self._settings.broker
        found = read_identity(self._root, self._files)
        if found is None:
            return
        if (found.cluster, found.name) != (broker.broker_cluster_name, broker.broker_name):
            raise StoreError(
                f"{self._root} belongs to broker {found.name} of {found.cluster}, not to "
                f"{broker.broker_name} of {broker.broker_cluster_name}"
            )
        self._set_id(found.broker_id)
        self._known.load()

    def _set_id(self, broker_id: int) -> None:
        self._id = broker_id
        self._state = NodeState(broker_id, self._address)

    async def _get_id(self) -> None:
        broker = self._settings.broker
        # The code is kept for the next attempt: for the same code the controller gives an id
        # again whose answer was lost, or that could not be written. A group has few ids.
        self._code = self._code or f"{self._address};{self._clock.time_ms()}"
        while True:
            wanted = self._applied = self._applied or await self._client.next_id()
            if await self._client.apply_id(wanted, self._code):
                break
            self._applied = 0
        # Written before it is used: a lost id would leave a member that never returns.
        identity = BrokerIdentityFile(broker.broker_cluster_name, broker.broker_name, wanted)
        write_identity(self._root, self._files, identity)
        self._set_id(wanted)
        _log.info("broker id given", broker_id=wanted)

    async def _join_and_follow(self) -> None:
        if not self._id:
            await self._get_id()
        if not self._is_registered:
            # Only once: a registration ends the mastership of the previous process.
            await self._client.register(self._id, self._address)
            self._is_registered = True
            await self._send_heartbeat()
        while True:
            await self._settle()
            if self._cuts.is_due:
                await asyncio.get_running_loop().run_in_executor(None, self._cuts.check)
            self._changed.clear()
            has_master = self._state.known.master_id is not None
            period_s = self._settings.failover.sync_broker_metadata_period / 1_000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period_s if has_master else _RETRY_S):
                    await self._changed.wait()
            if self._must_ask or not self._changed.is_set():
                self._must_ask = False
                await self._ask()

    async def _ask(self) -> None:
        """Ask for the master, or for an election while there is none; not too often."""
        wait_ms = self._ask_again_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1_000)
        self._ask_again_ms = self._clock.monotonic_ms() + _NOTICE_PAUSE_MS
        if self._state.known.master_id is None:
            info = await self._client.elect(self._id)
        else:
            info = await self._client.replica_info()
        if info is not None:
            self.observe(info)

    # -- answers of the controller -----------------------------------------------------------

    def check(self) -> None:
        """Ask the controller for the master soon (1008)."""
        self._must_ask = True
        self._changed.set()

    def observe(self, info: GroupInfo) -> None:
        """Apply the state of the group from an answer of the controller."""
        known = self._info
        if (info.master.epoch, info.set_epoch) >= (known.master.epoch, known.set_epoch):
            self._info = info
        if self._state.observe(info.master):
            _log.info(
                "master known",
                master=info.master.master_id,
                address=info.master.address,
                epoch=info.master.epoch,
            )
            self._changed.set()
        mastership = self._mastership
        if mastership is not None and info.members and info.master == mastership.master:
            mastership.set_stored(info.members, info.set_epoch)

    async def _beat(self) -> None:
        await asyncio.sleep(self._settings.failover.broker_heartbeat_interval / 1_000)
        if self._is_registered:
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        sent_ms = self._clock.monotonic_ms()
        answer = await self._client.heartbeat(self._id, self._status())
        if answer.info is None:
            return
        self.observe(answer.info)
        mastership = self._mastership
        if (
            mastership is not None
            and answer.lease_ms is not None
            and answer.info.master == mastership.master
        ):
            mastership.lease_renewed(sent_ms, answer.lease_ms)

    def _status(self) -> ReplicaStatus:
        config = self._settings.failover
        # Between two roles the log stays as it was.
        end = confirmed = self._last_end
        if self.broker is not None:
            parts = self.broker.parts
            end = confirmed = parts.store.max_phy_offset
            server = parts.replication.server
            if server is not None:
                confirmed = server.acknowledgements.confirmed_end
        mastership = self._mastership
        return ReplicaStatus(
            address=self._address,
            epoch=self._epochs.number_at(max(end, self._least_end)),
            end=end,
            confirmed=confirmed,
            timeout_ms=config.controller_heart_beat_timeout_mills,
            priority=config.broker_election_priority,
            needs_all=config.all_ack_in_sync_state_set,
            set_epoch=max(self._info.set_epoch, 0 if mastership is None else mastership.set_epoch),
            leads=mastership.master.epoch if mastership is not None and mastership.awaited else 0,
            members=frozenset() if mastership is None else mastership.awaited,
            known_epoch=self._epochs.newest,
        )

    async def _watch_set(self) -> None:
        is_joining = self._mastership is not None and self._mastership.is_joining
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_JOIN_TICK_S if is_joining else _TICK_S):
                await self._elected.wait()
        self._elected.clear()
        broker, mastership = self.broker, self._mastership
        if broker is not None and mastership is not None:
            server = broker.parts.replication.server
            if server is not None:
                await mastership.tick(server, self._client)
            if broker.parts.store.has_failed:  # until the next role opens it again
                await self._resign()
                await asyncio.sleep(_RETRY_S)

    # -- roles -------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Take the role that is due."""
        if self._cut_at is not None:
            await self._cut(self._cut_at)
            self._cut_at = None
        while (due := self._state.due) is not None and not self._is_stopping:
            began_ms = self._clock.monotonic_ms()
            if due.role is self.role is NodeRole.SLAVE and self.broker is not None:
                self._state.taken(due)
                self.broker.follow(due.master.address)
                _log.info("another master followed", epoch=due.master.epoch)
                continue
            if due.role is NodeRole.MASTER and self.broker is not None:
                # A master that hands over waits for this fetch; a lost one refuses connections.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_TABLES_S):
                        await self.broker.follow_last()
            await self._stop_broker()
            self._state.released()
            if due.role is NodeRole.WAITING:
                _log.error(
                    "replica ended, another process has its broker id: check brokerIdentity",
                    broker_id=self._id,
                    address=self._address,
                    other=due.master.address,
                )
                return
            await self._take(due)
            self._state.taken(due)
            if (
                due.role is NodeRole.MASTER
                and not self._settings.failover.all_ack_in_sync_state_set
            ):
                # The answer has the lease, without which nothing is acknowledged.
                await self._send_heartbeat()
            _log.info(
                "role taken",
                role=due.role.value,
                epoch=due.master.epoch,
                took_ms=self._clock.monotonic_ms() - began_ms,
            )

    async def _take(self, due: Assignment) -> None:
        is_master = due.role is NodeRole.MASTER
        failover, now_ms = self._settings.failover, self._clock.monotonic_ms
        mastership: Mastership | None = None
        if is_master:
            info = self._info if self._info.master == due.master else GroupInfo(due.master)
            mastership = Mastership(
                self._id,
                info,
                min_in_sync=self._min_in_sync,
                needs_all=failover.all_ack_in_sync_state_set,
                not_level_ms=failover.ha_max_time_slave_not_catchup,
                now_ms=now_ms,
            )
        membership = self._membership(due, mastership)
        broker = self._build(due, membership)
        broker.parts.consumers.expect(self._members, now_ms() + EXPECTED_MS)

        async def start() -> None:
            await broker.start()
            self.broker, self._mastership = broker, mastership
            self._least_end = 0
            if mastership is not None:
                self._elected.set()

        # To the end also when cancelled: a broker that has started must be stopped.
        await run_to_end(start())

    def _membership(self, due: Assignment, mastership: Mastership | None) -> Membership:
        if mastership is None:
            return Membership(
                master_epoch=lambda: max(due.master.epoch, self._state.current.master.epoch),
                master_address=due.master.address,
                epochs=lambda: self.epochs,
                on_diverged=self._diverged,
                on_followed=self._epochs.save,
                add_requests=self._add_requests,
                runtime_info=self._runtime_info,
            )

        def opened(end: int) -> None:
            # On disk before the first message of the epoch.
            self._epochs.save(with_epoch(self._epochs.epochs, due.master.epoch, end))
            mastership.opened(end)

        return Membership(
            epoch=due.master.epoch,
            epochs=lambda: self.epochs,
            needed=mastership.needed,
            may_acknowledge=mastership.may_acknowledge,
            send_refusal=mastership.send_refusal,
            on_open=opened,
            add_requests=self._add_requests,
            runtime_info=self._runtime_info,
        )

    def _add_requests(self, table: RequestTable) -> None:
        add_node_requests(table, self)

    def _runtime_info(self) -> dict[str, str]:
        lease_ms = None if self._mastership is None else self._mastership.lease_ms
        return runtime_info(self._settings.failover, self._min_in_sync(), lease_ms)

    def _min_in_sync(self) -> int:
        broker = self.broker
        return self._settings.min_in_sync(None if broker is None else broker.parts.configs)

    def _build(self, due: Assignment, membership: Membership) -> Broker:
        settings, is_master = self._settings, due.role is NodeRole.MASTER
        return Broker(
            replace(settings.broker, broker_id=0 if is_master else self._id),
            store_config=replace(
                settings.store, broker_role="SYNC_MASTER" if is_master else "SLAVE"
            ),
            server_config=settings.server,
            client_config=settings.client,
            clock=self._clock,
            rng=self._rng,
            files=self._files,
            network=self._network,
            threads=self._threads,
            run=self._run,
            replication=replace(settings.replication, membership=membership),
        )

    async def _stop_broker(self) -> None:
        broker, self.broker = self.broker, None
        self._mastership = None
        if broker is not None:
            self._last_end = broker.parts.store.max_phy_offset
            # The next broker must not undo what was changed while this one ran.
            self._settings = self._settings.following(broker.parts.configs)
            # Read before the connections close, which removes the members.
            self._members = broker.parts.consumers.members()
            await run_to_end(broker.stop())

    def _diverged(self, end: int) -> None:
        """Note where the log must be cut; the broker stops first."""
        self._cut_at = end
        self._changed.set()

    async def _cut(self, end: int) -> None:
        await self._stop_broker()
        self._state.released()
        self._last_end = end
        # The log first: after a crash in between, `equal_end` skips entries beyond the log's end.
        await asyncio.get_running_loop().run_in_executor(
            None, cut_log, self._settings.store, self._files, end
        )
        self._epochs.save(epochs_before(self._epochs.epochs, end))
