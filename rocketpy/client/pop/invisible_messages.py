"""Popped messages that are invisible to other consumers, until settled or expired.

    state      ack            nack, ToDLQ   change_invisible   its time expires
    INVISIBLE  -> ACKED       -> NACKED     stays, new time    -> EXPIRED
    ACKED, NACKED, EXPIRED: no effect

A settled message leaves the table at once, so that there is room for another.

Source: ConsumeMessagePopConcurrentlyService, DefaultMQPushConsumerImpl.ackAsync (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.messages.message import SETTLED_TOO_LATE
from rocketpy.client.messages.outcomes import DEAD_LETTER, Backoff, Rejection
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.pop.pop_api import PoppedPlace, PopRequests, place_of
from rocketpy.client.pop.popped_message import PoppedMessage, delay_of_level
from rocketpy.errors import BrokerError, ClientError, ClosedError, NoRouteError, RocketPyError
from rocketpy.proto.headers.send import ConsumerSendMsgBackRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt

logger: logging.Logger = logging.getLogger(__name__)

RETRY_DELAYS_S: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""Delay before a failed message is delivered again, by its number of retries."""
# A broker that restarts is asked again within the invisible time, but not in a busy loop.
_ACK_PAUSE_S: Final = 1.0
# Bounds the requests at a time: `max_in_hand` may allow thousands of messages.
_RENEWED_AT_A_TIME: Final = 64


class OnOutcome(Protocol):
    """Counter of settled messages."""

    def __call__(self, message: PoppedMessage, spent_ms: int, /, *, ok: bool) -> None:
        """Count one."""
        ...


