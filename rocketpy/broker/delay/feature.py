"""Delay levels as a feature of the broker: builds their parts and connects them.

Source: ScheduleMessageService, AdminBrokerProcessor.getAllDelayOffset (5.4.0).
"""

from collections.abc import Callable
from dataclasses import dataclass

from rocketpy.broker.delay.delivery import DelayDelivery
from rocketpy.broker.delay.offsets import DelayOffsets
from rocketpy.broker.feature import Feature, FollowMaster
from rocketpy.broker.metadata.json_document import JsonDocument
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.request_table import RequestTable
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.clock import Clock
from rocketpy.store.files.json_file import dump_pretty
from rocketpy.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySettings:
    """Settings of the delay levels.

    Attributes:
        delays_ms: the delays, level 1 first.
        flush_interval_ms: how often delayOffset.json is written.
        version_step: number of deliveries that increment its version.
    """

    delays_ms: tuple[int, ...]
    flush_interval_ms: int
    version_step: int


def build_delay(
    settings: DelaySettings,
    *,
    store: MessageStore,
    internal_put: SystemWriter,
    postponement: MessageScheduler,
    file: JsonDocument,
    queue_of: Callable[[str, int], int | None],
    topic_of: Callable[[str], TopicConfig | None],
    clock: Clock,
) -> Feature:
    """Build the feature.

    Args:
        settings: settings of the delay levels.
        store: the message store.
        internal_put: stores due messages.
        postponement: schedules messages.
        file: delayOffset.json.
        queue_of: returns the queue to use in place of a deleted one; None for a deleted topic.
        topic_of: returns the settings of a topic; None for a deleted topic.
        clock: time.
    """
    offsets = DelayOffsets(
        file,
        clock,
        interval_ms=settings.flush_interval_ms,
        version_step=settings.version_step,
        kept_phy_offset=lambda: store.kept_phy_offset,
        flush_log=store.flush_log,
    )
    delivery = DelayDelivery(
        store,
        internal_put,
        offsets,
        PutRetry(internal_put, postponement.delay, settings.delays_ms),
        delays_ms=settings.delays_ms,
        queue_of=queue_of,
        topic_of=topic_of,
        clock=clock,
    )

    def all_offsets(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET (45): the content of delayOffset.json."""
        return make_response(request, body=dump_pretty(offsets.to_json()).encode())

    def add_requests(table: RequestTable) -> None:
        table.add("adminBroker", {RequestCode.GET_ALL_DELAY_OFFSET: all_offsets})

    def runtime_info() -> dict[str, str]:
        found = {}
        for level in offsets.levels:
            position = offsets.of_level(level).position
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            found[f"scheduleMessageOffset_{level}"] = f"{position},{end}"
        return found

    return Feature(
        name="delay",
        put_transforms=(postponement,),
        services=(offsets,),
        # On the event loop: a thread would compete for the interpreter with every message.
        loop_services=(delivery,),
        arrivals={SCHEDULE_TOPIC: delivery.on_arrival},
        states=(offsets,),
        masters_only=(delivery,),
        acting=(delivery,),
        follow_master=FollowMaster(delays=offsets.follow),
        add_requests=add_requests,
        runtime_info=runtime_info,
        use_runs=delivery.use_runs,
    )
