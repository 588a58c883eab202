"""Parts of slave acting master in one broker, with `enableSlaveActingMaster`."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from rocketpy.broker.acting.acting_state import ActingState
from rocketpy.broker.acting.escape import EscapeWriter
from rocketpy.broker.acting.gate import GatedService
from rocketpy.broker.acting.member_poll import MemberPoll, Members
from rocketpy.broker.acting.pre_online import PreOnline, SlaveProgress
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.name_server_link import NameServerLink
from rocketpy.broker.feature import Feature
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.pop.acting import PopEscape
from rocketpy.broker.pop.revive.revive_sink import ReviveSink
from rocketpy.proto.pop import revive_topic
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import Service
from rocketpy.store.interfaces import MessageWriter

_log = structlog.get_logger(__name__)


class ActingMaster:
    """State of one slave; lives on the broker's loop, its flags are read on any thread.

    Args:
        broker_id: id of the slave.
        clock: time.
    """

    def __init__(self, broker_id: int, clock: Clock) -> None:
        self._machine = ActingState(broker_id)
        self._clock = clock

    @property
    def is_acting(self) -> bool:
        """Whether clients see this slave as the master."""
        return self._machine.is_acting

    @property
    def delivers(self) -> bool:
        """Whether this slave delivers due messages."""
        return self._machine.delivers

    def members(self, members: Members) -> None:
        """Apply the registered members of the group."""
        self._note(changed=self._machine.members(members, self._clock.monotonic_ms()))

    def master_asks(self) -> None:
        """Apply a request of the returning master (906)."""
        self._note(changed=self._machine.master_asks(self._clock.monotonic_ms()))

    def _note(self, *, changed: bool) -> None:
        if changed:
            _log.info("acting master state changed", state=self._machine.state.name)


class ActingParts:
    """Parts of one broker.

    Args:
        client: connections.
        configs: current settings.
        identity: names and addresses of the broker.
        topics: topic table.
        name_servers: registration, and routes.
        store: the store.
        clock: time.
        rng: chooses queues.

    Attributes:
        poll: heartbeats and members of the group.
        slave: state of a slave; None at a master.
        escape: sends due messages to another group, at a slave with `enableRemoteEscape`.
        pop_escape: the same, for messages that were popped.
        gates: services that deliver due messages.
        pre_online: at a master without `skipPreOnline`.
    """

    def __init__(
        self,
        client: RemotingClient,
        *,
        configs: LiveBrokerConfig,
        identity: BrokerIdentity,
        topics: TopicTable,
        name_servers: NameServerLink,
        store: MessageWriter,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._configs = configs
        self._identity = identity
        self._clock = clock
        self.poll: MemberPoll = MemberPoll(
            client, configs=configs, identity=identity, topics=topics
        )
        self.slave: ActingMaster | None = None
        self.escape: EscapeWriter | None = None
        self.pop_escape: PopEscape | None = None
        self.gates: list[GatedService] = []
        self.pre_online: PreOnline | None = None
        if not configs.store.is_slave:
            return
        self.slave = ActingMaster(configs.broker.broker_id, clock)
        self.poll.on_members = self.slave.members
        if configs.broker.enable_remote_escape:
            self.escape = EscapeWriter(
                store,
                client,
                name_servers.fetch_route,
                identity=identity,
                clock=clock,
                rng=rng,
            )
            sink = self.escape.sink = ReviveSink(
                revive_topic(configs.broker.broker_cluster_name), lambda: self.delivers
            )
            self.pop_escape = PopEscape(self.escape, sink, self.escape.route_topics)

    @property
    def is_acting(self) -> bool:
        """Whether clients see this slave as the master."""
        return self.slave is not None and self.slave.is_acting

    @property
    def delivers(self) -> bool:
        """Whether this broker delivers due messages; callable on any thread."""
        if self.slave is not None:
            return self.slave.delivers
        return self.is_online

    @property
    def is_online(self) -> bool:
        """Whether a master knows the progress of its slaves; callable on any thread."""
        return self.pre_online is None or self.pre_online.is_online

    def limit(self, features: Sequence[Feature]) -> tuple[Feature, ...]:
        """Return the features with gates around the services that deliver due messages."""
        if self.slave is not None:
            gate = None if self.escape is None else self._gate
            return tuple(each.of_slave(gate) for each in features)
        return tuple(each.gated(self._gate) for each in features)

    def expect_progress(self, progress: SlaveProgress) -> None:
        """Let a master take the progress of its slaves before it registers."""
        if self.slave is None and not self._configs.broker.skip_pre_online:
            self.pre_online = PreOnline(
                self._client,
                self.poll,
                identity=self._identity,
                progress=progress,
                clock=self._clock,
            )

    def _gate(self, service: Service) -> Service:
        gate = GatedService(service, lambda: self.delivers)
        self.gates.append(gate)
        return gate

    async def start(self, register: Callable[[], Awaitable[None]]) -> None:
        """Register at once, or when the progress of the slaves is known; then poll."""

        async def online() -> None:
            await register()
            self.poll.start()

        if self.escape is not None:
            self.escape.loop = asyncio.get_running_loop()
        if self.pre_online is None:
            await online()
        else:
            self.pre_online.start(online)

    async def stop(self) -> None:
        """Stop; idempotent."""
        if self.pre_online is not None:
            await self.pre_online.stop()
        await self.poll.stop()