class Lease:
    """Invisible message, its place at the broker, and the monotonic time at which it expires."""

    __slots__ = (
        "deadline_ms",
        "has_handler",
        "invisible_ms",
        "is_done",
        "kept",
        "message",
        "place",
        "taken_ms",
    )

    def __init__(
        self, message: PoppedMessage, place: PoppedPlace, deadline_ms: int, invisible_ms: int
    ) -> None:
        self.invisible_ms: int = invisible_ms
        self.message: PoppedMessage = message
        self.place: PoppedPlace = place
        self.deadline_ms: int = deadline_ms
        self.has_handler: bool = False
        self.is_done: bool = False  # the broker has taken the ack
        self.taken_ms: int | None = None  # since when a handler or an iterator has it (monotonic)
        # Done at the end of a request to extend its time.
        self.kept: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request to extend its time is running."""
        return self.kept is not None


class InvisibleMessages:
    """Invisible messages of one consumer, and the requests that settle them.

    Args:
        instance: connections, routes, clock.
        group: the consumer group.
        max_messages: number of messages from which on nothing is popped.
        max_retries: deliveries after the first one, then the dead letter queue.
        serializer: of the messages.
        backoff: returns delays of retries; None for the usual ones.

    Attributes:
        on_outcome: called with a message that was taken and is settled now, whether it was acked,
            and the milliseconds since it was taken; None with a handler, whose calls are counted.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        max_messages: int,
        max_retries: int,
        serializer: Serializer,
        backoff: Backoff | None = None,
    ) -> None:
        self._instance = instance
        self._requests = PopRequests(instance.remoting)
        self._group = group
        self._max_messages = max_messages
        self._max_retries = max_retries
        self._serializer = serializer
        self._backoff = backoff
        # By identity: an expired message may be popped again while a handler has it.
        self._held: dict[int, Lease] = {}
        self._too_late: dict[int, PoppedMessage] = {}  # not settled when the consumer closed
        self._room = asyncio.Event()
        self._room.set()
        self._taken_ms = instance.clock.monotonic_ms()
        self.on_outcome: OnOutcome | None = None

    def __len__(self) -> int:
        return len(self._held)

    @property
    def messages(self) -> list[PoppedMessage]:
        """The messages, the oldest first."""
        return [held.message for held in self._held.values()]

    @property
    def without_handler(self) -> list[PoppedMessage]:
        """Messages that no handler has right now."""
        return [held.message for held in self._held.values() if not held.has_handler]

    @property
    def idle_ms(self) -> int:
        """Time since a handler or an iterator has taken a message."""
        return self._instance.clock.monotonic_ms() - self._taken_ms

    @property
    def has_room(self) -> bool:
        """Whether another pop may be made."""
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        """Wait until another pop may be made."""
        await self._room.wait()

    def take(self, ext: MessageExt, broker_name: str, invisible_ms: int) -> PoppedMessage:
        """Add a message that was popped just now.

        Args:
            ext: the message.
            broker_name: its broker.
            invisible_ms: its invisible time.

        Raises:
            BadBodyError: it has no handle.
        """
        place = place_of(self._group, ext)
        queue = MessageQueue(place.topic, broker_name, ext.queue_id)
        message = PoppedMessage(
            ext,
            queue,
            self,
            serializer=self._serializer,
            namespace=self._instance.config.namespace,
        )
        deadline_ms = self._instance.clock.monotonic_ms() + invisible_ms
        self._held[id(message)] = Lease(message, place, deadline_ms, invisible_ms)
        if len(self._held) >= self._max_messages:
            self._room.clear()
        return message

    def holds(self, message: PoppedMessage) -> bool:
        """Return whether a message is still invisible to others; remove an expired one."""
        held = self._held.get(id(message))
        if held is None:
            return False
        # While a request extends its time, the old deadline does not count.
        if held.is_busy or self._instance.clock.monotonic_ms() < held.deadline_ms:
            return True
        logger.warning(
            "invisible time expired before the message was settled: message=%(message)r",
            {"message": message},
        )
        self._release(held)
        return False

    def drop_expired(self) -> None:
        """Remove expired messages that no handler has: each would take the room of another one."""
        for message in self.without_handler:
            self.holds(message)

    def close(self) -> list[PoppedMessage]:
        """Refuse later outcomes of messages that no handler has; return these messages."""
        messages = self.without_handler
        self.end(messages)  # their nacks are no failures
        self._too_late.update((id(each), each) for each in messages)
        return messages

    def drop_all(self) -> None:
        """Remove all messages: the consumer is closed."""
        self._too_late.update((key, held.message) for key, held in self._held.items())
        self._held.clear()
        self._room.set()

    # ---- handlers

    def take_held(self, messages: list[PoppedMessage]) -> list[PoppedMessage]:
        """Return those of the messages that are still leased, for a handler or an iterator."""
        found = [each for each in messages if self.holds(each)]
        if found:
            self._taken_ms = self._instance.clock.monotonic_ms()
            for message in found:
                self._held[id(message)].taken_ms = self._taken_ms
        return found

    def begin(self, messages: list[PoppedMessage], now_ms: int) -> list[PoppedMessage]:  # noqa: ARG002 - the lease has its own time
        """See `Settlement.begin`."""
        found = self.take_held(messages)
        for message in found:
            self._held[id(message)].has_handler = True
        return found

    def leases_of(self, messages: list[PoppedMessage]) -> list[Lease]:
        """Return the leases of those of the messages that are still invisible to others."""
        return [self._held[id(each)] for each in messages if self.holds(each)]

    def end(self, messages: list[PoppedMessage]) -> None:
        """See `Settlement.end`; of an iterator, too."""
        self._mark(messages, has_handler=False)
        for message in messages:
            if (held := self._held.get(id(message))) is not None:
                held.taken_ms = None

    def keep(self, messages: list[PoppedMessage]) -> None:
        """Note that messages are about to be settled, as if a handler still had them."""
        self._mark(messages, has_handler=True)

    def _mark(self, messages: list[PoppedMessage], *, has_handler: bool) -> None:
        for message in messages:
            held = self._held.get(id(message))
            if held is not None:
                held.has_handler = has_handler

    async def settle(self, messages: list[PoppedMessage], now_ms: int) -> None:  # noqa: ARG002
        """See `Settlement.settle`: acks messages; failures are logged.

        A message counts as handled until its ack begins, so that a close does not nack it.
        """
        for message in messages:
            try:
                await self.ack(message)
            except RocketPyError as error:
                logger.warning(
                    "ack failed, message may be delivered again: message=%(message)r "
                    "error=%(error)r",
                    {"message": message, "error": error},
                )

    async def redeliver(self, messages: list[PoppedMessage], rejection: Rejection) -> None:
        """See `Settlement.redeliver`: nacks messages; failures are logged."""
        for message in messages:
            # A handler that chooses its delays must not retry for ever either.
            is_last = message.retries >= self._max_retries
            wanted = rejection._replace(delay_level=DEAD_LETTER) if is_last else rejection
            # One that fails must not keep the others from being nacked.
            try:
                await self.nack(message, wanted)
            except RocketPyError as error:
                logger.info(
                    "nack failed, message is delivered again after its invisible time: "
                    "message=%(message)r error=%(error)r",
                    {"message": message, "error": error},
                )

    # ---- outcomes

    async def ack(self, message: PoppedMessage) -> None:
        """See `PopSettlement.ack`; retried until the message expires."""
        held = self._settle(message, is_success=True)
        if held is not None:
            await self._until_deadline(held, self._requests.ack)

    async def nack(self, message: PoppedMessage, rejection: Rejection) -> None:
        """See `PopSettlement.nack`; a dead letter if asked for, or after the last retry."""
        held = self._settle(message, is_success=False)
        if held is None:
            return
        is_last = message.retries >= self._max_retries and not rejection.has_delay
        if rejection.is_dead_letter or is_last:
            await self._to_dead_letters(held, rejection)
            return
        rejection = rejection.backed_off(self._backoff, message.retries + 1)
        delay_s = rejection.delay_s
        if delay_s is None:
            delay_s = delay_of_level(rejection.delay_level)
        if delay_s is None:
            delay_s = RETRY_DELAYS_S[min(message.retries, len(RETRY_DELAYS_S) - 1)]
        place = await self._place(held)
        await self._requests.change_invisible(self._address(held), place, int(delay_s * 1000))

    async def change_invisible(self, message: PoppedMessage, seconds: float | None) -> None:
        """See `PopSettlement.change_invisible`."""
        held = self._held.get(id(message))
        if held is None:
            self._check_open(message)
        if held is None or held.is_busy:
            return
        await self._keep(held, held.invisible_ms if seconds is None else int(seconds * 1000))

    async def renew(self, messages: Iterable[PoppedMessage], invisible_ms: int) -> None:
        """Extend the time of messages with less than half of it left; failures are logged."""
        soon_ms = self._instance.clock.monotonic_ms() + invisible_ms // 2
        due = [
            held
            for each in messages
            if (held := self._held.get(id(each))) is not None and held.deadline_ms <= soon_ms
        ]
        for at in range(0, len(due), _RENEWED_AT_A_TIME):
            some = due[at : at + _RENEWED_AT_A_TIME]
            await asyncio.gather(*(self._renew(held, invisible_ms) for held in some))

    async def _renew(self, held: Lease, invisible_ms: int) -> None:
        if held.is_busy or not self.holds(held.message):
            return
        try:
            await self._keep(held, invisible_ms)
        except RocketPyError as error:
            logger.warning(
                "invisible time not extended: message=%(message)r error=%(error)r",
                {"message": held.message, "error": error},
            )

    async def _keep(self, held: Lease, invisible_ms: int) -> None:
        kept = held.kept = asyncio.get_running_loop().create_future()
        # Before the request: the broker's time begins after it, so the deadline here is earlier.
        asked_ms = self._instance.clock.monotonic_ms()
        try:
            # The new handle, because an ack by the old one would not settle the message.
            held.place = await self._requests.change_invisible(
                self._address(held), held.place, invisible_ms
            )
        finally:
            # Also after a failure: an ack waits for this, and then uses the old handle.
            held.kept = None
            kept.set_result(None)
        held.deadline_ms = asked_ms + invisible_ms

    async def _to_dead_letters(self, held: Lease, rejection: Rejection) -> None:
        """Have the broker store a dead letter, then ack: the message is never lost in between."""
        stored = held.message.ext
        header = ConsumerSendMsgBackRequestHeader(
            offset=stored.phy_offset,
            group=self._group,
            delay_level=-1,
            origin_msg_id=stored.msg_id,
            origin_topic=held.place.topic,
            max_reconsume_times=self._max_retries,
            bname=held.place.handle.broker_name,
            dlq_exception=rejection.exception or None,
            dlq_reason=rejection.reason or None,
            dlq_time=self._instance.clock.time_ms(),
            dlq_member=self._instance.client_id,
        )
        await self._instance.api.send_back(self._address(held), header)
        await self._until_deadline(held, self._requests.ack)

    async def _until_deadline(
        self, held: Lease, work: Callable[[str, PoppedPlace], Awaitable[None]]
    ) -> None:
        clock = self._instance.clock
        while True:
            try:
                await work(self._address(held), await self._place(held))
            except BrokerError:  # a refusal; one of them is a ClientError, too
                raise
            except ClientError:
                # The broker may deliver the message again after the deadline: no ack is sent.
                if clock.monotonic_ms() + _ACK_PAUSE_S * 1000 >= held.deadline_ms:
                    raise
                await asyncio.sleep(_ACK_PAUSE_S)
            else:
                held.is_done = True
                return

    def _settle(self, message: PoppedMessage, *, is_success: bool) -> Lease | None:
        """Remove a message that is to be settled; return None when it is settled or expired.

        Raises:
            ClosedError: the consumer closed before.
        """
        held = self._held.get(id(message))
        if held is None:
            self._check_open(message)
        if held is None or not self.holds(message):
            return None
        # Before the request: a second outcome must not be sent while the first is.
        self._release(held)
        if self.on_outcome is not None and held.taken_ms is not None:
            spent_ms = self._instance.clock.monotonic_ms() - held.taken_ms
            self.on_outcome(message, spent_ms, ok=is_success)
        return held

    def _check_open(self, message: PoppedMessage) -> None:
        """Raise ClosedError for an outcome of a message that was unsettled at the close."""
        if id(message) in self._too_late:
            raise ClosedError(SETTLED_TOO_LATE)

    def _release(self, held: Lease) -> None:
        del self._held[id(held.message)]
        if len(self._held) < self._max_messages:
            self._room.set()

    async def _place(self, held: Lease) -> PoppedPlace:
        """Return the valid place of a message: extending its time changes the handle."""
        if held.kept is not None:
            # `wait`: a cancelled ack must not cancel the future that the request will set.
            await asyncio.wait([held.kept])
        return held.place

    def _address(self, held: Lease) -> str:
        name = held.place.handle.broker_name
        address = self._instance.routes.master_address(name)
        if address is None:
            raise NoRouteError(f"broker {name} has no master")
        return address
