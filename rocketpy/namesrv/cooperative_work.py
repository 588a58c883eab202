"""Runs long requests in steps, so that their event loop serves other connections in between.

A registration of a hundred thousand topics takes more than a second; it yields to the loop every
few milliseconds.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.service import Steps, run_to_end

_T = TypeVar("_T")


class _Line:
    """Queue of the long requests of one loop, which run one at a time, in order."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting: Counter[Channel] = Counter()


class LongWork:
    """Runner of requests in steps, in order for each connection.

    One long request runs at a time, which bounds the memory that they hold. Short requests of other
    connections overtake it.
    """

    def __init__(self) -> None:
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    def do(
        self, channel: Channel, steps: Steps[_T], *, is_long: bool = False
    ) -> _T | Awaitable[_T | None]:
        """Run a request now, or in steps if it is long or follows a long one.

        Args:
            channel: the requesting connection; when it closes, its remaining steps are dropped.
            steps: the work.
            is_long: it may take more than a few milliseconds.

        Returns:
            The result of the steps, or an awaitable of it; None for a dropped request.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # on a pool thread, which does not block the loop
            return run_to_end(steps)
        line = self._lines.setdefault(loop, _Line())
        if not is_long and channel not in line.waiting:
            return run_to_end(steps)
        line.waiting[channel] += 1
        return self._do_later(line, channel, steps)

    @staticmethod
    async def _do_later(line: _Line, channel: Channel, steps: Steps[_T]) -> _T | None:
        try:
            async with line.lock:
                while channel.is_open:
                    try:
                        next(steps)
                    except StopIteration as end:
                        result: _T = end.value
                        return result
                    await asyncio.sleep(0)
        finally:
            line.waiting[channel] -= 1
            if not line.waiting[channel]:
                del line.waiting[channel]
        return None
