"""One broker: builds every part, hands each only what it needs, starts and stops them in order.

Start: store, tables, port, name servers. Stop, the other way round: say good-bye to the name
servers, take no more connections, finish what is in hand, write the tables, close the store.

Source: BrokerController.java (5.4.0).
"""

import asyncio
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from rocketpy.broker.admin import build_processors
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.config_holder import ConfigHolder
from rocketpy.broker.consumer_offsets import ConsumerOffsets
from rocketpy.broker.identity import BrokerIdentity
from rocketpy.broker.long_polling import PullRequestHold
from rocketpy.broker.name_server import NameServerLink
from rocketpy.broker.page_cache_estimate import PageCacheEstimate, total_memory_bytes
from rocketpy.broker.parts import BrokerParts
from rocketpy.broker.pools import build_pools
from rocketpy.broker.processor.client_manage import ClientManageProcessor
from rocketpy.broker.processor.consumer_manage import ConsumerManageProcessor
from rocketpy.broker.processor.lock import LockProcessor
from rocketpy.broker.processor.offsets import OffsetProcessor
from rocketpy.broker.processor.pull_message import PullMessageProcessor
from rocketpy.broker.processor.query_assignment import QueryAssignmentProcessor
from rocketpy.broker.processor.query_message import QueryMessageProcessor
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.broker.processor.send_rules import SendRules
from rocketpy.broker.put_counter import PutCounter
from rocketpy.broker.queue_locks import QueueLocks
from rocketpy.broker.registry import ConsumerTable, ProducerTable
from rocketpy.broker.request_modes import MessageRequestModes
from rocketpy.broker.request_table import Guard, RequestTable
from rocketpy.broker.stats import BrokerStats
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topic_queues import TopicQueues
from rocketpy.broker.topics import TopicTable
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.dispatch import Processor, Response
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.runtime.live_settings import LiveSettings
from rocketpy.runtime.service import LoopServices, ServiceThread, run_services_on_loop
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files import RealFiles, StoreFiles
from rocketpy.store.json_file import JsonFile
from rocketpy.store.message_store import MessageStore

logger = structlog.get_logger(__name__)

_VIP_PORT_DISTANCE: Final = 2
_NOT_ON_VIP_PORT: Final = frozenset(
    {int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)}
)
_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_TOPIC_MAKERS: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
)


