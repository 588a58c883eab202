"""Builds the parts of a broker; each part gets only its dependencies.

Source: BrokerController.initialize (5.4.0).
"""

import random
import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rocketpy.broker.acting.acting_parts import ActingParts
from rocketpy.broker.acting.pre_online import SlaveProgress, taker_of_offsets, taker_of_unrevived
from rocketpy.broker.clients.client_registry import ConsumerTable, ProducerTable
from rocketpy.broker.clients.memberships import Memberships
from rocketpy.broker.clients.queue_locks import QueueLocks
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.master_address import MasterAddress, MasterAddresses
from rocketpy.broker.cluster.name_server_link import NameServerLink
from rocketpy.broker.cluster.readiness import BrokerReadiness
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.delay.feature import DelaySettings, build_delay
from rocketpy.broker.feature import Feature, arrival_listener
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.long_polling.suspended_requests import SuspendedRequests
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.found_topics import FoundTopics
from rocketpy.broker.metadata.message_request_modes import MessageRequestModes
from rocketpy.broker.metadata.persistent_table import TableWriter
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.filters import PullFilters
from rocketpy.broker.operation.pull.pull import PullOperation, SlaveReads
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.operation.send.admission import SendAdmission
from rocketpy.broker.operation.send.put_transforms import RetryRedirect
from rocketpy.broker.operation.send.rewrites import RewriteCache
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.broker.operation.send.send_back import SendBack
from rocketpy.broker.pools import build_pools
from rocketpy.broker.pop.feature import PopNeeds, build_pop
from rocketpy.broker.pop.suspended_pops import Listener
from rocketpy.broker.processor.client_manage import ClientManageProcessor
from rocketpy.broker.processor.pull_message import PullMessageProcessor
from rocketpy.broker.processor.reply_message import ReplyMessageProcessor
from rocketpy.broker.processor.send_back import build_send_back
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.broker.replication.config import BrokerRole, role_of
from rocketpy.broker.replication.feature import (
    Replication,
    ReplicationNeeds,
    ReplicationSettings,
)
from rocketpy.broker.replication.metadata_sync import MetadataSync, SlaveTables
from rocketpy.broker.replication.offset_handback import SlaveCommits
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.broker.stats.message_counter import MessageCounter
from rocketpy.broker.stats.page_cache_estimate import PageCacheEstimate
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.timer.feature import TimerNeeds, TimerPut, build_timer, timer_limits
from rocketpy.broker.transaction.feature import build_transactions
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.network.socket_network import SocketNetwork
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.os_resources import total_memory_bytes
from rocketpy.runtime.service import Service
from rocketpy.store.config import parse_delay_levels
from rocketpy.store.files.json_file import JsonFile
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.message_store import MessageStore
from rocketpy.store.timer.checkpoint import TimerMarks


