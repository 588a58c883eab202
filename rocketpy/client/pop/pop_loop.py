"""Loop that pops one queue, or all queues of one broker, while they are assigned to this member.

Source: DefaultMQPushConsumerImpl.popMessage (5.4.0).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.consumer.pulling.pull_loop import EmptyPollBackoff
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.client.pop.invisible_messages import InvisibleMessages
from rocketpy.client.pop.pop_api import PopRequests, PopResult, PopStatus
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.errors import ClientError, NoRouteError, RocketPyError
from rocketpy.proto.headers.pop import PopMessageRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.subscription import SubscriptionData

logger: logging.Logger = logging.getLogger(__name__)

# The broker holds as many polls as it can: another one would be refused at once.
FULL_PAUSE_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSettings:
    """Settings that all pops of one consumer share.

    Attributes:
        group: the consumer group.
        batch: messages at most.
        invisible_ms: invisible time of the messages.
        poll_ms: how long the broker may wait for some.
        init_mode: where a group begins that has no offset.
        is_ordered: one pop of a queue at a time.
        error_pause_ms: pause after a pop that failed.
    """

    group: str
    batch: int
    invisible_ms: int
    poll_ms: int
    init_mode: int
    is_ordered: bool
    error_pause_ms: int


class PopLoop:
    """Loop that pops until `leave` is called or its task is cancelled.

    A pop that waits at its broker must not be cancelled: the broker answers it with the next
    messages, which would stay invisible without a reader. After `leave`, the loop ends with that
    pop, and delivers its messages.

    Args:
        instance: connections, routes, clock.
        queue: the queue to pop; id -1 means all queues of the broker.
        settings: the same for all loops of a consumer.
        leases: of the popped messages; limits their number.
        subscription: returns the present subscription.
        deliver: called with the messages.
        settle: runs the ack of an unwanted message, or a nack, in the background.

    Attributes:
        queue: the queue that is popped.
        failure: error of the last pop; None after a success.
        last_pop_ms: wall time of the last pop.
        began: set when a pop was answered, so that the broker has a position of the group. Also set
            when no pop can begin: too many messages are unsettled, or `leave` was called.
    """

    def __init__(
        self,
        instance: Instance,
        queue: MessageQueue,
        settings: PopSettings,
        leases: InvisibleMessages,
        *,
        subscription: Callable[[], SubscriptionData],
        deliver: Callable[[list[PoppedMessage]], None],
        settle: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self.queue = queue
        self.failure: Exception | None = None
        self.last_pop_ms: int = 0
        self.began: asyncio.Event = asyncio.Event()
        self._instance = instance
        self._settings = settings
        self._leases = leases
        self._subscription = subscription
        self._deliver = deliver
        self._settle = settle
        self._requests = PopRequests(instance.remoting)
        self._is_popping = False
        self._left = asyncio.Event()
        self._empty_polls = EmptyPollBackoff(settings.poll_ms, settings.error_pause_ms)

    def leave(self) -> bool:
        """End the loop after the current pop, if there is one.

        Returns:
            Whether a pop waits at the broker: `run` ends with its response. If not, the task of
            `run` may be cancelled without loss.
        """
        self._left.set()
        self.began.set()  # no pop may follow, so that a start would wait in vain
        return self._is_popping

    async def run(self) -> None:
        """Pop until `leave` is called; a failed pop is repeated, its error is in `failure`."""
        while not self._left.is_set():
            if not self._leases.has_room:
                self.began.set()
            await self._leases.wait_for_room()
            # Left during the wait: a pop now would hide messages from the other members.
            if self._left.is_set():
                return
            try:
                pause_ms = await self._pop()
            except RocketPyError as error:
                if self._left.is_set():
                    return
                if self.failure is None:
                    logger.warning(
                        "popping failed, retried: queue=%(queue)s group=%(group)s error=%(error)r",
                        {"queue": self.queue, "group": self._settings.group, "error": error},
                    )
                self.failure = error
                if isinstance(error, ClientError):
                    self._instance.refresh_routes_soon()
                pause_ms = self._settings.error_pause_ms
            else:
                if self.failure is not None:
                    group = self._settings.group
                    logger.warning(
                        "popping recovered: queue=%(queue)s group=%(group)s",
                        {"queue": self.queue, "group": group},
                    )
                self.failure = None
            if pause_ms and not self._left.is_set():
                await asyncio.sleep(pause_ms / 1000)

    async def _pop(self) -> int:
        """Pop once; return the pause before the next pop, ms."""
        queue, clock = self.queue, self._instance.clock
        address = self._instance.routes.master_address(queue.broker_name)
        if address is None:
            raise NoRouteError(
                f"broker {queue.broker_name} has no master now, and pop reads from masters only; "
                "retried until it is back"
            )
        subscription = self._subscription()
        self.last_pop_ms = clock.time_ms()
        # The first pop, also after a failure, does not wait at the broker: its response shows
        # that the group has a position, and that the broker can be reached again.
        is_first = self.failure is not None or not self.began.is_set()
        poll_ms = 0 if is_first else self._settings.poll_ms
        self._is_popping = True
        asked_ms = clock.monotonic_ms()
        try:
            result = await self._requests.pop(address, self._header(subscription, poll_ms))
        finally:
            self._is_popping = False
        self.began.set()
        if result.status is PopStatus.FULL:
            return FULL_PAUSE_MS
        if result.status is PopStatus.FOUND:
            self._take(result, subscription.tags_set)
        return self._empty_polls.pause_ms(
            was_empty=not (result.messages or result.bad),
            spent_ms=clock.monotonic_ms() - asked_ms,
        )

    def _take(self, result: PopResult, tags: set[str]) -> None:
        """Deliver the messages of a response; tags are compared here, brokers compare hashes."""
        wanted: list[PoppedMessage] = []
        others: list[PoppedMessage] = []
        for ext in result.messages:
            message = self._held(ext, result)
            (wanted if not tags or ext.tags in tags else others).append(message)
        if self._settings.is_ordered and result.bad:
            wanted, behind = _split(wanted, [ext for ext, _ in result.bad])
            # Without delay: the queue waits for the message that is not readable anyway.
            for message in behind:
                self._settle(self._leases.nack(message, Rejection(delay_s=0)))
        if wanted:
            self._deliver(wanted)
        # Acked, because unwanted messages would come again after their time.
        for message in others:
            self._settle(self._leases.ack(message))
        for ext, error in result.bad:
            message = self._held(ext, result)
            logger.error(
                "message body not inflated, message redelivered: message=%(message)r "
                "error=%(error)s",
                {"message": message, "error": error},
            )
            self._settle(self._leases.nack(message, Rejection.of(error)))

    def _held(self, ext: MessageExt, result: PopResult) -> PoppedMessage:
        return self._leases.take(ext, self.queue.broker_name, result.invisible_ms)

    def _header(self, subscription: SubscriptionData, poll_ms: int) -> PopMessageRequestHeader:
        settings, queue = self._settings, self.queue
        return PopMessageRequestHeader(
            consumer_group=settings.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=settings.batch,
            invisible_time=settings.invisible_ms,
            poll_time=poll_ms,
            born_time=self._instance.clock.time_ms(),
            init_mode=settings.init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=settings.is_ordered,
            bname=queue.broker_name,
        )


def _split(
    messages: list[PoppedMessage], bad: list[MessageExt]
) -> tuple[list[PoppedMessage], list[PoppedMessage]]:
    """Return the messages before the first bad one of their queue, and the others."""
    ends: dict[int, int] = {}
    for ext in bad:
        ends[ext.queue_id] = min(ext.queue_offset, ends.get(ext.queue_id, ext.queue_offset))
    before: list[PoppedMessage] = []
    behind: list[PoppedMessage] = []
    for message in messages:
        end = ends.get(message.queue.queue_id)
        (before if end is None or message.offset < end else behind).append(message)
    return before, behind
