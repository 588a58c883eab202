"""What becomes of messages that were not consumed: back to a broker, else handled here again.

The offset never passes one that is neither handled nor stored again. A message's way:

    from       event                                          to
    in hand    its handler fails, the user's nack             leaving
    in hand    its handler takes longer than the timeout      leaving; the handler goes on
    leaving    stored again by a broker                       finished
    leaving    not stored, no handler has it                  waiting
    leaving    not stored, its handler still has it (sweep)   in hand
    waiting    `local_retry_ms` later, no handler has it      in hand, delivered again

Source: ConsumeMessageConcurrentlyService, ProcessQueue.cleanExpiredMsg (5.4.0).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from rocketpy.client.message import ReceivedMessage
from rocketpy.client.process_queue import ProcessQueue
from rocketpy.client.redelivery import Redelivery
from rocketpy.errors import RocketPyError
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

TIMEOUT_DELAY_LEVEL: Final = 3
_OVERDUE_AT_ONCE: Final = 16


class Returns:
    """Gives back messages of one consumer.

    Args:
        redelivery: has messages delivered again; None when broadcasting: they are dropped then.
        clock: for how long a handler has had a message.
        deliver: takes messages that are to be handled here again.
        local_retry_ms: pause before that.
        consume_timeout_ms: a handler may have a message for as long.
    """

    def __init__(
        self,
        redelivery: Redelivery | None,
        *,
        clock: Clock,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        local_retry_ms: int,
        consume_timeout_ms: int,
    ) -> None:
        self._redelivery = redelivery
        self._clock = clock
        self._deliver = deliver
        self._local_retry_s = local_retry_ms / 1000
        self._consume_timeout_ms = consume_timeout_ms

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, delay_level: int
    ) -> None:
        """Have a message delivered again, here if no broker takes it; a `GiveBack`.

        Does nothing when it is finished, given back already, or of a queue that is not ours.
        """
        if not queue.leave(message):
            return
        if not await self._request(queue, message, delay_level):
            message.retries += 1
            message.ext.reconsume_times += 1
            self._deliver_later(queue, message)

    async def give_back_overdue(self, queues: Iterable[ProcessQueue]) -> None:
        """Give back what handlers have had for too long; what they do with it no longer counts."""
        since_ms = self._clock.monotonic_ms() - self._consume_timeout_ms
        for queue in queues:
            for message in queue.overdue(since_ms, _OVERDUE_AT_ONCE):
                if not queue.leave(message):
                    continue
                logger.warning(
                    "in hand for too long, giving back: %(message)r", {"message": message}
                )
                if await self._request(queue, message, TIMEOUT_DELAY_LEVEL):
                    continue
                if queue.started_ms(message) is None:
                    self._deliver_later(queue, message)
                else:  # never a second handler beside the first
                    queue.stay(message)

    async def _request(
        self, queue: ProcessQueue, message: ReceivedMessage, delay_level: int
    ) -> bool:
        """Return whether the message is finished here."""
        try:
            if self._redelivery is None:
                logger.warning(
                    "broadcast message is not delivered again: %(message)r", {"message": message}
                )
            else:
                await self._redelivery.request(message, delay_level)
        except RocketPyError as error:
            logger.info(
                "%(message)r stays here, giving it back failed: %(error)r",
                {"message": message, "error": error},
            )
            return False
        except BaseException:
            queue.stay(message)
            raise
        queue.remove(message)
        return True

    def _deliver_later(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._local_retry_s, self._deliver_again, queue, message)

    def _deliver_again(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        if not queue.holds(message):
            return
        if queue.started_ms(message) is not None:  # given back by a handler that still runs
            self._deliver_later(queue, message)
            return
        queue.stay(message)
        self._deliver(queue, [message])
