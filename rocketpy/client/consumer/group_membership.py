"""Group membership of each kind of consumer: heartbeat data, and answers to brokers' requests.

Source: DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl as MQConsumerInner (5.4.0).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Generic, TypeVar

from rocketpy.client.callbacks.handlers import Invoke
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ConsumerConfig, PopConsumerConfig, PullConsumerConfig
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.offset_store import OffsetStore, consume_from_where
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.consumer.pulling.queue_readers import QueueReaders
from rocketpy.client.consumer.status_reports import (
    PULL_PROPERTIES,
    consume_and_report,
    no_handler_result,
    push_properties,
    running_info,
)
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.heartbeat import (
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    CONSUME_POP,
    MODEL_BROADCASTING,
    MODEL_CLUSTERING,
    ConsumerData,
)
from rocketpy.proto.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.subscription import SubscriptionData

logger: logging.Logger = logging.getLogger(__name__)


C = TypeVar("C", ConsumerConfig, PopConsumerConfig)


class HandlerMember(ABC, Generic[C]):
    """A member of a group that handles messages, as the group's brokers see it.

    Args:
        instance: connections, clock.
        group: its group.
        config: its settings.
        subscriptions: what it wants, by topic; the consumer's own table.
        stats: its rates.
        wake: has it look at once what is its share.
    """

    consume_type: ClassVar[str]
    config: C

    def __init__(
        self,
        instance: Instance,
        group: str,
        config: C,
        *,
        subscriptions: Mapping[str, SubscriptionData],
        stats: ConsumeStats,
        wake: Callable[[], None],
    ) -> None:
        self.group = group
        self.config = config
        self.wake_rebalance = wake
        self._instance = instance
        self._namespace = instance.config.namespace
        self._subscriptions = subscriptions
        self._stats = stats
        self._invoke: Invoke | None = None
        self._started_ms = 0

    def start(self, invoke: Invoke | None) -> None:
        """Note the start; `invoke` calls the user's handler, if there is one."""
        self._invoke = invoke
        self._started_ms = self._instance.clock.time_ms()

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of the heartbeat."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self._model,
            consume_from_where=consume_from_where(self.config.start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def running_info(self) -> ConsumerRunningInfo:
        """Return the report on queues, rates and settings."""
        return running_info(
            self._queues(),
            self._subscriptions.values(),
            {
                topic: self._stats.report(unwrap_namespace(self._namespace, topic))
                for topic in self._subscriptions
            },
            push_properties(
                self._instance.name_servers.addresses,
                self.config.concurrency,
                self._started_ms,
                ordered=self.config.is_ordered,
            ),
        )

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Call the handler with one message, outside of any queue, and report how it went."""
        if self._invoke is None:
            return no_handler_result("this consumer has no handler to call")
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        serializer, namespace = self.config.serializer, self._namespace
        received = ReceivedMessage(message, queue, serializer=serializer, namespace=namespace)
        return await consume_and_report(self._invoke, received, self._instance.clock)

    @property
    def _model(self) -> str:
        return MODEL_CLUSTERING

    def _queues(self) -> Mapping[MessageQueue, ProcessQueue]:
        return {}

    @abstractmethod
    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues it has."""

    @abstractmethod
    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return what would be committed now of a topic, by queue."""


class PopMember(HandlerMember[PopConsumerConfig]):
    """A pop consumer as its group's brokers see it: they know where the group is."""

    consume_type = CONSUME_POP

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Nothing to do."""

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:  # noqa: ARG002
        """Nothing to say."""
        return {}


class PushMember(HandlerMember[ConsumerConfig]):
    """A group consumer as its group's brokers see it.

    Args:
        instance: connections, clock.
        group: its group.
        config: its settings.
        subscriptions: what it wants, by topic; the consumer's own table.
        readers: the queues it has.
        store: where its offsets are kept.
        stats: its rates.
        wake: has it rebalance at once.
    """

    consume_type = CONSUME_PASSIVELY

    def __init__(
        self,
        instance: Instance,
        group: str,
        config: ConsumerConfig,
        *,
        subscriptions: Mapping[str, SubscriptionData],
        readers: QueueReaders,
        store: OffsetStore,
        stats: ConsumeStats,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(
            instance, group, config, subscriptions=subscriptions, stats=stats, wake=wake
        )
        self._readers = readers
        self._store = store

    @property
    def _model(self) -> str:
        return MODEL_BROADCASTING if self.config.broadcast else MODEL_CLUSTERING

    def _queues(self) -> Mapping[MessageQueue, ProcessQueue]:
        return self._readers.queues

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues it has."""
        for queue, offset in offsets.items():
            # Every member gets the offsets of all queues, and loses some during the awaits.
            if queue in self._readers.queues:
                await self.go_on(queue, offset)

    async def go_on(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of a queue; outcomes of its messages no longer count.

        Without effect on a queue that is not read. An offset that cannot be stored now is stored
        with the next ones.
        """
        # Before the save: otherwise the next commit would store the old offset over this one.
        if not self._readers.restart(queue, offset):
            return
        try:
            await self._store.save({queue: offset}, final=True)
        except RocketPyError as error:
            logger.warning(
                "offset not stored yet: queue=%(queue)s offset=%(offset)d error=%(error)r",
                {"queue": queue, "offset": offset, "error": error},
            )

    def offsets(self) -> dict[MessageQueue, int]:
        """Return what would be committed now."""
        return {
            queue: offset
            for queue, entry in self._readers.queues.items()
            # The lock of a closing queue may be lost: its next owner commits later offsets.
            if not entry.closing and (offset := entry.commit_offset) is not None
        }

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return what would be committed now of a topic, by queue."""
        return {queue: at for queue, at in self.offsets().items() if queue.topic == topic}


class PullMember:
    """A pull consumer as its group's brokers see it.

    Args:
        group: its group.
        config: its settings.
        subscriptions: what it wants, by topic; the consumer's own table.
        readers: the queues it has.
        positions: the offset after what was handed out, by queue; the consumer's own table.
        seek: has it continue at another offset of a queue.
        wake: has it rebalance at once.
    """

    def __init__(
        self,
        group: str,
        config: PullConsumerConfig,
        *,
        subscriptions: Mapping[str, SubscriptionData],
        readers: QueueReaders,
        positions: Mapping[MessageQueue, int],
        seek: Callable[[MessageQueue, int], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self.group = group
        self.wake_rebalance = wake
        self._config = config
        self._subscriptions = subscriptions
        self._readers = readers
        self._positions = positions
        self._seek = seek

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of the heartbeat."""
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_ACTIVELY,
            message_model=MODEL_CLUSTERING,
            consume_from_where=consume_from_where(self._config.start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues it has."""
        for queue, offset in offsets.items():
            if queue in self._readers.queues:
                await self._seek(queue, offset)

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the positions in a topic's queues."""
        return {queue: at for queue, at in self._positions.items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        """Return the report on queues."""
        return running_info(self._readers.queues, self._subscriptions.values(), {}, PULL_PROPERTIES)

    async def consume_directly(
        self,
        message: MessageExt,  # noqa: ARG002
        broker_name: str,  # noqa: ARG002
    ) -> ConsumeMessageDirectlyResult:
        """Refuse: this consumer has no handler."""
        return no_handler_result("a pull consumer has no handler to call")
