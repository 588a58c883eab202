"""Sends without a response: limited by the producer's window; losses are counted and logged."""

import asyncio
import logging
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.messages.outcomes import ends_task, retrieve_exit, running_task
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import to_s
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing, queue_chooser
from rocketpy.client.sending.queue_selection import checked_choice
from rocketpy.client.sending.transport import SendTransport

logger: logging.Logger = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0


class OnewaySends:
    """Sends without a response of one producer, each in its window until it is written.

    Args:
        instance: routes.
        window: of the producer.
        group: of the producer.
        timeout_s: default time-out of a send.

    Attributes:
        losses: counter of lost sends.
    """

    def __init__(
        self, instance: Instance, window: InFlightWindow, group: str, timeout_s: float
    ) -> None:
        self.losses: OnewayLossCounter = OnewayLossCounter(group)
        self._routes = instance.routes
        self._window = window
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, transport: SendTransport, topic: str, message: Outgoing, options: SendOptions
    ) -> None:
        """Start a send, and count it in the window.

        Raises:
            IllegalMessageError: the queue is another topic's.
        """
        if (queue := options.get("queue")) is not None:
            checked_choice(queue, topic)
        size_bytes = len(message.body)
        self._window.enter(size_bytes)
        send = self._send(transport, topic, message, options)
        task = asyncio.get_running_loop().create_task(send)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._window.leave(size_bytes))

    async def _send(
        self, transport: SendTransport, topic: str, message: Outgoing, options: SendOptions
    ) -> None:
        choose = queue_chooser(options)
        task = running_task()
        timeout_s = to_s(options.get("timeout", self._timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                await self._routes.publish_queues(topic)
                route = transport.route(topic)
                destination = (
                    route.next()
                    if choose is None
                    else route.destination(checked_choice(choose(route.queues), topic))
                )
                await transport.transmit_oneway(destination, message, int(timeout_s * 1000))
        except BaseException as error:  # the user's selector may raise anything
            if ends_task(error, task):
                retrieve_exit(error, task)
                raise
            self.losses.add(topic, error)


class OnewayLossCounter:
    """Lost one-way sends of one producer, logged at most once a second.

    Args:
        group: of the producer, for the log.

    Attributes:
        count: one-way sends lost so far.
    """

    def __init__(self, group: str) -> None:
        self.count: int = 0
        self._group = group
        self._logged = 0
        self._topic = ""
        self._reason: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, topic: str, reason: BaseException) -> None:
        """Count a lost send; log it now, or together with the next ones."""
        self.count += 1
        self._topic, self._reason = topic, reason
        if self._timer is None:
            self._log()

    def close(self) -> None:
        """Log losses that were not logged yet."""
        self._stop_timer()
        self._log_rest()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _log(self) -> None:
        logger.warning(
            "one-way sends lost: group=%(group)s topic=%(topic)s lost=%(lost)d "
            "total=%(count)d error=%(reason)r",
            {
                "group": self._group,
                "topic": self._topic,
                "lost": self.count - self._logged,
                "count": self.count,
                "reason": self._reason,
            },
        )
        self._logged = self.count
        self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._log_rest)

    def _log_rest(self) -> None:
        self._timer = None
        if self.count > self._logged:
            self._log()
