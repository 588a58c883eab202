"""Sends requests and checks acknowledgements, within bounds of number and bytes.

An ordered queue has one request in flight: with two, the second could be stored before a retry of
the first. All other requests are sent concurrently. Their outcomes are checked when the next ones
are sent, and at the end, without a callback for each.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.pending_send import PendingSend
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import IllegalMessageError, MessageIllegalError, RocketPyError
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.sink.requests import Line, Request, make_requests
from rocketpy.spark.sink.rows import BadRow, RowReader, SinkRow
from rocketpy.spark.sink.worker import SinkClient

NO_OFFSET: Final = -1
_UNBOUNDED: Final = 1 << 60
_ENDED_KEPT: Final = 64
"""Most finished requests with unchecked outcomes, beside those in flight."""


@dataclass(slots=True)
class Stored:
    """Rows that a task has stored in one queue.

    Attributes:
        topic: of the queue.
        broker_name: of the queue.
        queue_id: of the queue; -1 for rows that are delayed or sent one-way.
        first: offset of the first row; -1 if unknown.
        last: offset of the last row; messages of others may lie between.
        rows: number of rows.
    """

    topic: str
    broker_name: str
    queue_id: int
    first: int = NO_OFFSET
    last: int = NO_OFFSET
    rows: int = 0

    def add(self, first: int, rows: int) -> None:
        """Add consecutive rows."""
        if first != NO_OFFSET:
            self.first = first if self.first == NO_OFFSET else min(self.first, first)
            self.last = max(self.last, first + rows - 1)
        self.rows += rows

    def merge(self, other: "Stored") -> None:
        """Add the rows of another task in the same queue."""
        rows = self.rows + other.rows
        if other.first != NO_OFFSET:
            self.add(other.first, other.last - other.first + 1)
        self.rows = rows

    def __str__(self) -> str:
        """Return their location: `orders@broker-a:3 offsets 100..199 (100 rows)`."""
        if self.queue_id == NO_OFFSET:
            return f"{self.topic}@{self.broker_name} ({self.rows} rows)"
        place = f"{self.topic}@{self.broker_name}:{self.queue_id}"
        return f"{place} offsets {self.first}..{self.last} ({self.rows} rows)"


class Sender:
    """Sender of one task's rows.

    Args:
        client: the client of the worker process.
        options: of the write.
        reader: converts invalid rows to messages for the dead letter topic.

    Attributes:
        dead_rows: rows sent to that topic.
    """

    def __init__(self, client: SinkClient, options: SinkOptions, reader: RowReader) -> None:
        self._instance = client.instance
        self._transport = client.transport
        self._options = options
        self._reader = reader
        self._next_id = client.instance.next_msg_id
        self._dead_topic = wrap_namespace(options.namespace, options.dead_topic)
        self._room = InFlightWindow(options.inflight, options.inflight_bytes)
        self._sent: deque[tuple[Request, asyncio.Future[SendResult]]] = deque()
        # What operations of ordered requests count in; the bounds are those of `_room`, which those
        # that still wait for their turn count in, too.
        self._window = InFlightWindow(_UNBOUNDED, _UNBOUNDED)
        self._lines: dict[Line, deque[Request]] = {}
        self._stored: dict[tuple[str, str, int], Stored] = {}
        self._failure: BaseException | None = None
        self.dead_rows: int = 0

    @property
    def stored(self) -> list[Stored]:
        """Rows stored so far, by queue, sorted."""
        return [self._stored[key] for key in sorted(self._stored)]

    async def send(self, rows: Iterable[SinkRow | BadRow]) -> None:
        """Send rows; wait while the limits of requests in flight are reached.

        Raises:
            RocketPyError: one of these rows, or an earlier one, could not be sent.
        """
        good = [self._dead(row) if isinstance(row, BadRow) else row for row in rows]
        counts = await self._queue_counts(good)
        for request in make_requests(good, counts, self._options.batch_bytes):
            await self._submit(request)

    async def finish(self) -> None:
        """Wait until every request is acknowledged.

        Raises:
            RocketPyError: the first row that could not be sent; no request is in flight any more.
        """
        await self.settle()
        if self._failure is not None:
            raise self._failure

    async def settle(self) -> None:
        """Wait until no request is in flight, and ignore failures."""
        await self._room.flush()
        while self._sent:
            self._see_to_all()  # rows that a broker rejected may be sent differently
            await self._room.flush()

    def _dead(self, row: BadRow) -> SinkRow:
        if not self._dead_topic:
            raise IllegalMessageError(
                f"row {row.number} of the partition is not a valid message: {row.reason}"
            )
        self.dead_rows += 1
        return self._reader.dead(row, self._dead_topic)

    async def _queue_counts(self, rows: Sequence[SinkRow]) -> dict[str, int]:
        topics = {row.topic for row in rows if row.order_key is not None}
        counts = {}
        for topic in sorted(topics):
            await self._routed(topic)
            counts[topic] = len(self._transport.route(topic).queues)
        return counts

    async def _routed(self, topic: str) -> None:
        """Look up the queues of the topic, unless they are cached."""
        if not self._instance.routes.cached_publish_queues(topic):
            await self._instance.routes.publish_queues(topic)

    async def _submit(self, request: Request) -> None:
        if not self._room.has_space:
            await self._room.wait_for_space()
        if self._sent and self._sent[0][1].done():
            self._see_to_first()
        elif len(self._sent) > 2 * self._room.messages + _ENDED_KEPT:  # finished behind a slow one
            self._see_to_all()
        if self._failure is not None:
            raise self._failure
        if request.line is None:
            self._start(request)
            return
        self._room.enter(request.size_bytes)
        line = self._lines.get(request.line)
        if line is not None:
            line.append(request)
        else:
            self._lines[request.line] = deque()
            self._start(request)

    def _see_to_first(self) -> None:
        """Check the outcomes of the oldest requests, up to the first unfinished one."""
        while self._sent and self._sent[0][1].done():
            self._note(*self._sent.popleft())

    def _see_to_all(self) -> None:
        """Check the outcomes of all finished requests."""
        sent, self._sent = self._sent, deque()
        for request, future in sent:
            if future.done():
                self._note(request, future)
            else:
                self._sent.append((request, future))

    def _start(self, request: Request) -> None:
        operation = PendingSend(
            self._room if request.line is None else self._window,
            self._transport,
            request.topic,
            request.outgoing(self._next_id),
            timeout_ms=self._options.send_timeout_ms,
            attempts=1 + self._options.retries,
            choose=request.chooser,
        )
        if request.line is None:
            self._sent.append((request, operation.future))
        else:
            operation.future.add_done_callback(lambda future: self._ended(request, future))
        operation.start()

    def _ended(self, request: Request, future: "asyncio.Future[SendResult]") -> None:
        """Send the next request of an ordered queue."""
        self._note(request, future)
        self._room.leave(request.size_bytes)
        assert request.line is not None
        self._next_of(request.line)

    def _note(self, request: Request, future: "asyncio.Future[SendResult]") -> None:
        """Record the outcome of a request."""
        error = future.exception()
        if error is None:
            self._count(request, future.result())
        elif isinstance(error, MessageIllegalError | IllegalMessageError):
            self._refused(request, error)
        elif self._failure is None:
            self._failure = _named(request, error)

    def _next_of(self, line: Line) -> None:
        """Return the next request of an ordered queue; drop its requests after a failure."""
        waiting = self._lines[line]
        while waiting:
            request = waiting.popleft()
            if self._failure is None:
                self._start(request)
                return
            self._room.leave(request.size_bytes)
        del self._lines[line]

    def _refused(self, request: Request, error: RocketPyError) -> None:
        """Handle rows that a broker rejected, or that an old broker does not support."""
        if request.batch is not None:
            parts = list(request.one_by_one())
        elif self._dead_topic and request.topic != self._dead_topic:
            row = request.rows[0]
            bad = BadRow(row.number, row.topic, row.message.body, str(error))
            parts = [Request((self._dead(bad),), None, request.line)]
        else:
            if self._failure is None:
                self._failure = _named(request, error)
            return
        if request.line is None:
            for part in parts:
                self._start(part)
        else:  # before requests that already wait
            for part in parts:
                self._room.enter(part.size_bytes)
            self._lines[request.line].extendleft(reversed(parts))

    def _count(self, request: Request, result: SendResult) -> None:
        queue, first = result.queue, result.offset
        if request.is_delayed:  # parked until the delivery time
            self._count_in((request.topic, queue.broker_name, NO_OFFSET), request)
        else:
            self._count_in((request.topic, queue.broker_name, queue.queue_id), request, first)

    def _count_in(self, key: tuple[str, str, int], request: Request, first: int = -1) -> None:
        stored = self._stored.get(key)
        if stored is None:
            stored = self._stored[key] = Stored(*key)
        stored.add(first, len(request.rows))


def _named(request: Request, error: BaseException) -> BaseException:
    first, last = request.rows[0].number, request.rows[-1].number
    rows = f"row {first}" if first == last else f"rows {first} to {last}"
    error.add_note(f"{rows} of the partition, to topic {request.topic}")
    return error
