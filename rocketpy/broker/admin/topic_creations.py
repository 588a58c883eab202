"""Creations of topics that are in hand together share one write and one registration.

The table's file is written as a whole and synced before anybody is told of a change, and the name
servers hear of it before its sender does. With ten thousand topics that is 8 ms of processor time.
So a creation waits for those that its pool holds behind it: what they ask for is looked at, changed
and written under one lock, in the order in which they came, and each has its own response when all
of it is on disk and announced. One alone is written at once. What cannot be written did not happen
for any of them.

Other requests about topics see what was asked for before them (`behind`).
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import Processor, Response, failed

_MOST_BYTES: Final = 1 << 20
"""Bodies that wait for one write; with more it is made at once."""


class _Creation(NamedTuple):
    """One request that waits.

    Attributes:
        channel: who asks.
        request: for what.
        deferred: where the response goes.
    """

    channel: Channel
    request: RemotingCommand
    deferred: DeferredResponse


class TopicCreations:
    """Gathers requests that create or change topics; any thread.

    Args:
        processors: what answers each code, alone.
        topics: where they write.
        pool: serves them.
        when_announced: calls back once the name servers know all changes so far.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor],
        topics: TopicTable,
        pool: BusinessPool,
        when_announced: Callable[[Callable[[], None]], None],
    ) -> None:
        self._processors = dict(processors)
        self._topics = topics
        self._pool = pool
        self._when_announced = when_announced
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[_Creation] = []
        self._waiting_bytes = 0

    def process(self, channel: Channel, request: RemotingCommand) -> DeferredResponse:
        """Take a request; it is answered when what it asks for is on disk and announced."""
        creation = _Creation(channel, request, channel.defer(request))
        with self._lock:
            self._waiting.append(creation)
            self._waiting_bytes += len(request.body)
            is_first, is_enough = len(self._waiting) == 1, self._waiting_bytes > _MOST_BYTES
        if is_enough:
            self.write()
        elif not is_first:
            pass  # the first one has asked for the write already
        elif self._pool.runs_inline:
            channel.call_soon(self.write)
        else:
            self._pool.run_behind(self.write)
        return creation.deferred

    def behind(self, processor: Processor) -> Processor:
        """Return a processor that writes what waits before it answers."""

        def process(channel: Channel, request: RemotingCommand) -> Response:
            self.write()
            self._topics.write()  # what sends have made: nobody is told of what is not on disk
            return processor(channel, request)

        return process

    def write(self) -> None:
        """Change and write what waits, if anything does, and have it announced and answered."""
        # Who finds nothing left waits for the one that took it: his own request came behind.
        with self._writing:
            with self._lock:
                taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
            responses = self._responses(taken) if taken else []
        if taken:
            self._when_announced(partial(_answer, taken, responses))

    def _responses(self, taken: list[_Creation]) -> list[RemotingCommand]:
        responses: list[RemotingCommand] = []
        try:
            with self._topics.one_write():
                for creation in taken:
                    responses.append(self._apply(creation))  # noqa: PERF401 - kept when it fails
        except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
            return [
                response if response.code else failed(creation.channel, creation.request, error)
                for creation, response in zip(taken, responses, strict=True)
            ]
        return responses

    def _apply(self, creation: _Creation) -> RemotingCommand:
        """Do what one request asks for; what is wrong with it keeps no other from its place."""
        channel, request, _ = creation
        try:
            response = self._processors[request.code](channel, request)
        except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
            return failed(channel, request, error)
        assert isinstance(response, RemotingCommand)
        return response


def _answer(taken: list[_Creation], responses: list[RemotingCommand]) -> None:
    for creation, response in zip(taken, responses, strict=True):
        creation.deferred.set(response)
