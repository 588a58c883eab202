"""The keyword arguments of ``client.producer`` and its sisters; ``config`` says what they mean."""

from typing import Literal, TypedDict

from rocketpy.client.allocate import Allocation
from rocketpy.client.config import Compression, FlowControlRetry, LatencyProfile, StartPosition
from rocketpy.client.serializers import Serializer


class ClientOptions(TypedDict, total=False):
    """See :class:`~rocketpy.client.config.ClientConfig`."""

    instance_name: str
    client_ip: str
    unit_name: str
    api_timeout_ms: int
    route_refresh_interval_ms: int
    heartbeat_interval_ms: int
    persist_interval_ms: int
    default_topic_queues: int


class ProducerOptions(TypedDict, total=False):
    """See :class:`~rocketpy.client.config.ProducerConfig`."""

    timeout_s: float
    retries: int
    flow_control_retry: FlowControlRetry
    latency_fault: bool
    latency_profile: LatencyProfile
    max_message_bytes: int
    compress_over_bytes: int
    compression: Compression
    compression_level: int
    max_in_flight: int
    max_in_flight_bytes: int
    serializer: Serializer


class ConsumerOptions(TypedDict, total=False):
    """See :class:`~rocketpy.client.config.ConsumerConfig`."""

    expression_type: str
    start: StartPosition
    concurrency: int
    batch: int
    max_retries: int
    broadcast: bool
    offset_dir: str
    allocation: Literal["avg", "circle"] | Allocation
    serializer: Serializer
    pull_batch: int
    pull_batch_bytes: int
    pull_interval_ms: int
    max_cached_messages: int
    max_cached_bytes: int
    max_span: int
    suspend_ms: int
    pull_timeout_ms: int
    pull_error_pause_ms: int
    rebalance_interval_ms: int
    takeover_pause_ms: int
    stop_timeout_s: float
    consume_timeout_ms: int
    local_retry_ms: int


class PullConsumerOptions(TypedDict, total=False):
    """See :class:`~rocketpy.client.config.PullConsumerConfig`."""

    auto_commit: bool
    auto_commit_interval_ms: int
    start: StartPosition
    allocation: Literal["avg", "circle"] | Allocation
    serializer: Serializer
    pull_batch: int
    max_cached_messages: int
    max_cached_bytes: int
    max_cached_messages_all: int
    suspend_ms: int
    pull_timeout_ms: int
    pull_error_pause_ms: int
    rebalance_interval_ms: int