class Broker:
    """A broker in this process; any number of them may live side by side.

    Args:
        config: names, address, limits; its `listen_port` is where the broker listens.
        store_config: the store directory and how it is kept.
        server_config: the remoting server; its own listen port is not used.
        client_config: the line to the name servers.
        clock: time.
        rng: chooses queues and retry pauses.
        files: the file system; the real one by default.
        guard: sees every request before its processor; None lets all of them pass.

    Attributes:
        requests: every request it answers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store_config: MessageStoreConfig,
        server_config: RemotingServerConfig | None = None,
        client_config: RemotingClientConfig | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        files: StoreFiles | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._clock = clock = clock or SystemClock()
        self._rng = rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        server_config = replace(
            server_config or RemotingServerConfig(), listen_port=config.listen_port
        )
        files = files or RealFiles()
        self._configs = ConfigHolder(
            config, store_config, server_config, clock, _live_settings(store_config, files)
        )
        client = RemotingClient(client_config or RemotingClientConfig(), clock=clock, rng=rng)
        self._parts = parts = _build_parts(self._configs, client, clock, files)
        self._identity = parts.identity
        self._store = parts.store
        self._topics, self._groups, self._offsets = parts.topics, parts.groups, parts.offsets
        self._holds = parts.holds
        self._name_servers = parts.name_servers
        self._tally = PutCounter(parts.stats)
        self._rules = SendRules(
            parts.topics,
            parts.groups,
            clock,
            max_body_bytes=store_config.max_message_size,
            unavailable_reason=lambda: self._store.read_only_reason,
        )
        self._sends = self._build_sends()
        self._pulls = _build_pulls(parts)
        self._clients = ClientManageProcessor(
            configs=self._configs,
            topics=parts.topics,
            groups=parts.groups,
            producers=parts.producers,
            consumers=parts.consumers,
            clock=clock,
        )
        root = Path(store_config.store_path_root_dir) / "config"
        self._modes = MessageRequestModes(JsonFile(root / "messageRequestMode.json", files))
        self._servers: list[RemotingServer] = []
        self._loop_services: LoopServices | None = None
        self._threads: list[ServiceThread] = []
        self.requests = self._build_requests(guard)
        self._wire()

    @property
    def port(self) -> int:
        """Where it listens; 0 before `start`."""
        return self._servers[0].port if self._servers else 0

    @property
    def address(self) -> str:
        """``host:port`` as told to clients; empty before `start`."""
        return self._identity.address

    @property
    def parts(self) -> BrokerParts:
        """What it is made of, for tools and tests in the same process."""
        return self._parts

    async def start(self) -> None:
        """Open the store, listen, register.

        Raises:
            StoreError: the store directory cannot be used.
            StartError: the port is taken.
        """
        self._store.open()
        try:
            for table in (self._topics, self._groups, self._offsets, self._modes):
                table.load()
            await self._listen()
        except BaseException:
            await self._stop_servers()
            self._store.close()
            raise
        self._store.start()
        self._loop_services = run_services_on_loop((self._holds, self._clients), self._clock)
        self._threads = [ServiceThread(one, self._clock) for one in (self._offsets, self._tally)]
        for thread in self._threads:
            thread.start()
        await self._name_servers.start()
        logger.info(
            "broker started",
            broker_name=self._identity.broker_name,
            cluster=self._identity.cluster_name,
            address=self._identity.address,
            name_servers=";".join(self._name_servers.addresses),
        )

    async def stop(self) -> None:
        """Say good-bye, finish what is in hand, write everything down."""
        await self._name_servers.stop()
        if self._loop_services is not None:
            self._loop_services.stop()
            self._loop_services = None
        self._holds.forget_all()
        await self._stop_servers()
        loop = asyncio.get_running_loop()
        for thread in self._threads:
            await loop.run_in_executor(None, thread.stop)
        self._threads.clear()
        for table in (self._topics, self._groups, self._offsets):
            table.persist()
        await loop.run_in_executor(None, self._store.close)
        logger.info("broker stopped", broker_name=self._identity.broker_name)

    async def _listen(self) -> None:
        main = self._build_server(self._configs.server, "broker")
        self.requests.register_on(main)
        await main.start()
        # No connection is served before the loop turns again, so nobody sees the old address.
        self._identity.listens_on(main.port)
        self._sends.listens_on(self._identity.store_host)
        self._store.store_host = self._identity.store_host
        if self._configs.broker.fast_listen_enable:
            config = replace(self._configs.server, listen_port=main.port - _VIP_PORT_DISTANCE)
            fast = self._build_server(config, "broker-vip")
            self.requests.register_on(fast, without=_NOT_ON_VIP_PORT)
            await fast.start()

    async def _stop_servers(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))
        self._servers.clear()

    def _build_server(self, config: RemotingServerConfig, name: str) -> RemotingServer:
        server = RemotingServer(config, clock=self._clock, name=name)
        server.add_listener(_CloseListener(self._clients, self._holds))
        self._servers.append(server)
        return server

    def _build_requests(self, guard: Guard | None) -> RequestTable:
        """Every request code with its processor and the pool it runs on."""
        store, parts = self._store, self._parts
        table = RequestTable(parts.pools, guard)
        admin = build_processors(parts)
        for code in _TOPIC_MAKERS:
            admin[code] = self._then_announced(admin[code])
        table.add("adminBroker", admin)
        table.add("send", dict.fromkeys(_SENDS, self._sends.process))
        table.add("pull", {RequestCode.PULL_MESSAGE: self._pulls.process})
        table.add("litePull", {RequestCode.LITE_PULL_MESSAGE: self._pulls.process})
        table.add("clientManage", self._clients.processors)
        table.add("heartbeat", {RequestCode.HEART_BEAT: self._clients.heartbeat})
        reach = PageCacheEstimate(
            store,
            ratio_percent=self._configs.store.access_message_in_memory_max_ratio,
            memory_bytes=total_memory_bytes(),
        )
        manage = ConsumerManageProcessor(
            reach,
            configs=self._configs,
            topics=self._topics,
            groups=self._groups,
            consumers=parts.consumers,
            offsets=self._offsets,
        )
        table.add("consumerManage", manage.processors)
        table.add("consumerManage", OffsetProcessor(store).processors)
        table.add("consumerManage", LockProcessor(parts.locks, self._clock).processors)
        table.add("loadBalance", self._build_assignments().processors)
        query = QueryMessageProcessor(
            store,
            default_count=self._configs.store.default_query_max_num,
            max_count=self._configs.store.max_msgs_num_batch,
        )
        table.add("query", query.processors)
        return table

    def _then_announced(self, processor: Processor) -> Processor:
        """Answer operators when the name servers know what changed: they look for it at once."""

        async def later(response: Response) -> RemotingCommand | bytes | None:
            await self._name_servers.announced()
            assert response is None or isinstance(response, RemotingCommand | bytes)
            return response

        return lambda channel, request: later(processor(channel, request))

    def _build_assignments(self) -> QueryAssignmentProcessor:
        link = self._name_servers
        queues = TopicQueues(
            lambda: link.fetch_route if link.addresses else None,
            self._topics,
            self._identity.broker_name,
            self._clock,
        )
        return QueryAssignmentProcessor(
            queues,
            self._modes,
            configs=self._configs,
            topics=self._topics,
            groups=self._groups,
            consumers=self._parts.consumers,
        )

    def _build_sends(self) -> SendMessageProcessor:
        counter = itertools.count()
        seed = self._rng.getrandbits(64)

        def new_uniq_key() -> str:
            now_ms = self._clock.time_ms()
            return f"{seed:016X}{now_ms & 0xFFFFFFFF:08X}{next(counter) & 0xFFFFFFFF:08X}"

        return SendMessageProcessor(
            self._store,
            self._rules,
            self._tally.add,
            config=self._configs.broker,
            sync_flush=self._configs.store.is_sync_flush,
            new_uniq_key=new_uniq_key,
            rng=self._rng,
            announced=self._name_servers.announced,
        )

    def _wire(self) -> None:
        """Connect those who must hear of each other's changes."""
        self._store.on_arrival = self._holds.on_arrival
        self._topics.on_change = self._topic_changed
        self._topics.on_delete = self._rules.forget
        for listener in (
            self._topics.configure,
            self._groups.configure,
            self._offsets.configure,
            self._sends.configure,
            self._pulls.configure,
        ):
            self._configs.add_listener(listener)
        self._configs.add_listener(self._settings_changed)

    def _topic_changed(self, topic: TopicConfig) -> None:
        self._rules.forget(topic.topic_name)
        self._name_servers.topic_changed(topic)

    def _settings_changed(self, _config: BrokerConfig) -> None:
        self._rules.max_body_bytes = self._configs.store.max_message_size
        self._store.configure(self._configs.store)
        # A changed permission shows in every topic that the name servers hand out.
        self._name_servers.register_soon()


