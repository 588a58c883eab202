"""Long work of a loop's connections, done in steps so that the loop serves others in between.

A registration of a hundred thousand topics takes more than a second; each pause of it is a turn of
the loop.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.service import Steps, run_to_end

_T = TypeVar("_T")


class _Line:
    """The long work of one loop: one piece of work at a time, in the order it came."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting: Counter[Channel] = Counter()


class LongWork:
    """Does work of connections in steps; what one connection asks for is done in order.

    One piece of long work at a time: what it holds is not held many times over. Short work of other
    connections passes it.
    """

    def __init__(self) -> None:
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    def do(
        self, channel: Channel, steps: Steps[_T], *, is_long: bool = False
    ) -> _T | Awaitable[_T | None]:
        """Do work now, or in steps when it is long or comes behind long work.

        Args:
            channel: who asks; when it is closed the rest of its work is dropped.
            steps: the work.
            is_long: it may take more than a few milliseconds.

        Returns:
            What the work returns, or what will; None for work that was dropped.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # on a thread of a pool: the loop serves others anyway
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
