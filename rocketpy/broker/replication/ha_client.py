"""Connection of a slave to its master: finds the protocol, proves itself, and copies the log.

Everything runs on the loop that calls `start`.

Source: DefaultHAClient (5.4.0).
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import structlog

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.replication.config import HaProtocol, ReplicationConfig
from rocketpy.broker.replication.handshake import PairIdentity
from rocketpy.broker.replication.master_link import LinkEnd, MasterLink
from rocketpy.broker.replication.replica_state import (
    REFUSED_STATES,
    TRANSITIONS,
    Event,
    ReplicaState,
    State,
    event_of,
)
from rocketpy.broker.replication.store_log import LogCopy
from rocketpy.errors import RocketPyError
from rocketpy.proto.replication.pair_frames import VERSION
from rocketpy.remoting.network.network import Network
from rocketpy.runtime.clock import Clock

logger: Any = structlog.get_logger(__name__)

_CONNECT_S: Final = 5.0
_ELECTED_PAUSE_MS: Final = 20
_ELECTED_PAUSES: Final = 25
_REPLACED: Final = "another master was elected"


class MasterAddresses(Protocol):
    """Addresses of a master: `rocketpy.broker.cluster.master_address`."""

    @property
    def address(self) -> str:
        """Address for ordinary requests; empty: unknown."""
        ...

    @property
    def ha_address(self) -> str:
        """Address of the HA port; empty: unknown."""
        ...


class HaClient:
    """Connection of one slave.

    Args:
        config: settings.
        identity: this broker, as the handshake names it.
        copy: the log that is written.
        network: for connecting.
        tls: returns the context for the HA port; None without `haTlsEnable`.
        master: returns the master's addresses.
        ask_protocol: asks the ordinary port of a master for `pairProtocol`; 0 if it has none.
        clock: time.
        new_nonce: returns 32 fresh random bytes.
        membership: of a group with a controller.

    Attributes:
        state: state of the slave.
        link: current connection; None without one.
    """

    def __init__(  # noqa: PLR0913 - all dependencies are injected here
        self,
        config: ReplicationConfig,
        *,
        identity: PairIdentity,
        copy: LogCopy,
        network: Network,
        tls: Callable[[], ssl.SSLContext] | None,
        master: Callable[[], MasterAddresses],
        ask_protocol: Callable[[str], Awaitable[int]],
        clock: Clock,
        new_nonce: Callable[[], bytes],
        membership: Membership | None = None,
    ) -> None:
        # A master that was just elected is about to listen.
        self.state: ReplicaState = (
            ReplicaState()
            if membership is None
            else ReplicaState(first_pause_ms=_ELECTED_PAUSE_MS, first_pauses=_ELECTED_PAUSES)
        )
        self.link: MasterLink | None = None
        self._config = config
        self._identity = identity
        self._copy = copy
        self._network = network
        self._tls = tls
        self._master = master
        self._ask_protocol = ask_protocol
        self._clock = clock
        self._new_nonce = new_nonce
        self._membership = membership
        self._changed = asyncio.Event()
        self._elections = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def ha_address(self) -> str:
        """Address of the master's HA port; empty: unknown."""
        return self._master().ha_address

    def start(self) -> None:
        """Follow the master, once it is known."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Close the connection; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=1.0)
        if self.link is not None:
            self.link.abort("the broker stops")

    def master_changed(self) -> None:
        """Note that the master's addresses have changed."""
        self._changed.set()
        if self.link is not None and self.link.ha_address != self._master().ha_address:
            self.link.abort("the master has another address")

    def master_elected(self) -> None:
        """Leave the previous master for an elected one, perhaps at the same address."""
        self._elections += 1
        self.state.master_elected()
        self._changed.set()
        if self.link is not None:
            self.link.abort(_REPLACED)

    # -- connection attempts -----------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_once()
            except (OSError, TimeoutError, RocketPyError) as error:
                self._lost(str(error) or type(error).__name__)
            except Exception as error:
                # Continues: one fault must not end the replication.
                logger.exception("replication failed")
                self._lost(repr(error))
            await self._pause()

    def _lost(self, reason: str) -> None:
        if (self.state.state, Event.LOST) in TRANSITIONS:
            self._on(Event.LOST, reason)

    async def _follow_once(self) -> None:
        """Follow the master until the connection ends."""
        master, elections = self._master(), self._elections
        if not master.ha_address:
            if self.state.state is not State.NO_MASTER:
                self._on(Event.MASTER_UNKNOWN)
            return
        if self.state.state is State.NO_MASTER:
            self._on(Event.MASTER_KNOWN)
        elif self.state.state in REFUSED_STATES:
            self._on(Event.RETRIED)
        protocol = await self._protocol_of(master)
        host, _, port = master.ha_address.rpartition(":")
        host = host.strip("[]")
        if protocol is not HaProtocol.PAIR and not self._config.allows_classic(host):
            reason = (
                f"the master at {master.ha_address} does not speak the pair protocol, and its "
                "address is not in haAllowedPeers"
            )
            self._on(Event.REFUSED, reason)
            return
        link = MasterLink(
            master.ha_address,
            config=self._config,
            identity=self._identity,
            copy=self._copy,
            protocol=protocol,
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            nonce=self._new_nonce(),
            on_event=self._on,
            on_data=self.state.data_arrived,
            membership=self._membership,
        )
        is_pair = protocol is HaProtocol.PAIR
        tls = self._tls() if is_pair and self._tls is not None else None
        async with asyncio.timeout(_CONNECT_S):
            await self._network.connect(lambda: link, host, int(port), tls=tls)
        self.link = link
        try:
            if elections != self._elections:  # while it connected
                raise ConnectionAbortedError(_REPLACED)
            self._ended(await link.ended)
        finally:
            self.link = None
            link.abort("the slave leaves")

    async def _protocol_of(self, master: MasterAddresses) -> HaProtocol:
        if await self._speaks_pair(master):
            return HaProtocol.PAIR
        return HaProtocol.CLASSIC if self._membership is None else HaProtocol.AUTO_SWITCH

    async def _speaks_pair(self, master: MasterAddresses) -> bool:
        """Return whether the master speaks the pair protocol, and this slave can."""
        if not self._config.has_pair_protocol:
            return False
        if not master.address:
            return True
        return 0 < await self._ask_protocol(master.address) <= VERSION

    def _ended(self, end: LinkEnd) -> None:
        if end.refusal is not None:
            self._on(event_of(end.refusal), end.reason)
        else:
            self._lost(end.reason)

    async def _pause(self) -> None:
        """Wait before the next attempt, or until the master's address changes."""
        self._changed.clear()
        timeout_s: float | None = self.state.pause_ms() / 1_000
        if self.state.state is State.NO_MASTER:
            timeout_s = None
            if self._master().ha_address:
                return
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _on(self, event: Event, reason: str = "") -> None:
        """Process an event, and log it when it changes the state or the reason."""
        state = self.state.on(event, reason)
        if not self.state.is_new:
            return
        fields = {"state": state.name, "master": self._master().ha_address, "reason": reason}
        if state in REFUSED_STATES:
            logger.error("replication refused", **fields)
        elif event in {Event.LOST, Event.WRITE_FAILED}:
            logger.warning("replication interrupted", **fields)
        elif event in {Event.RETRIED, Event.CONNECTED}:
            # Steps of an attempt, repeated as long as the master refuses this slave.
            logger.debug("replication attempted", **fields)
        else:
            logger.info("replication state changed", **fields)