class BrokerParts:
    """Parts of one broker: for the code that runs it, and for tools and tests.

    Args:
        configs: the settings.
        client: connections to the name servers, and to the master.
        clock: time.
        rng: chooses queues.
        files: the file system.
        threads: False runs all requests inline, whatever the configured sizes of the pools.
        replication: how it replicates; None: as a master without slaves.

    Attributes:
        configs: current settings; `LiveBrokerConfig.update` changes live ones.
        role: role of this broker.
        identity: names and addresses of this broker.
        replication: HA port of a master, connection of a slave, and their state.
        master: address of the master, at a slave; None at a master.
        slave_commits: offsets committed here for the master, at a slave.
        found_topics: topics of the log that the topic table lacks.
        acting: slave acting master; None without `enableSlaveActingMaster`.
        metadata_sync: fetches the master's tables, at a slave.
        start_ms: wall time of the start.
        clock: time.
        store: the message store.
        topics: topic table.
        groups: group table.
        table_writer: writes both tables.
        offsets: consumer offsets.
        modes: message request modes.
        producers: connected producers.
        consumers: connected consumers.
        filters: SQL92 filters of consumer groups.
        locks: queue locks of ordered consumers.
        stats: counters.
        message_counter: buffered message counts for `stats`.
        internal_put: stores messages of the broker itself.
        delays_ms: the delay levels, level 1 first.
        postponement: schedules messages.
        timer_put: schedules messages of the broker itself.
        features: features beyond sending and pulling.
        name_servers: registration at the name servers.
        readiness: whether clients can find it and store messages.
        suspended_pulls: suspended pulls.
        sends: processor of sends.
        replies: processor of replies in request-reply.
        pulls: processor of pulls.
        clients: processor of heartbeats.
        pools: business pools by kind of request, the prefix of Apache's keys: send, pull,
            litePull, query, ack, endTransaction; kinds that run inline may be missing.
    """

    def __init__(
        self,
        configs: LiveBrokerConfig,
        *,
        client: RemotingClient,
        clock: Clock,
        rng: random.Random,
        files: StoreFiles,
        threads: bool = True,
        replication: ReplicationSettings | None = None,
    ) -> None:
        self.configs = configs
        settings = replication or ReplicationSettings()
        self.role: BrokerRole = role_of(configs.broker, configs.store)
        self.master: MasterAddress | None = self._master_of(settings)
        self.clock = clock
        self.start_ms: int = clock.time_ms()
        config = configs.broker
        directory = Path(configs.store.store_path_root_dir) / "config"

        def document(name: str) -> JsonFile:
            return JsonFile(directory / name, files)

        self.identity: Final = BrokerIdentity(config)
        self.store: Final = MessageStore(configs.store, clock=clock, files=files)
        self.topics: Final = TopicTable(config, document("topics.json"), clock)
        self.groups: Final = SubscriptionGroupTable(
            config, document("subscriptionGroup.json"), clock
        )
        self.table_writer: Final = TableWriter(self.topics, self.groups)
        self.offsets: Final = ConsumerOffsets(config, document("consumerOffset.json"), clock)
        self.offsets.topic_exists = self.topics.exists
        self.modes: Final = MessageRequestModes(document("messageRequestMode.json"))
        bounds = config.max_groups_per_connection, config.max_client_registrations
        self.producers: Final = ProducerTable(Memberships(*bounds))
        self.consumers: Final = ConsumerTable(Memberships(*bounds))
        self.filters: Final = ConsumerFilters(config, document("consumerFilter.json"), clock)
        self.locks: Final = QueueLocks()
        self.stats: Final = BrokerStats(
            clock, cluster_name=config.broker_cluster_name, is_system_topic=self.topics.is_system
        )
        self.message_counter: Final = MessageCounter(
            self.stats, topic_exists=self.topics.exists, group_exists=self.groups.exists
        )
        self.internal_put: Final = SystemWriter(self.store, self.message_counter.add)
        self.name_servers: Final = NameServerLink(
            client, configs=configs, identity=self.identity, topics=self.topics, master=self.master
        )
        self.readiness: Final = BrokerReadiness(configs, self.name_servers, self.store, clock)
        self.pools: Mapping[str, BusinessPool] = build_pools(config, clock, threads=threads)
        held = config.max_held_pulls, config.max_held_pulls_per_queue
        self.suspended_pulls: Final = SuspendedRequests(
            "SuspendedPulls", *held, pool=self.pools["pull"]
        )
        self.slave_commits: Final = SlaveCommits(
            document("slaveCommits.json"), config.flush_consumer_offset_interval
        )
        self.acting: ActingParts | None = self._build_acting(client, rng)
        self.replication: Replication = self._build_replication(settings, client, files)
        self._build_services(document, client, rng, files)

    def _master_of(self, settings: ReplicationSettings) -> MasterAddress | None:
        return settings.master_address() if self.role.is_slave else None

    def _build_services(
        self,
        document: Callable[[str], JsonFile],
        client: RemotingClient,
        rng: random.Random,
        files: StoreFiles,
    ) -> None:
        """Build the parts that use the tables."""
        store_config = self.configs.store
        self.delays_ms: tuple[int, ...] = parse_delay_levels(store_config.message_delay_level)
        self.postponement: MessageScheduler = MessageScheduler(
            self.delays_ms, self.clock, timer_limits(store_config)
        )
        self.timer_put: TimerPut = TimerPut(self.internal_put, self.postponement)
        self.features: tuple[Feature, ...] = self._build_features(document, rng, files)
        if self.acting is not None:
            self.features = self.acting.limit(self.features)
            self.acting.expect_progress(self._slave_progress())
        elif self.role.is_slave:
            self.features = tuple(each.of_slave() for each in self.features)
        self.found_topics: FoundTopics = FoundTopics(
            self.store,
            self.topics,
            lambda: self.slave_commits.tables_end,
            lambda: self.configs.broker.default_topic_queue_nums,
        )
        self.metadata_sync: MetadataSync | None = self._build_metadata_sync(client)
        self.sends: SendMessageProcessor
        self.sends, self._rewrites = self._build_sends(rng)
        self.pulls: PullMessageProcessor = self._build_pulls()
        self.clients: ClientManageProcessor = self._build_clients()
        self._listen()

    def _listen(self) -> None:
        """Register the listeners of changed settings; the rewrite caches last."""
        self.readiness.offsets_failure = lambda: self.offsets.write_failure
        for listener in (
            self.topics.configure,
            self.groups.configure,
            self.offsets.configure,
            self._settings_changed,
        ):
            self.configs.add_listener(listener)
        for feature in self.features:
            if feature.configure is not None:
                self.configs.add_listener(feature.configure)
        self.configs.add_listener(self._transforms_changed)

    @property
    def config(self) -> BrokerConfig:
        """The broker's current settings."""
        return self.configs.broker

    @property
    def address(self) -> str:
        """`host:port` for clients; empty until the broker listens."""
        return self.identity.address

    @property
    def loop_services(self) -> tuple[Service, ...]:
        """Background services that share state with the connections, on their loop."""
        own = (self.suspended_pulls, self.clients, self.locks)
        return own + tuple(each for one in self.features for each in one.loop_services)

    @property
    def background_services(self) -> tuple[Service, ...]:
        """Background services that may block or write files; the store has its own."""
        own: tuple[Service, ...] = (self.table_writer, self.offsets, self.message_counter)
        if self.role.is_slave:
            own = (*own, self.slave_commits)
        return own + tuple(each for one in self.features for each in one.services)

    def _build_replication(
        self, settings: ReplicationSettings, client: RemotingClient, files: StoreFiles
    ) -> Replication:
        configs, master = self.configs, self.master
        return Replication(
            ReplicationNeeds(
                config=settings.config,
                broker=configs.broker,
                store_config=configs.store,
                store=self.store,
                files=files,
                identity=self.identity,
                client=client,
                network=settings.network or SocketNetwork(),
                tls=(configs.server.tls, settings.tls),
                master=lambda: MasterAddresses() if master is None else master.known,
                clock=self.clock,
                timer=time.perf_counter,
                new_nonce=settings.new_nonce,
                max_message_bytes=lambda: configs.store.max_message_size,
                refuses_early=configs.broker.enable_slave_acting_master,
                membership=settings.membership,
                on_ha_address=lambda *found: None if master is None else master.registered(*found),
            )
        )

    def _build_acting(self, client: RemotingClient, rng: random.Random) -> ActingParts | None:
        if not (self.config.enable_slave_acting_master and self.config.name_server_addresses):
            return None
        return ActingParts(
            client,
            configs=self.configs,
            identity=self.identity,
            topics=self.topics,
            name_servers=self.name_servers,
            store=self.store,
            clock=self.clock,
            rng=rng,
        )

    @property
    def _due_put(self) -> SystemWriter:
        """Writer of due messages."""
        escape = None if self.acting is None else self.acting.escape
        return escape or self.internal_put

    def _followers(
        self,
    ) -> tuple[Callable[[Mapping[int, int]], None], Callable[[TimerMarks], None]]:
        """Return what takes the progress of another broker: of the delay levels, of the timer."""
        followers = [each.follow_master for each in self.features if each.follow_master]
        delays = next(each.delays for each in followers if each.delays)
        # Without timerWheelEnable the checkpoint of the master's timer has no use.
        return delays, next((each.timer for each in followers if each.timer), lambda _: None)

    def _slave_progress(self) -> SlaveProgress:
        follow_delays, follow_timer = self._followers()
        return SlaveProgress(
            delays=follow_delays,
            timer=follow_timer,
            unrevived=taker_of_unrevived(self.features),
            offsets=taker_of_offsets(self.offsets, self.features),
            is_streaming=self.replication.is_streaming,
            flushed_phy_offset=lambda: self.store.flushed_phy_offset,
        )

    def _build_metadata_sync(self, client: RemotingClient) -> MetadataSync | None:
        master, acting = self.master, self.acting
        if master is None:
            return None
        self.offsets.local_commits = self.slave_commits
        self.store.rebuilder.on_restart = self._queue_restarted
        follow_delays, follow_timer = self._followers()
        tables = SlaveTables(
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            modes=self.modes,
            found=self.found_topics,
            follow_delays=follow_delays,
            follow_timer=follow_timer,
            drop_topic=self._drop_topic,
            max_offset=self.store.max_offset,
            max_phy_offset=lambda: self.store.max_phy_offset,
            flushed_phy_offset=lambda: self.store.flushed_phy_offset,
        )
        return MetadataSync(
            client,
            # A master that returns may lack what was changed here; it fetches that before it
            # registers, and then this slave follows it again.
            lambda: "" if acting is not None and acting.is_acting else master.known.address,
            tables,
            self.slave_commits,
            clock=self.clock,
            lost=self.name_servers.register_soon,
            is_electable=self.replication.has_controller,
        )

    def _build_features(
        self, document: Callable[[str], JsonFile], rng: random.Random, files: StoreFiles
    ) -> tuple[Feature, ...]:
        """Build the features; their put transforms apply in this order."""
        configs, topics, acting = self.configs, self.topics, self.acting
        return (
            Feature(
                name="consumer filters",
                states=(self.filters,),
                services=(self.filters,),
                configure=self.filters.configure,
            ),
            self.replication.feature(),
            build_transactions(
                self.store,
                configs=configs,
                identity=self.identity,
                topics=topics,
                producers=self.producers,
                offsets=self.offsets,
                internal_put=self.internal_put,
                postpone=self.postponement.postpone,
                counts_file=document("transactionMetrics"),
                ops_file=document("transactionPendingOps.json"),
                clock=self.clock,
                has_controller=self.replication.has_controller,
                escape=None if acting is None else acting.escape,
                is_online=lambda: acting is None or acting.is_online,
            ),
            build_delay(
                DelaySettings(
                    delays_ms=self.delays_ms,
                    flush_interval_ms=configs.store.flush_delay_offset_interval,
                    version_step=configs.broker.delay_offset_update_version_step,
                ),
                store=self.store,
                internal_put=self._due_put,
                postponement=self.postponement,
                file=document("delayOffset.json"),
                queue_of=topics.queue_of,
                topic_of=topics.get,
                clock=self.clock,
            ),
            self._build_send_back(rng),
            self._build_timer(document("timermetrics"), files),
            self._build_pop(document("consumerOrderInfo.json"), rng),
        )

    def _build_timer(self, counts_file: JsonFile, files: StoreFiles) -> Feature:
        needs = TimerNeeds(
            store=self.store,
            internal_put=self._due_put,
            postponement=self.postponement,
            delays_ms=self.delays_ms,
            queue_of=self.topics.queue_of,
            counts_file=counts_file,
            files=files,
            clock=self.clock,
            sink=None if self.acting is None or not self.acting.escape else self.acting.escape.sink,
        )
        return build_timer(self.configs.broker, self.configs.store, needs, self.timer_put)

    def _build_pop(self, order_file: JsonFile, rng: random.Random) -> Feature:
        store = self.store

        def listen(listener: Listener) -> None:
            """Add a listener of all stored messages, after the pulls."""
            pulls = store.on_arrival
            assert pulls is not None

            def on_arrival(topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
                pulls(topic, queue_id, next_offset, tags_code)
                listener(topic, queue_id, next_offset, tags_code)

            store.on_arrival = on_arrival

        needs = PopNeeds(
            store=store,
            put=self.internal_put,
            aside=PutRetry(self.internal_put, self.postponement.delay, self.delays_ms),
            timer=self.timer_put,
            has_timer=self.configs.store.timer_wheel_enable,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            recent=PageCacheEstimate(
                store,
                ratio_percent=self.configs.store.access_message_in_memory_max_ratio,
                memory_bytes=total_memory_bytes(),
            ),
            order_file=order_file,
            stats=self.message_counter,
            config=self.configs.broker,
            # The check points of a slave are in memory only.
            sync_flush=self.configs.store.is_sync_flush and not self.role.is_slave,
            clock=self.clock,
            escape=None if self.acting is None else self.acting.pop_escape,
        )
        return build_pop(needs, listen=listen, pool=self.pools["pull"], rng=rng)

    def _build_send_back(self, rng: random.Random) -> Feature:
        send_back = SendBack(
            self.store,
            self.internal_put,
            self.postponement.delay,
            topics=self.topics,
            groups=self.groups,
            stats=self.stats,
            config=self.configs.broker,
            rng=rng,
        )
        return build_send_back(send_back, answers_wait=self.configs.store.answers_wait)

    def _build_sends(self, rng: random.Random) -> tuple[SendMessageProcessor, RewriteCache]:
        config, store = self.configs.broker, self.store
        admission = SendAdmission(
            self.topics,
            config,
            self.clock,
            max_body_bytes=self.configs.store.max_message_size,
            unavailable_reason=lambda: store.read_only_reason,
            shortage=lambda: store.shortage,
        )
        sends = SendOperation(
            store,
            admission,
            (
                RetryRedirect(
                    self.topics,
                    self.groups,
                    lambda group: self.locks.has_any(group, self.clock.monotonic_ms()),
                ),
                *(each for one in self.features for each in one.put_transforms),
            ),
            self.message_counter.add,
            stored_elsewhere=dict(ChainMap(*(dict(one.stored_elsewhere) for one in self.features))),
            config=config,
            answers_wait=self.configs.store.answers_wait,
            when_announced=self.name_servers.when_announced,
            clock=self.clock,
            rng=rng,
        )
        processor = SendMessageProcessor(sends, config, self.delays_ms)
        self.replies: ReplyMessageProcessor = ReplyMessageProcessor(
            admission.admit,
            sends.send,
            sends.when_settled,
            self.producers.find_client,
            store_host=lambda: store.store_host,
            config=config,
            clock=self.clock,
        )
        self.configs.add_listener(self.replies.configure)

        self.replication.when_refusal_changes(admission.refuse)

        def configure(config: BrokerConfig) -> None:
            admission.max_body_bytes = self.configs.store.max_message_size
            admission.configure(config)
            sends.configure(config)
            processor.configure(config)

        self.topics.on_change = admission.forget
        self.topics.on_written = self.name_servers.topic_changed

        self.topics.on_delete = self._topic_deleted
        self.configs.add_listener(configure)
        return processor, sends.rewrites

    def _topic_deleted(self, topic: TopicConfig) -> None:
        self.modes.remove_topic(topic.topic_name)
        self.pulls.topic_deleted(topic)

    def _drop_topic(self, topic: str, phy_offset: int) -> None:
        """Delete the data of a topic that the master has deleted, at a slave."""
        self.offsets.remove_topic(topic)
        self.stats.remove_topic(topic)
        self.store.delete_topics([topic], phy_offset)

    def _queue_restarted(self, topic: str, queue_id: int) -> None:
        """Drop offsets of an earlier topic: the master has created it again."""
        self.offsets.remove_queue(topic, queue_id)
        self.slave_commits.drop_queue(topic, queue_id)

    def _build_pulls(self) -> PullMessageProcessor:
        config = self.configs.broker
        filters = PullFilters(self.groups, self.consumers, self.filters, config)
        self.configs.add_listener(filters.configure)
        pulls = PullOperation(
            self.store,
            topics=self.topics,
            groups=self.groups,
            filters=filters,
            offsets=self.offsets,
            suspended=self.suspended_pulls,
            stats=self.message_counter,
            config=config,
            clock=self.clock,
            slave_reads=SlaveReads(
                self.role.is_slave,
                total_memory_bytes() * self.configs.store.access_message_in_memory_max_ratio // 100,
                self.replication.slave_has,
            ),
        )
        sync = self.metadata_sync
        notice = None if sync is None else sync.notice
        self.store.on_arrival = arrival_listener(self.features, pulls.on_arrival, notice)
        self.offsets.on_reset.append(pulls.offset_reset)
        self.configs.add_listener(pulls.configure)
        store = self.store
        store.set_unread_by(
            lambda end: self.offsets.groups_behind(
                lambda topic, queue_id: store.queue_offset_from(topic, queue_id, end),
                store.min_offset,
            )
        )
        return PullMessageProcessor(pulls)

    def _build_clients(self) -> ClientManageProcessor:
        return ClientManageProcessor(
            configs=self.configs,
            topics=self.topics,
            groups=self.groups,
            producers=self.producers,
            consumers=self.consumers,
            filters=self.filters,
            clock=self.clock,
        )

    def _transforms_changed(self, _config: BrokerConfig) -> None:
        self._rewrites.clear()

    def _settings_changed(self, _config: BrokerConfig) -> None:
        self.store.configure(self.configs.store)
        # Name servers combine the broker's permission with that of each topic.
        self.name_servers.register_soon()
