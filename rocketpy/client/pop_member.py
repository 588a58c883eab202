"""What a pop consumer tells brokers of itself.

Source: DefaultMQPushConsumerImpl as MQConsumerInner (5.4.0).
"""

from collections.abc import Callable, Mapping

from rocketpy.client.config import PopConsumerConfig
from rocketpy.client.consume_stats import ConsumeStats
from rocketpy.client.handlers import Invoke
from rocketpy.client.instance import Instance
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.reports import (
    consume_and_report,
    nobody_handles,
    push_properties,
    running_info,
)
from rocketpy.client.start_position import consume_from_where
from rocketpy.proto.bodies.heartbeat import CONSUME_POP, MODEL_CLUSTERING, ConsumerData
from rocketpy.proto.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.proto.message import MessageExt
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.proto.subscription import SubscriptionData


class PopMember:
    """A pop consumer as its group's brokers see it.

    Args:
        instance: connections, clock.
        group: its group.
        config: its settings.
        subscriptions: what it wants, by topic; the consumer's own table.
        stats: its rates.
        wake: has it ask at once what to pop.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        config: PopConsumerConfig,
        *,
        subscriptions: Mapping[str, SubscriptionData],
        stats: ConsumeStats,
        wake: Callable[[], None],
    ) -> None:
        self.group = group
        self.wake_rebalance = wake
        self._instance = instance
        self._namespace = instance.config.namespace
        self._config = config
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
            consume_type=CONSUME_POP,
            message_model=MODEL_CLUSTERING,
            consume_from_where=consume_from_where(self._config.start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Nothing to do: the broker knows where the group is."""

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:  # noqa: ARG002
        """Nothing: the broker knows where the group is."""
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        """Return the report on rates and settings."""
        return running_info(
            {},
            self._subscriptions.values(),
            {
                topic: self._stats.report(unwrap_namespace(self._namespace, topic))
                for topic in self._subscriptions
            },
            push_properties(
                self._instance.name_servers.addresses,
                self._config.concurrency,
                self._started_ms,
                ordered=self._config.ordered,
            ),
        )

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Call the handler with one message that was not popped, and report how it went."""
        if self._invoke is None:
            return nobody_handles("this consumer has no handler to call")
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        serializer, namespace = self._config.serializer, self._namespace
        received = ReceivedMessage(message, queue, serializer=serializer, namespace=namespace)
        return await consume_and_report(self._invoke, received, self._instance.clock)
