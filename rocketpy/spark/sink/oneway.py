"""Rows that nobody acknowledges.

Memory is bounded all the same: once as much is on its way as may be, each broker that got some of
it is asked something it does answer, over the same connection. The answer says that it has read
what was sent before, not that it has stored it.
"""

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.sink.requests import Request
from rocketpy.spark.sink.rows import RowReader
from rocketpy.spark.sink.sender import NO_OFFSET, Sender
from rocketpy.spark.sink.worker import SinkClient


class OnewaySender(Sender):
    """Sends one task's rows one-way; arguments and attributes are those of `Sender`."""

    def __init__(self, client: SinkClient, options: SinkOptions, reader: RowReader) -> None:
        super().__init__(client, options, reader)
        self._asked_later: dict[str, MessageQueue] = {}
        self._unread: list[int] = []

    async def _submit(self, request: Request) -> None:
        if not self._room.has_space:
            await self._catch_up()
        await self._routed(request.topic)
        route = self._transport.route(request.topic)
        choose = request.chooser
        destination = route.next() if choose is None else route.destination(choose(route.queues))
        message = request.outgoing(self._next_id)
        await self._transport.transmit_oneway(destination, message, self._options.send_timeout_ms)
        self._asked_later[destination.queue.broker_name] = destination.queue
        self._room.enter(request.size_bytes)
        self._unread.append(request.size_bytes)
        self._count_in((request.topic, destination.queue.broker_name, NO_OFFSET), request)

    async def finish(self) -> None:
        """Wait until brokers have read everything.

        Raises:
            RocketPyError: one of them does not answer; what it was sent may be lost.
        """
        await self._catch_up()

    async def settle(self) -> None:
        """Wait for nothing: nobody would say how it ended."""

    async def _catch_up(self) -> None:
        while self._asked_later:
            broker_name, queue = self._asked_later.popitem()
            address = self._instance.routes.master_address(broker_name)
            if address is not None:
                await self._instance.api.max_offset(address, queue)
        while self._unread:
            self._room.leave(self._unread.pop())
