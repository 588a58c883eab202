"""Deferred responses that were set, on their way to the loop of their connection."""

import collections
from collections.abc import Callable
from typing import cast

from rocketpy.remoting.channel import Channel
from rocketpy.remoting.deferred import DeferredResponse
from rocketpy.remoting.dispatch import Response, Responses


class CompletedResponses:
    """Gathers what is set on any thread; many set together wake the loop once."""

    __slots__ = ("_channel", "_is_scheduled", "_queue", "_take")

    def __init__(self, channel: Channel, take: Callable[[Responses, int], None]) -> None:
        """Set up for a channel.

        Args:
            channel: where the responses go.
            take: gets them and how many requests they answer, on the channel's loop.
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
        """Forget what is on its way."""
        self._queue.clear()

    def _drain(self) -> None:
        # First: what is appended from now on schedules another call.
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
