"""Typed settings of a broker.conf that concern the broker itself.

Field names are Apache's keys in snake case (`sendMessageThreadPoolNums` is
`send_message_thread_pool_nums`); where that rule does not yield Apache's spelling, the field's
metadata has it as `key`. Metadata `live` marks settings that UPDATE_BROKER_CONFIG may change
while the broker runs. It is an allow-list, so that a path, an address or a class name is never
accepted from the network.

The default size of pools is 0 where requests run inline on their selector: by measurement, a
hand-off to a thread costs more than the work (docs/ARCHITECTURE.md).

Source: BrokerConfig.java (5.4.0).
"""

import socket
from dataclasses import dataclass, field, fields
from typing import Any, Final, cast

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.runtime.config.setting_checks import address_fault, name_fault
from rocketpy.runtime.config.values import is_wildcard

MASTER_ID: Final = 0
_MAX_NAME_CHARS: Final = 300


def _live(default: object, minimum: int | None = None, maximum: int | None = None) -> Any:  # noqa: ANN401 - as dataclasses.field
    return option(default, live=True, minimum=minimum, maximum=maximum)


def _queued(capacity: int, threads: str) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Field for the queue length of a pool; a pool that runs inline has no queue."""
    return option(capacity, only_with=threads)


def _named(key: str, default: object) -> Any:  # noqa: ANN401 - as dataclasses.field
    return option(default, key=key)


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker process; times in ms, sizes in bytes unless named otherwise.

    Attributes:
        broker_cluster_name: cluster of this broker; also a topic of that name.
        broker_name: shared by the master and slaves of one set; the host's name by default.
        broker_id: 0, the master; 1 or more, a slave of the master with the same broker_name.
        broker_ip1: address for clients; detected when empty.
        broker_ip2: address for slaves.
        ha_listen_port: port for slaves; 0: listen_port + 1.
        listen_port: 0 chooses a free port.
        bind_address: local address to listen on.
        fast_listen_enable: also listen on listen_port - 2 (the VIP port of old clients).
            Apache always does; off here because no client since 4.5.1 uses it.
        namesrv_addr: `host:port` separated by `;`; empty runs without a name server.
        broker_permission: 2 write, 4 read, 6 both; 0 neither.
        slave_read_enable: a slave serves pulls; a master sends consumers that are far behind to
            one. With the default, clients read from the master only.
        offset_check_in_slave: a slave corrects offsets outside its queues, like a master. Otherwise
            a pull of a message that the slave does not have yet waits for it.
        total_replicas: brokers of this name, the master included; an upper limit for
            inSyncReplicas, if it is larger than 1.
        enable_slave_acting_master: the slave with the lowest id serves consumers like a master
            while the master is away; set it at all brokers of the group, and supportActingMaster at
            the name servers.
        enable_remote_escape: an acting master delivers due messages to another broker group that
            has their topic; otherwise they wait for the master.
        skip_pre_online: a master that starts does not take the progress of its slaves first.
        compatible_with_old_name_srv: members of the group are read from a route (105), and
            heartbeats are data versions (322); otherwise 901 and 904 are used.
        default_topic_queue_nums: queues of TBW102, the upper limit for auto-created topics.
        auto_create_topic_enable: a send to an unknown topic may create it.
        auto_create_subscription_group: a heartbeat or pull of an unknown group creates it.
        long_polling_enable: suspend a pull until a message arrives.
        short_polling_time_mills: how long a pull is suspended without long polling.
        enable_property_filter: SQL92 filters may be used. Apache's default is false; on here,
            because their cost is bounded.
        expect_consumer_num_use_filter: number of groups that a topic's Bloom filter is sized for.
        max_error_rate_of_bloom_filter: error rate of the Bloom filter, percent.
        filter_data_clean_time_span: how long filters of groups without members are kept.
        max_heartbeat_bytes: longer heartbeats are refused (ours).
        max_groups_per_connection: producer groups, and consumer groups, of one connection (ours).
        max_client_registrations: members of all producer groups, and of all consumer groups (ours).
        max_topics_for_auto_create: number of topics from which sends create no more (ours).
        max_groups_for_auto_create: number of groups from which clients create no more (ours).
        max_held_pulls_per_queue: bound of pulls suspended for one queue (ours).
        max_held_pulls: bound of pulls suspended at the same time; above it, pulls of the
            connection with the most of them are answered early.
        default_message_request_mode: PULL or POP, for groups that leave the mode to the broker.
        default_pop_share_queue_num: how many members share their queues in POP; -1: all.
        revive_queue_num: queues of the check points and acks of popped messages.
        revive_interval: how often unacked popped messages are redelivered.
        enable_pop_buffer_merge: keep check points of popped messages in memory, and store them only
            if the acks do not arrive soon; not with SYNC_FLUSH.
        pop_ck_stay_buffer_time: how long a check point stays in memory.
        pop_ck_stay_buffer_time_out: a check point is stored at least this long before redelivery.
        pop_ck_max_buffer_size: number of check points in memory; 700 bytes each.
        pop_ck_offset_max_queue_size: pops of one queue behind the oldest check point in memory.
        pop_polling_size: suspended pops of one group and topic.
        max_pop_polling_size: suspended pops in total.
        pop_from_retry_probability: percentage of pops that read the retry topic first.
        enable_retry_topic_v2: redelivered messages go to `%RETRY%group+topic`.
        pop_response_return_actual_retry_topic: a retried message keeps the retry topic's name.
        register_name_server_period: 10,000 to 60,000 ms.
        flush_consumer_offset_interval: how often consumerOffset.json is written.
        recall_message_enable: whether producers may recall timed messages (370).
        delay_offset_update_version_step: number of deliveries that increment the version of
            delayOffset.json.
        channel_expired_timeout: a client silent for this long is removed.
        store_reply_message_enable: replies to requests are stored as well as forwarded.
        reject_transaction_message: refuse transactional messages.
        transaction_time_out: how long a local transaction may take before its producer is asked.
        transaction_check_max: how often a producer is asked; then the message is abandoned.
        transaction_check_interval: pause between two checks of undecided transactions.
        transaction_op_msg_max_size: size of an op message, which names decided transactions.
        transaction_op_batch_interval: how long decided transactions wait for an op message.
        region_id: value of MSG_REGION on every message.
        trace_on: value of TRACE_ON on every message.
        operation: keys of logs and health.
    """

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = field(default_factory=_host_name)
    broker_id: int = MASTER_ID
    broker_ip1: str = _named("brokerIP1", "")
    broker_ip2: str = _named("brokerIP2", "")
    listen_port: int = option(10911, minimum=0, maximum=65_535)
    bind_address: str = "0.0.0.0"  # noqa: S104 - a broker serves other machines
    fast_listen_enable: bool = False
    namesrv_addr: str = ""
    ha_listen_port: int = option(0, minimum=0, maximum=65_535)
    slave_read_enable: bool = _live(False)
    offset_check_in_slave: bool = _live(False)
    total_replicas: int = option(1, minimum=1, maximum=64)
    enable_slave_acting_master: bool = False
    enable_remote_escape: bool = option(False, only_with="enable_slave_acting_master")
    skip_pre_online: bool = option(False, only_with="enable_slave_acting_master")
    compatible_with_old_name_srv: bool = True

    broker_permission: int = _live(6)
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = _live(True)
    max_topics_for_auto_create: int = _live(10_000, 0)
    max_groups_for_auto_create: int = _live(10_000, 0)
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = _live(True)
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    validate_system_topic_when_update_topic: bool = _live(True)

    send_message_thread_pool_nums: int = 0
    pull_message_thread_pool_nums: int = 0
    lite_pull_message_thread_pool_nums: int = 0
    query_message_thread_pool_nums: int = 1
    admin_broker_thread_pool_nums: int = 1
    client_manage_thread_pool_nums: int = 0
    consumer_manage_thread_pool_nums: int = 0
    heartbeat_thread_pool_nums: int = 0
    ack_message_thread_pool_nums: int = 0
    load_balance_processor_thread_pool_nums: int = 0
    end_transaction_thread_pool_nums: int = 0
    process_reply_message_thread_pool_nums: int = 0

    send_thread_pool_queue_capacity: int = _queued(10_000, "send_message_thread_pool_nums")
    pull_thread_pool_queue_capacity: int = _queued(100_000, "pull_message_thread_pool_nums")
    lite_pull_thread_pool_queue_capacity: int = _queued(
        100_000, "lite_pull_message_thread_pool_nums"
    )
    query_thread_pool_queue_capacity: int = _queued(20_000, "query_message_thread_pool_nums")
    admin_broker_thread_pool_queue_capacity: int = _queued(10_000, "admin_broker_thread_pool_nums")
    client_manager_thread_pool_queue_capacity: int = _queued(
        1_000_000, "client_manage_thread_pool_nums"
    )
    consumer_manager_thread_pool_queue_capacity: int = _queued(
        1_000_000, "consumer_manage_thread_pool_nums"
    )
    heartbeat_thread_pool_queue_capacity: int = _queued(50_000, "heartbeat_thread_pool_nums")
    ack_thread_pool_queue_capacity: int = _queued(100_000, "ack_message_thread_pool_nums")
    load_balance_thread_pool_queue_capacity: int = _queued(
        100_000, "load_balance_processor_thread_pool_nums"
    )
    end_transaction_pool_queue_capacity: int = _queued(100_000, "end_transaction_thread_pool_nums")
    reply_thread_pool_queue_capacity: int = _queued(
        10_000, "process_reply_message_thread_pool_nums"
    )

    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5_000
    wait_time_mills_in_lite_pull_queue: int = 5_000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_ack_queue: int = 3_000
    wait_time_mills_in_admin_broker_queue: int = 5_000
    wait_time_mills_in_transaction_queue: int = 3_000
    start_accept_send_request_time_stamp: int = _live(0, 0)

    long_polling_enable: bool = _live(True)
    short_polling_time_mills: int = _live(1_000, 0)
    max_held_pulls: int = _live(100_000, 0)
    max_held_pulls_per_queue: int = _live(10_000, 0)
    lite_pull_message_enable: bool = _live(True)
    reject_pull_consumer_enable: bool = _live(False)
    enable_property_filter: bool = _live(True)
    expect_consumer_num_use_filter: int = option(32, minimum=1, maximum=1_000_000)
    max_error_rate_of_bloom_filter: int = option(20, minimum=1, maximum=99)
    filter_data_clean_time_span: int = _live(24 * 3600 * 1000, 0)
    use_server_side_reset_offset: bool = _live(True)
    max_heartbeat_bytes: int = _live(1 << 20, 1)
    max_groups_per_connection: int = option(1_000, minimum=1)
    max_client_registrations: int = option(200_000, minimum=1)
    notify_consumer_ids_changed_enable: bool = _live(True)
    flush_consumer_offset_interval: int = 5_000
    consumer_offset_update_version_step: int = _live(500, 1)
    recall_message_enable: bool = _live(False)
    delay_offset_update_version_step: int = option(200, minimum=1)
    channel_expired_timeout: int = 120_000
    server_load_balancer_enable: bool = _live(True)
    default_message_request_mode: str = "PULL"
    default_pop_share_queue_num: int = -1

    revive_queue_num: int = option(8, minimum=1)
    revive_interval: int = option(1_000, minimum=1)
    enable_pop_buffer_merge: bool = _live(True)
    pop_ck_stay_buffer_time: int = _live(10_000, 0)
    pop_ck_stay_buffer_time_out: int = _live(3_000, 0)
    pop_ck_max_buffer_size: int = _live(20_000, 0)
    pop_ck_offset_max_queue_size: int = _live(20_000, 0)
    pop_polling_size: int = option(1_024, minimum=0)
    max_pop_polling_size: int = option(100_000, minimum=0)
    pop_from_retry_probability: int = option(20, minimum=0, maximum=100)
    enable_retry_topic_v2: bool = False
    pop_response_return_actual_retry_topic: bool = False

    store_reply_message_enable: bool = _live(True)
    reject_transaction_message: bool = _live(False)
    transaction_time_out: int = _live(6_000, 0)
    transaction_check_max: int = _live(15, 1)
    transaction_check_interval: int = _live(30_000, 1)
    transaction_op_msg_max_size: int = _live(4_096, 1)
    transaction_op_batch_interval: int = _live(3_000, 1)

    region_id: str = "DefaultRegion"
    trace_on: bool = _live(True)
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000

    operation: OperationConfig = field(default_factory=OperationConfig)

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigError: a value is outside its range; the key is named.
        """
        self._check(0 <= self.listen_port <= 65_535, "listenPort", "0 to 65535")
        self._check(self.broker_permission in range(8), "brokerPermission", "0 to 7")
        self._check(self.broker_id >= MASTER_ID, "brokerId", "0, or more for a slave")
        self._check(self.default_topic_queue_nums >= 1, "defaultTopicQueueNums", "1 or more")
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.broker_cluster_name),
        ):
            # Other names are refused by the name servers.
            is_name = 0 < len(name) <= _MAX_NAME_CHARS and name.isprintable() and " " not in name
            self._check(is_name, key, "a name of 1 to 300 printable characters without blanks")
            if fault := name_fault(name):
                raise ConfigError(f"{name!r} {fault}", key=key)
        for key, host in (("brokerIP1", self.broker_ip1), ("brokerIP2", self.broker_ip2)):
            if is_wildcard(host):
                reason = (
                    f"{host} stands for every address of this machine, and other machines cannot "
                    "connect to it: write the address by which they reach this broker, or remove "
                    "the key to have it detected; bindAddress says where the broker listens"
                )
                raise ConfigError(reason, key=key)
        self._check(
            self.default_message_request_mode in {"PULL", "POP"},
            "defaultMessageRequestMode",
            "PULL or POP",
        )
        for address in self.name_server_addresses:
            if fault := address_fault(address):
                raise ConfigError(fault, key="namesrvAddr")
        for part in fields(self):
            if part.name.endswith(("_thread_pool_nums", "_capacity")):
                value = cast("int", getattr(self, part.name))
                self._check(value >= 0, part.name, "0 or more")

    def _check(self, ok: bool, key: str, wanted: str) -> None:
        if not ok:
            raise ConfigError(f"must be {wanted}", key=key)

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """Addresses in `namesrv_addr`, in order, without blanks and duplicates."""
        parts = (part.strip() for part in self.namesrv_addr.split(";"))
        return tuple(dict.fromkeys(part for part in parts if part))

    @property
    def register_period_ms(self) -> int:
        """`register_name_server_period`, limited to Apache's 10 to 60 s."""
        return max(10_000, min(self.register_name_server_period, 60_000))
