"""The requests of one socket read that go to one pool, and come back as one write."""

from collections.abc import Mapping
from typing import Protocol

from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.business import BusinessPool
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor, Responses, overloaded, waited_too_long
from rocketpy.remoting.in_hand import InHand, request_bytes
from rocketpy.remoting.pool_watch import watch_pool

FLUSH_BYTES = 1024 * 1024
"""Responses are written when they are this big together, before more are made."""


class BatchOwner(Protocol):
    """The connection a batch belongs to."""

    channel: Channel
    in_hand: InHand

    def batch_done(
        self, batch: "RequestBatch", responses: Responses, leftover: list[RemotingCommand]
    ) -> None:
        """Take a batch back; on the connection's loop."""
        ...


class RequestBatch:
    """Made on the loop, run or refused on any thread, taken back on the loop.

    Attributes:
        number: its place in the order of its connection.
        count: how many requests.
        size_bytes: about what they hold.
    """

    __slots__ = ("_owner", "_work", "count", "number", "size_bytes")

    def __init__(self, owner: BatchOwner, work: list[tuple[Processor, RemotingCommand]]) -> None:
        self.number: int = owner.in_hand.number()
        self.count: int = len(work)
        self.size_bytes: int = sum(request_bytes(command) for _, command in work)
        self._owner = owner
        self._work = work

    def run(self) -> None:
        """Process the batch; stop early when responses get big or the peer does not keep up."""
        owner = self._owner
        channel, in_hand = owner.channel, owner.in_hand
        responses = Responses(channel)
        leftover: list[RemotingCommand] = []
        work = self._work
        if channel.is_open:
            for index, (processor, command) in enumerate(work):
                if (
                    in_hand.is_stopped
                    or responses.size_bytes >= FLUSH_BYTES
                    or not channel.is_writable
                ):
                    in_hand.is_stopped = True
                    leftover = [command for _, command in work[index:]]
                    break
                responses.process(processor, command)
        channel.call_soon(owner.batch_done, self, responses, leftover)

    def drop(self) -> None:
        """Let go of the requests: the connection is gone. Who runs them already finishes."""
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
    """Give requests to a pool, and refuse those that find no place in its queue."""
    granted = pool.reserve(len(work))
    if granted < len(work):
        responses.refuse([command for _, command in work[granted:]], overloaded())
        work = work[:granted]
    if work:
        batch = RequestBatch(owner, work)
        owner.in_hand.add(batch.count, batch.size_bytes)
        owner.in_hand.batches[batch] = None
        pool.submit(batch)
