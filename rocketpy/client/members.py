"""What the instance knows of the consumers and producers it serves."""

from typing import Protocol

from rocketpy.proto.bodies.heartbeat import ConsumerData
from rocketpy.proto.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.message import MessageExt
from rocketpy.proto.message_queue import MessageQueue


class GroupMember(Protocol):
    """A consumer that has joined its group."""

    @property
    def group(self) -> str:
        """Its group."""
        ...

    def heartbeat_data(self) -> ConsumerData:
        """Return its part of the heartbeat."""
        ...

    def wake_rebalance(self) -> None:
        """Look at once who owns which queue."""
        ...

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets in the queues it owns."""
        ...

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return what it has consumed of a topic, by queue."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Return the report on queues, rates and settings."""
        ...

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Handle one message at once and report how it went."""
        ...


class ProducerMember(Protocol):
    """A producer, which brokers may ask about its group's transactions."""

    def __hash__(self) -> int:
        """It is kept in sets."""
        ...

    def check_transaction(
        self, asked: CheckTransactionStateRequestHeader, asker: str, message: MessageExt
    ) -> bool:
        """Answer a broker's question soon; False when it has no checker.

        Args:
            asked: the question.
            asker: address of the broker.
            message: the half message, under the topic that it is meant for.
        """
        ...
