# Written by `make stubs`.
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Literal, Unpack, overload

from rocketpy.client.blocking.facade import BlockingFacade, ClosableFacade
from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.callbacks.handlers import ErrorHandler, Handler
from rocketpy.client.callbacks.hooks import AssignmentHook, RetryHook, TxChecker
from rocketpy.client.callbacks.middleware import HandleMiddleware, SendMiddleware
from rocketpy.client.client import Client as AsyncClient
from rocketpy.client.config import (
    AllocationName,
    Compression,
    FlowControlRetry,
    LatencyProfile,
    StartPosition,
)
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.credentials import Credentials
from rocketpy.client.health import ClientHealth, ConsumerHealth
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.message import ReceivedMessage as AsyncReceivedMessage
from rocketpy.client.messages.outcomes import Backoff, TxState
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.messages.serializers import B_co, Serializer
from rocketpy.client.options.durations import Duration, Moment
from rocketpy.client.producer.producer import Producer as AsyncProducer
from rocketpy.client.producer.producer import V
from rocketpy.client.sending.result import SendResult, SendStats
from rocketpy.proto.allocation import Allocation
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.remoting.config import RemotingClientConfig

class Client(ClosableFacade):
    def __init__(self, client: AsyncClient) -> None: ...
    def begin_offsets(self, topic: str) -> dict[MessageQueue, int]: ...
    @property
    def client_id(self) -> str: ...
    def close(self) -> None: ...
    def consumer(
        self,
        topic: str | Sequence[str],
        *,
        group: str = "",
        filter: str = "*",
        sql: str = "",
        handler: Handler | None = None,
        on_error: ErrorHandler | None = None,
        middlewares: Sequence[HandleMiddleware] = ...,
        start: StartPosition = "latest",
        auto_ack: bool = True,
        concurrency: int = 20,
        batch: int = 1,
        ordered: bool = False,
        order_by_key: bool | Callable[[AsyncReceivedMessage], Hashable | None] = False,
        ordered_retry_pause: Duration = 1.0,
        max_retries: int = -1,
        retry_backoff: Backoff | None = None,
        broadcast: bool = False,
        offset_dir: str = "",
        allocation: AllocationName | Allocation = "avg",
        serializer: Serializer[B_co] = ...,
        pull_batch: int = 32,
        pull_batch_bytes: int = 262144,
        pull_interval: Duration = 0.0,
        max_cached_messages: int = 1000,
        max_cached_bytes: int = 104857600,
        max_span: int = 2000,
        pull_wait: Duration = 15.0,
        pull_timeout: Duration = 30.0,
        pull_error_pause: Duration = 1.0,
        rebalance_interval: Duration = 20.0,
        takeover_pause: Duration = 0.5,
        start_timeout: Duration = 5.0,
        stop_timeout: Duration = 10.0,
        consume_timeout: Duration = 900.0,
        local_retry_pause: Duration = 5.0,
        on_assigned: AssignmentHook | None = None,
        on_revoked: AssignmentHook | None = None,
        trace: bool = False,
        trace_topic: str = "RMQ_SYS_TRACE_TOPIC",
    ) -> Consumer[B_co]: ...
    def end_offsets(self, topic: str) -> dict[MessageQueue, int]: ...
    def health(self) -> ClientHealth: ...
    def pop_consumer(
        self,
        topic: str | Sequence[str],
        *,
        group: str = "",
        filter: str = "*",
        sql: str = "",
        handler: Handler | None = None,
        on_error: ErrorHandler | None = None,
        middlewares: Sequence[HandleMiddleware] = ...,
        start: Literal["latest", "earliest"] = "latest",
        ordered: bool = False,
        auto_ack: bool = True,
        concurrency: int = 20,
        batch: int = 1,
        invisible_time: Duration = 60.0,
        renew: bool = False,
        max_retries: int = -1,
        retry_backoff: Backoff | None = None,
        serializer: Serializer[B_co] = ...,
        pop_batch: int = 32,
        pop_wait: Duration = 15.0,
        max_in_hand: int = 96,
        error_pause: Duration = 1.0,
        rebalance_interval: Duration = 20.0,
        start_timeout: Duration = 5.0,
        stop_timeout: Duration = 10.0,
    ) -> PopConsumer[B_co]: ...
    def producer(
        self,
        *,
        group: str = "",
        timeout: Duration = 3.0,
        retries: int = 2,
        attempt_timeout: Duration = 0.0,
        flow_control_retry: FlowControlRetry = "backoff",
        retry_when_not_ok: bool = False,
        latency_fault: bool = False,
        latency_profile: LatencyProfile = "4.x",
        max_message_bytes: int = 4194304,
        compress_over_bytes: int = 4096,
        compression: Compression = "zlib",
        compression_level: int = 5,
        max_in_flight: int = 1024,
        max_in_flight_bytes: int = 67108864,
        linger: Duration = 0.0,
        linger_messages: int = 500,
        linger_bytes: int = 262144,
        serializer: Serializer = ...,
        tx_checker: TxChecker | None = None,
        middlewares: Sequence[SendMiddleware] = ...,
        on_retry: RetryHook | None = None,
        trace: bool = False,
        trace_topic: str = "RMQ_SYS_TRACE_TOPIC",
    ) -> Producer: ...
    def pull_consumer(
        self,
        *,
        group: str = "",
        auto_commit: bool = True,
        auto_commit_interval: Duration = 5.0,
        start: StartPosition = "latest",
        allocation: AllocationName | Allocation = "avg",
        serializer: Serializer[B_co] = ...,
        pull_batch: int = 32,
        max_cached_messages: int = 1000,
        max_cached_bytes: int = 104857600,
        max_cached_messages_all: int = 10000,
        pull_wait: Duration = 20.0,
        pull_timeout: Duration = 30.0,
        pull_error_pause: Duration = 1.0,
        rebalance_interval: Duration = 20.0,
        start_timeout: Duration = 5.0,
        on_assigned: AssignmentHook | None = None,
        on_revoked: AssignmentHook | None = None,
    ) -> PullConsumer[B_co]: ...
    def read(
        self,
        topic: str,
        *,
        start: StartPosition = "earliest",
        until: StartPosition | Literal["end"] | None = "end",
        filter: str = "*",
        sql: str = "",
        serializer: Serializer[B_co] = ...,
    ) -> Iterator[ReceivedMessage[B_co]]: ...
    def ready(self, timeout: Duration = 60.0) -> None: ...
    def responder(
        self,
        topic: str | Sequence[str],
        *,
        group: str = "",
        filter: str = "*",
        sql: str = "",
        handler: Handler | None = None,
        on_error: ErrorHandler | None = None,
        middlewares: Sequence[HandleMiddleware] = ...,
        start: StartPosition = "latest",
        auto_ack: bool = True,
        concurrency: int = 20,
        batch: int = 1,
        ordered: bool = False,
        order_by_key: bool | Callable[[AsyncReceivedMessage], Hashable | None] = False,
        ordered_retry_pause: Duration = 1.0,
        max_retries: int = -1,
        retry_backoff: Backoff | None = None,
        broadcast: bool = False,
        offset_dir: str = "",
        allocation: AllocationName | Allocation = "avg",
        serializer: Serializer[B_co] = ...,
        pull_batch: int = 32,
        pull_batch_bytes: int = 262144,
        pull_interval: Duration = 0.0,
        max_cached_messages: int = 1000,
        max_cached_bytes: int = 104857600,
        max_span: int = 2000,
        pull_wait: Duration = 15.0,
        pull_timeout: Duration = 30.0,
        pull_error_pause: Duration = 1.0,
        rebalance_interval: Duration = 20.0,
        takeover_pause: Duration = 0.5,
        start_timeout: Duration = 5.0,
        stop_timeout: Duration = 10.0,
        consume_timeout: Duration = 900.0,
        local_retry_pause: Duration = 5.0,
        on_assigned: AssignmentHook | None = None,
        on_revoked: AssignmentHook | None = None,
        trace: bool = False,
        trace_topic: str = "RMQ_SYS_TRACE_TOPIC",
        reply_middlewares: Sequence[SendMiddleware] = ...,
        reply_serializer: Serializer | None = None,
    ) -> Consumer[B_co]: ...
    def start(self) -> None: ...
    def topics(self) -> list[str]: ...

