"""Hand-off between a connection's loop and other threads.

`RequestBatch`: requests of one socket read that go to one pool and return as one write.
`CompletedResponses`: deferred responses that were set, on their way to the loop.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.business_pool import BusinessPool, watch_pool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import (
    Processor,
    Response,
    Responses,
    overloaded,
    waited_too_long,
)
from rocketpy.remoting.connection.frame_connection import FLUSH_BYTES
from rocketpy.remoting.connection.requests_in_progress import RequestsInProgress, request_bytes
from rocketpy.remoting.connection.slow_requests import SlowRequests


class BatchOwner(Protocol):
    """Connection of a batch."""

    channel: Channel
    in_progress: RequestsInProgress
    slow: SlowRequests

    def batch_done(
        self, batch: "RequestBatch", responses: Responses, leftover: list[RemotingCommand]
    ) -> None:
        """Take a batch back; on the connection's loop."""
        ...


class RequestBatch:
    """Requests for a pool: made on the loop, run or refused on any thread, returned on the loop.

    Attributes:
        number: its position in the order of its connection.
        count: how many requests.
        size_bytes: about what they hold.
    """

    __slots__ = ("_arrived_ms", "_owner", "_work", "count", "number", "size_bytes")

    def __init__(self, owner: BatchOwner, work: list[tuple[Processor, RemotingCommand]]) -> None:
        self.number: int = owner.in_progress.number()
        self.count: int = len(work)
        self.size_bytes: int = sum(request_bytes(command) for _, command in work)
        self._owner = owner
        self._arrived_ms = owner.slow.clock.monotonic_ms() if owner.slow.limit_ms else 0
        self._work = work

    def run(self) -> None:
        """Process the batch; stop early when responses get big or the peer does not keep up."""
        owner = self._owner
        channel, in_progress = owner.channel, owner.in_progress
        slow = owner.slow
        turn_ms = slow.clock.monotonic_ms()
        responses = Responses(channel)
        leftover: list[RemotingCommand] = []
        work = self._work
        if channel.is_open:
            for index, (processor, command) in enumerate(work):
                # Checked before each request, so that at most one big response is made too many.
                if (
                    in_progress.is_stopped
                    or responses.size_bytes >= FLUSH_BYTES
                    or not channel.is_writable
                ):
                    in_progress.is_stopped = True
                    leftover = [command for _, command in work[index:]]
                    break
                responses.process(processor, command)
                # A limit that was set meanwhile counts from the next batch on.
                if self._arrived_ms:
                    done_ms = slow.clock.monotonic_ms()
                    # With the wait, which is that of the whole pool and not of this peer alone.
                    if done_ms - self._arrived_ms >= slow.limit_ms > 0:
                        wait_ms = turn_ms - self._arrived_ms
                        slow.report(channel, command, wait_ms, done_ms - turn_ms)
                    turn_ms = done_ms
        channel.call_soon(owner.batch_done, self, responses, leftover)

    def drop(self) -> None:
        """Drop the requests: the connection is gone. A thread that runs them already finishes."""
        # A new list: a thread that runs the old one iterates over it.
        self._work = []

    def refuse(self, waited_ms: int, queued_count: int) -> None:
        """Answer all with flow control: they waited too long."""
        channel = self._owner.channel
        responses = Responses(channel)
        remark = waited_too_long(waited_ms, queued_count)
        responses.refuse([command for _, command in self._work], remark)
        channel.call_soon(self._owner.batch_done, self, responses, [])


def hand_over(
    owner: BatchOwner,
    batches: Mapping[BusinessPool, list[tuple[Processor, RemotingCommand]]],
    responses: Responses,
) -> None:
    """Give requests to their pools; on the loop of the connection."""
    for pool, work in batches.items():
        _hand_over(owner, pool, work, responses)
        watch_pool(owner.channel.loop, pool)


def _hand_over(
    owner: BatchOwner,
    pool: BusinessPool,
    work: list[tuple[Processor, RemotingCommand]],
    responses: Responses,
) -> None:
    """Give requests to a pool, and refuse those that find no room in its queue."""
    # Partly granted: the oldest requests get the room.
    granted = pool.reserve(len(work))
    if granted < len(work):
        responses.refuse([command for _, command in work[granted:]], overloaded())
        work = work[:granted]
    if work:
        batch = RequestBatch(owner, work)
        # Counted before `submit`: the pool's thread may return the batch at once.
        owner.in_progress.add(batch.count, batch.size_bytes)
        owner.in_progress.batches[batch] = None
        pool.submit(batch)


class CompletedResponses:
    """Deferred responses set on any thread; several set together wake the loop once."""

    __slots__ = ("_channel", "_is_scheduled", "_queue", "_take")

    def __init__(self, channel: Channel, take: Callable[[Responses, int], None]) -> None:
        """Set up for a channel.

        Args:
            channel: where the responses go.
            take: called with them and the number of requests they answer, on the loop.
        """
        self._channel = channel
        self._take = take
        self._queue: collections.deque[tuple[DeferredResponse, object]] = collections.deque()
        self._is_scheduled = False

    def add(self, deferred: DeferredResponse, response: object) -> None:
        """Take a deferred response; any thread."""
        self._queue.append((deferred, response))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._channel.call_soon(self._drain)

    def clear(self) -> None:
        """Drop responses that are on their way."""
        self._queue.clear()

    def _drain(self) -> None:
        # First: a response that is appended from now on schedules another call.
        self._is_scheduled = False
        responses = Responses(self._channel)
        count = 0
        while self._queue:
            deferred, response = self._queue.popleft()
            count += deferred.count
            try:
                responses.add(deferred.request, cast("Response", response))
            except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
                responses.add_error(deferred.request, error)
        self._take(responses, count)
