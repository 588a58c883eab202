"""Sends that nobody waits for: bounded by the producer's window, their losses counted and told."""

import asyncio
import logging
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import to_s
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing, queue_chooser
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import RocketPyError

logger: logging.Logger = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0


class OnewaySends:
    """The one-way sends of one producer, each in its window until it is written.

    Args:
        instance: routes.
        window: of the producer.
        group: of the producer.
        timeout_s: limit of a send that names none.

    Attributes:
        losses: what was lost.
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

    def launch(
        self, transport: SendTransport, topic: str, message: Outgoing, options: SendOptions
    ) -> None:
        """Begin one; it has a place in the window."""
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
        timeout_s = to_s(options.get("timeout", self._timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                await self._routes.publish_queues(topic)
                route = transport.route(topic)
                destination = (
                    route.next() if choose is None else route.destination(choose(route.queues))
                )
                await transport.transmit_oneway(destination, message, int(timeout_s * 1000))
        except (RocketPyError, TimeoutError) as error:
            self.losses.add(topic, error)


class OnewayLossCounter:
    """The losses of one producer, told in one line a second at most.

    Args:
        group: of the producer, for the log.

    Attributes:
        count: one-way sends lost so far.
    """

    def __init__(self, group: str) -> None:
        self.count: int = 0
        self._group = group
        self._told = 0
        self._topic = ""
        self._reason: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, topic: str, reason: BaseException) -> None:
        """Count a send that was lost, and say so now or with the next ones."""
        self.count += 1
        self._topic, self._reason = topic, reason
        if self._timer is None:
            self._tell()

    def close(self) -> None:
        """Say what has not been said yet."""
        self._stop_timer()
        self._tell_rest()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        logger.warning(
            "one-way sends were lost: group=%(group)s topic=%(topic)s lost=%(lost)d "
            "in_all=%(count)d reason=%(reason)r",
            {
                "group": self._group,
                "topic": self._topic,
                "lost": self.count - self._told,
                "count": self.count,
                "reason": self._reason,
            },
        )
        self._told = self.count
        self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._tell_rest)

    def _tell_rest(self) -> None:
        self._timer = None
        if self.count > self._told:
            self._tell()
