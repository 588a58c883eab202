"""Timed messages as a feature of the broker: builds the timer, its requests and its figures.

Source: TimerMessageStore, RecallMessageProcessor, AdminBrokerProcessor (getTimerCheckPoint,
getTimerMetrics) (5.4.0).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.feature import Feature, FollowMaster
from rocketpy.broker.metadata.json_document import JsonDocument
from rocketpy.broker.operation.scheduling.recall import RecallOperation
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler, TimerLimits
from rocketpy.broker.pop.revive.revive_sink import ReviveSink
from rocketpy.broker.processor.recall_message import RecallMessageProcessor
from rocketpy.broker.request_table import RequestTable
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.timer.acting import ActingTimer
from rocketpy.broker.timer.flush import TimerFlush
from rocketpy.broker.timer.follower import FormerSlave, TimerFollower
from rocketpy.broker.timer.service import TimerService
from rocketpy.broker.timer.store_protocol import TimerStore
from rocketpy.proto.record.properties import PROPERTY_TIMER_DELIVER_MS, encode_properties
from rocketpy.proto.topic_names import TIMER_TOPIC
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.runtime.clock import Clock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.store.timer.checkpoint import DELIVERED_MS, UNREVIVED_MS
from rocketpy.store.timer.state import TimerState

_SHORTEST_MS = 1_000


class CountRate:
    """Rate of a growing count since the last call, measured over at least one second.

    Args:
        clock: time.
        count: returns the count.
    """

    def __init__(self, clock: Clock, count: Callable[[], int]) -> None:
        self._clock = clock
        self._count = count
        self._since_ms = clock.monotonic_ms()
        self._before = 0
        self._rate = 0.0

    def per_second(self) -> float:
        """Return the rate, rounded to one decimal."""
        now_ms, count = self._clock.monotonic_ms(), self._count()
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= _SHORTEST_MS:
            self._rate = round((count - self._before) * 1_000 / elapsed_ms, 1)
            self._since_ms, self._before = now_ms, count
        return self._rate


_NO_TIMER: Final = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerNeeds:
    """Parts of the broker that timed messages depend on.

    Attributes:
        store: the message store.
        internal_put: stores due messages.
        postponement: schedules messages.
        delays_ms: the delay levels, level 1 first.
        queue_of: returns the queue to use in place of a deleted one; None for a deleted topic.
        counts_file: timermetrics, the number of waiting messages by topic.
        files: the file system.
        clock: time.
        sink: takes check points and acks of pops, at a slave that may act as master.
    """

    store: TimerStore
    internal_put: SystemWriter
    postponement: MessageScheduler
    delays_ms: tuple[int, ...]
    queue_of: Callable[[str, int], int | None]
    counts_file: JsonDocument
    files: StoreFiles
    clock: Clock
    sink: ReviveSink | None = None

    def topic_exists(self, topic: str) -> bool:
        """Return whether the broker has a topic."""
        return self.queue_of(topic, 0) is not None


def timer_limits(config: MessageStoreConfig) -> TimerLimits:
    """Return the limits of timed messages.

    Args:
        config: the store's settings.
    """
    return TimerLimits(
        is_enabled=config.timer_wheel_enable,
        precision_ms=config.timer_precision_ms,
        max_delay_ms=config.timer_max_delay_sec * 1_000,
    )


class TimerPut:
    """Schedules messages of the broker itself.

    Args:
        put: stores messages.
        postponement: schedules messages.
    """

    def __init__(self, put: SystemWriter, postponement: MessageScheduler) -> None:
        self._put = put
        self._postponement = postponement
        self.timer: TimerService | None = None

    def put_at(
        self, message: PutMessage, properties: dict[str, str], deliver_ms: int
    ) -> PutMessageResult:
        """Store a message for a delivery time; at once when that has passed.

        Args:
            message: the message with its final topic and queue; changed in place.
            properties: its properties.
            deliver_ms: delivery time, wall time.
        """
        properties[PROPERTY_TIMER_DELIVER_MS] = str(deliver_ms)
        message.properties = encode_properties(properties)
        if self._postponement.postpone(message) is not None:
            return PutMessageResult(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL)
        return self._put.put(message)

    def delivered_before_ms(self) -> int:
        """Return `TimerService.delivered_before_ms`, or 0 without a timer."""
        return 0 if self.timer is None else self.timer.delivered_before_ms


def build_timer(
    config: BrokerConfig,
    store_config: MessageStoreConfig,
    needs: TimerNeeds,
    timer_put: TimerPut,
) -> Feature:
    """Build the feature.

    Args:
        config: the broker's settings.
        store_config: settings of the timer's files.
        needs: the parts it depends on.
        timer_put: receives the timer.
    """
    processor, configure = _build_recalls(config, needs)
    if not store_config.timer_wheel_enable:
        return Feature(
            name="timer",
            add_requests=partial(_add_requests_without_timer, processor),
            configure=configure,
            runtime_info=lambda: _NO_TIMER,
        )
    if store_config.is_slave:
        return _follower(store_config, needs, processor, configure)
    counts, state, timer, flush = _build_service(store_config, needs)
    timer_put.timer = timer
    return Feature(
        name="timer",
        services=(timer, flush, counts),
        arrivals={TIMER_TOPIC: timer.on_arrival},
        states=(
            counts,
            FormerSlave(Path(store_config.store_path_root_dir), needs.files),
            timer,
        ),
        acting=(timer,),
        follow_master=FollowMaster(timer=timer.take_delivered, unrevived=timer.take_unrevived),
        release=state.close,
        add_requests=partial(_add_requests, processor, timer, state, counts),
        configure=configure,
        runtime_info=_TimerFigures(timer, state, needs.clock).runtime_info,
    )


def _build_service(
    store_config: MessageStoreConfig, needs: TimerNeeds
) -> tuple[PendingCounts, TimerState, TimerService, TimerFlush]:
    counts = PendingCounts(
        "TimerCounts",
        "timingCount",
        needs.counts_file,
        topic_exists=needs.topic_exists,
        clock=needs.clock,
    )
    state = TimerState(
        Path(store_config.store_path_root_dir),
        precision_ms=store_config.timer_precision_ms,
        log_file_bytes=store_config.mapped_file_size_timer_log,
        files=needs.files,
        clock=needs.clock,
    )
    timer = TimerService(
        needs.store,
        needs.internal_put,
        state,
        PutRetry(needs.internal_put, needs.postponement.delay, needs.delays_ms),
        roll_window_slots=store_config.timer_roll_window_slots,
        queue_of=needs.queue_of,
        counts=counts,
        clock=needs.clock,
    )
    flush = TimerFlush(timer, state, needs.store, store_config.timer_flush_interval_ms)
    return counts, state, timer, flush


def _follower(
    store_config: MessageStoreConfig,
    needs: TimerNeeds,
    processor: RecallMessageProcessor,
    configure: Callable[[BrokerConfig], None],
) -> Feature:
    """Build the feature of a slave, which keeps the checkpoint of the master's timer."""
    follower = TimerFollower(Path(store_config.store_path_root_dir), needs.files)

    def make() -> tuple[TimerService, TimerFlush]:
        _, _, timer, flush = _build_service(store_config, needs)
        return timer, flush

    acting = ActingTimer(follower, make, needs.sink)

    def checkpoint(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT (60): the master's checkpoint."""
        fields = {}
        if acting.delivered_ms:
            fields[DELIVERED_MS] = str(acting.delivered_ms)
        if acting.unrevived_ms is not None:
            fields[UNREVIVED_MS] = str(acting.unrevived_ms)
        return make_response(request, ext_fields=fields, body=follower.marks.encode())

    def add_requests(table: RequestTable) -> None:
        table.add("send", processor.processors)
        table.add(
            "adminBroker",
            {
                RequestCode.GET_TIMER_CHECK_POINT: checkpoint,
                RequestCode.GET_TIMER_METRICS: _refusing("The timer message store is null"),
            },
        )

    return Feature(
        name="timer",
        services=(follower,),
        states=(follower, acting),
        acting=(acting,),
        follow_master=FollowMaster(timer=follower.follow),
        add_requests=add_requests,
        configure=configure,
        runtime_info=lambda: _NO_TIMER,
    )


def _refusing(remark: str) -> Processor:
    return lambda _channel, request: make_response(request, ResponseCode.SYSTEM_ERROR, remark)


def _add_requests(
    processor: RecallMessageProcessor,
    timer: TimerService,
    state: TimerState,
    counts: PendingCounts,
    table: RequestTable,
) -> None:
    def checkpoint(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT (60): the timer's progress, for slaves.

        It may be newer than the file: a slave that takes over repeats what it does not cover.
        """
        with state.lock:
            read_ms, queue_offset = timer.progress()
            marks = state.marks
        if read_ms >= marks.read_ms and queue_offset >= marks.queue_offset:
            marks = marks._replace(
                read_ms=read_ms, queue_offset=queue_offset, master_queue_offset=queue_offset
            )
        return make_response(request, body=marks.encode())

    def metrics(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_METRICS (61): the number of waiting messages by topic, in file format."""
        return make_response(request, body=fastjson.dumps(counts.to_json()))

    table.add("send", processor.processors)
    table.add(
        "adminBroker",
        {RequestCode.GET_TIMER_CHECK_POINT: checkpoint, RequestCode.GET_TIMER_METRICS: metrics},
    )


def _add_requests_without_timer(processor: RecallMessageProcessor, table: RequestTable) -> None:
    table.add("send", processor.processors)
    table.add(
        "adminBroker",
        {
            RequestCode.GET_TIMER_CHECK_POINT: _refusing("The checkpoint is null"),
            RequestCode.GET_TIMER_METRICS: _refusing("The timer message store is null"),
        },
    )


def _build_recalls(
    config: BrokerConfig, needs: TimerNeeds
) -> tuple[RecallMessageProcessor, Callable[[BrokerConfig], None]]:
    """Build the processor of recalls, and the function that applies changed settings to it."""
    recalls = RecallOperation(
        needs.internal_put,
        needs.postponement,
        topic_exists=needs.topic_exists,
        config=config,
        clock=needs.clock,
    )
    processor = RecallMessageProcessor(recalls, config.region_id)

    def configure(config: BrokerConfig) -> None:
        recalls.configure(config)
        processor.region_id = config.region_id

    return processor, configure


class _TimerFigures:
    """Entries of the timer in the runtime information."""

    def __init__(self, timer: TimerService, state: TimerState, clock: Clock) -> None:
        self._timer = timer
        self._state = state
        self._enqueue = CountRate(clock, lambda: timer.enqueued_count)
        self._dequeue = CountRate(clock, lambda: timer.dequeued_count)

    def runtime_info(self) -> dict[str, str]:
        return {
            "timerReadBehind": str(self._timer.read_behind_ms // 1_000),
            "timerOffsetBehind": str(self._timer.queue_behind),
            "timerCongestNum": str(self._state.pending_count),
            "timerEnqueueTps": str(self._enqueue.per_second()),
            "timerDequeueTps": str(self._dequeue.per_second()),
        }