class Consumer(ClosableFacade, Generic[B_co]):
    def __iter__(self) -> Iterator[ReceivedMessage[B_co]]: ...
    def ack_all(self) -> None: ...
    @property
    def assignment(self) -> list[MessageQueue]: ...
    def batches(self, max_messages: int = 500) -> Iterator[list[ReceivedMessage[B_co]]]: ...
    def commit(self) -> None: ...
    def getmany(
        self, max_messages: int = 500, timeout: Duration | None = None
    ) -> list[ReceivedMessage[B_co]]: ...
    def getone(self, timeout: Duration | None = None) -> ReceivedMessage[B_co] | None: ...
    def health(self) -> ConsumerHealth: ...
    def pause(self, *what: str | MessageQueue) -> None: ...
    def resume(self, *what: str | MessageQueue) -> None: ...
    def seek(self, queue: MessageQueue, offset: int) -> None: ...
    def start(self) -> None: ...
    @property
    def stats(self) -> ConsumeStats: ...
    def stop(self) -> None: ...
    def subscribe(self, topic: str, filter: str = "*", sql: str = "") -> None: ...
    def wait_closed(self) -> None: ...

class PopConsumer(ClosableFacade, Generic[B_co]):
    def __iter__(self) -> Iterator[PoppedMessage[B_co]]: ...
    def ack_all(self) -> None: ...
    @property
    def assignment(self) -> list[MessageQueue]: ...
    def batches(self, max_messages: int = 500) -> Iterator[list[PoppedMessage[B_co]]]: ...
    def getmany(
        self, max_messages: int = 500, timeout: Duration | None = None
    ) -> list[PoppedMessage[B_co]]: ...
    def getone(self, timeout: Duration | None = None) -> PoppedMessage[B_co] | None: ...
    def health(self) -> ConsumerHealth: ...
    @property
    def in_hand(self) -> int: ...
    def start(self) -> None: ...
    @property
    def stats(self) -> ConsumeStats: ...
    def stop(self) -> None: ...
    def subscribe(self, topic: str, filter: str = "*", sql: str = "") -> None: ...
    def wait_closed(self) -> None: ...

