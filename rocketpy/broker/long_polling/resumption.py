"""Runs the work of requests that waited: one at a time a connection, when its peer takes more.

One message may wake thousands of pulls, each of which reads megabytes. What must hold:

- A channel has at most one piece of work under way, and it begins inside `Channel.when_writable`.
  So about one response a channel lies unsent, however many of its requests were woken; the others
  wait as fields. The channels take turns there, and the loop serves others in between.
- Work never runs in the call that wakes: that is the putting thread, in the middle of a batch, and
  a batch then wakes each pull once with all its messages.
"""

import collections
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel

_log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], bytes | None]
"""Makes the frame of a response; raises nothing that its client should hear of.

None: there is none yet, the request waits again or is answered later."""


class ResumeQueue:
    """Runs work on the loops of channels, or on a pool when it has threads.

    Args:
        pool: where work runs; one without threads is the loop of the channel.
    """

    def __init__(self, pool: BusinessPool) -> None:
        self._pool = None if pool.runs_inline else pool
        self._lock = threading.Lock()
        self._waiting: dict[Channel, collections.deque[Work]] = {}

    def add(self, channel: Channel, work: Work) -> None:
        """Run work for a channel in its turn, and send what it makes; any thread."""
        with self._lock:
            waiting = self._waiting.get(channel)
            if waiting is not None:
                waiting.append(work)
                return
            self._waiting[channel] = collections.deque((work,))
        channel.when_writable(partial(self._begin, channel))
        if not channel.is_open:  # whoever reported its loss may have been faster than this
            self.forget(channel)

    def forget(self, channel: Channel) -> None:
        """Drop the work of a lost channel."""
        with self._lock:
            self._waiting.pop(channel, None)

    def _begin(self, channel: Channel) -> None:
        with self._lock:
            waiting = self._waiting.get(channel)
            if not waiting:
                return
            work = waiting.popleft()
        pool = self._pool
        if pool is not None and pool.reserve(1):
            pool.submit(_PooledWork(channel, work, self._end))
        else:
            # On the loop of the channel. What has nothing to leave with leaves now.
            is_alone = not waiting and not channel.has_unwritten
            _run(channel, work, channel.write if is_alone else channel.send)
            self._end(channel)

    def _end(self, channel: Channel) -> None:
        with self._lock:
            if not self._waiting.get(channel):
                self._waiting.pop(channel, None)
                return
        channel.when_writable(partial(self._begin, channel))


class _PooledWork:
    """A piece of work as a pool takes it."""

    count = 1

    def __init__(self, channel: Channel, work: Work, end: Callable[[Channel], None]) -> None:
        self._channel = channel
        self._work = work
        self._end = end

    def run(self) -> None:
        """Do it; on a pool thread."""
        _run(self._channel, self._work, self._channel.send)
        # Behind the response in the loop's queue, so that it is written before the next begins.
        self._channel.call_soon(self._end, self._channel)

    def refuse(self, waited_ms: int, queued_count: int) -> None:  # noqa: ARG002 - see `Batch`
        """Do it all the same: who was woken has waited long enough."""
        self.run()


def _run(channel: Channel, work: Work, write: Callable[[bytes], None]) -> None:
    if not channel.is_open:
        return
    try:
        frame = work()
        if frame is not None:
            write(frame)
    except Exception:  # noqa: BLE001 - the work behind it must go on
        _log.exception("resumed request failed peer=%s", channel.remote_address)