def _live_settings(config: MessageStoreConfig, files: StoreFiles) -> LiveSettings:
    def replace_content(path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + ".tmp")
        files.write_bytes(beside, data)
        files.rename(beside, path)
        files.sync_directories()

    return LiveSettings(config.live_settings_file, read=files.read_bytes, replace=replace_content)


def _build_parts(
    configs: ConfigHolder, client: RemotingClient, clock: Clock, files: StoreFiles
) -> BrokerParts:
    config = configs.broker
    store = MessageStore(configs.store, clock=clock, files=files)
    identity = BrokerIdentity(config)
    root = Path(configs.store.store_path_root_dir) / "config"
    topics = TopicTable(config, JsonFile(root / "topics.json", files), clock)
    return BrokerParts(
        configs=configs,
        identity=identity,
        start_ms=clock.time_ms(),
        store=store,
        topics=topics,
        groups=SubscriptionGroupTable(
            config, JsonFile(root / "subscriptionGroup.json", files), clock
        ),
        offsets=ConsumerOffsets(config, JsonFile(root / "consumerOffset.json", files), clock),
        producers=ProducerTable(config.max_groups_per_connection, config.max_client_registrations),
        consumers=ConsumerTable(config.max_groups_per_connection, config.max_client_registrations),
        locks=QueueLocks(),
        stats=BrokerStats(
            clock, cluster_name=config.broker_cluster_name, is_system_topic=topics.is_system
        ),
        name_servers=NameServerLink(client, configs=configs, identity=identity, topics=topics),
        holds=PullRequestHold(
            store.max_offset, config.max_held_pulls, config.max_held_pulls_per_queue
        ),
        clock=clock,
        pools=build_pools(config, clock),
    )


def _build_pulls(parts: BrokerParts) -> PullMessageProcessor:
    return PullMessageProcessor(
        parts.store,
        topics=parts.topics,
        groups=parts.groups,
        consumers=parts.consumers,
        offsets=parts.offsets,
        holds=parts.holds,
        stats=parts.stats,
        config=parts.config,
        clock=parts.clock,
    )


class _CloseListener:
    """Forgets what hangs on a closed connection."""

    def __init__(self, clients: ClientManageProcessor, holds: PullRequestHold) -> None:
        self._clients = clients
        self._holds = holds

    def on_open(self, channel: Channel) -> None:
        """Nothing hangs on a new connection."""

    def on_idle(self, channel: Channel) -> None:
        """The close that follows is reported too."""

    def on_close(self, channel: Channel) -> None:
        """Drop its clients and its parked pulls."""
        self._clients.on_close(channel)
        self._holds.forget_channel(channel)
