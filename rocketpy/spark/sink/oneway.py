"""Sends rows one-way, without acknowledgements.

Memory stays bounded: when the limit of bytes in flight is reached, a request that brokers do
answer is sent to each of them over the same connection. Its response confirms that the broker has
read the previous messages, not that it has stored them.
"""

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.sink.requests import Request
from rocketpy.spark.sink.rows import RowReader
from rocketpy.spark.sink.sender import NO_OFFSET, Sender
from rocketpy.spark.sink.worker import SinkClient


class OnewaySender(Sender):
    """Sender of one task's rows, one-way; arguments and attributes as in `Sender`."""

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
        """Wait until brokers have read all messages.

        Raises:
            RocketPyError: a broker does not answer; messages sent to it may be lost.
        """
        await self._catch_up()

    async def settle(self) -> None:
        """Do nothing: one-way sends have no outcome to wait for."""

    async def _catch_up(self) -> None:
        while self._asked_later:
            broker_name, queue = self._asked_later.popitem()
            address = self._instance.routes.master_address(broker_name)
            if address is not None:
                await self._instance.api.max_offset(address, queue)
        while self._unread:
            self._room.leave(self._unread.pop())