class PoppedMessage(ReceivedMessage[B_co]):
    def ack(self) -> None: ...  # type: ignore[override]
    def change_invisible(self, invisible_time: Duration) -> None: ...
    def in_progress(self) -> None: ...  # type: ignore[override]
    def nack(self, delay_level: int = 0, *, delay: Duration | None = None) -> None: ...  # type: ignore[override]

class Producer(ClosableFacade):
    def __init__(self, thread: LoopThread, wrapped: AsyncProducer) -> None: ...
    def flush(self) -> None: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def lost_oneway(self) -> int: ...
    def ready(self) -> None: ...
    def recall(self, topic: str, handle: str) -> str: ...
    def reply(
        self, request: AsyncReceivedMessage, body: Any, **options: Unpack[SendOptions]
    ) -> SendResult: ...
    @overload
    def request(
        self,
        topic: str | Message,
        body: Any = None,
        *,
        type: None = None,
        **options: Unpack[SendOptions],
    ) -> ReceivedMessage: ...
    @overload
    def request(
        self,
        topic: str | Message,
        body: Any = None,
        *,
        type: type[V],
        **options: Unpack[SendOptions],
    ) -> V: ...
    @overload
    def request(
        self,
        topic: str | Message,
        body: Any = None,
        *,
        type: object,
        **options: Unpack[SendOptions],
    ) -> Any: ...
    def send(
        self, topic: str | Message, body: Any = None, **options: Unpack[SendOptions]
    ) -> SendResult: ...
    def send_batch(
        self, topic: str, bodies: Iterable[Any], **options: Unpack[SendOptions]
    ) -> list[SendResult]: ...
    def send_nowait(
        self, topic: str | Message, body: Any = None, **options: Unpack[SendOptions]
    ) -> Future[SendResult]: ...
    def send_oneway(
        self, topic: str | Message, body: Any = None, **options: Unpack[SendOptions]
    ) -> None: ...
    @property
    def stats(self) -> SendStats: ...
    def transaction(
        self,
        topic: str | Message,
        body: Any = None,
        *,
        check_after: Duration | None = None,
        **options: Unpack[SendOptions],
    ) -> Transaction: ...

class PullConsumer(ClosableFacade, Generic[B_co]):
    def assign(self, queues: Iterable[MessageQueue]) -> None: ...
    @property
    def assignment(self) -> list[MessageQueue]: ...
    def batches(self, max_messages: int = 500) -> Iterator[list[ReceivedMessage[B_co]]]: ...
    def commit(self) -> None: ...
    def committed(self, queue: MessageQueue) -> int | None: ...
    def getmany(
        self, max_messages: int = 500, timeout: Duration | None = None
    ) -> list[ReceivedMessage[B_co]]: ...
    def getone(self, timeout: Duration | None = None) -> ReceivedMessage[B_co] | None: ...
    def health(self) -> ConsumerHealth: ...
    def pause(self, *what: str | MessageQueue) -> None: ...
    def poll(
        self, max_messages: int = 32, timeout: Duration | None = 5.0
    ) -> list[ReceivedMessage[B_co]]: ...
    def position(self, queue: MessageQueue) -> int | None: ...
    def queues(self, topic: str) -> list[MessageQueue]: ...
    def resume(self, *what: str | MessageQueue) -> None: ...
    def seek(self, queue: MessageQueue, offset: int) -> None: ...
    def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None: ...
    def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None: ...
    def seek_to_time(self, queues: Iterable[MessageQueue] | None, time: Moment | str) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def subscribe(self, topic: str, filter: str = "*", sql: str = "") -> None: ...

class ReceivedMessage(AsyncReceivedMessage[B_co]):
    def __init__(self, thread: LoopThread, wrapped: AsyncReceivedMessage) -> None: ...
    def ack(self) -> None: ...  # type: ignore[override]
    def in_progress(self) -> None: ...  # type: ignore[override]
    def nack(self, delay_level: int = 0, *, delay: Duration | None = None) -> None: ...  # type: ignore[override]

class Transaction(BlockingFacade):
    def commit(self) -> None: ...
    @property
    def half(self) -> SendResult: ...
    @property
    def id(self) -> str: ...
    @property
    def is_confirmed(self) -> bool: ...
    def rollback(self) -> None: ...
    @property
    def state(self) -> TxState | None: ...
    def unknown(self) -> None: ...

def connect(
    name_servers: str | Sequence[str] | None = None,
    *,
    group: str = "DEFAULT_GROUP",
    namespace: str = "",
    remoting: RemotingClientConfig | None = None,
    instance_name: str = "",
    client_ip: str = "",
    unit_name: str = "",
    credentials: Credentials | None = None,
    api_timeout: Duration = 3.0,
    route_refresh_interval: Duration = 30.0,
    heartbeat_interval: Duration = 30.0,
    persist_interval: Duration = 5.0,
    default_topic_queues: int = 4,
) -> Client: ...
