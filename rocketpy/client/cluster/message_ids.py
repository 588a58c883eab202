"""Message ids of this process: the pure generator, fed with the machine's calendar."""

import ipaddress
import random
from datetime import datetime
from typing import Final

from rocketpy.proto.record.message_id import UniqIdGenerator
from rocketpy.runtime.clock import Clock

_AT_ONCE: Final = 1024
"""Ids that are made of one look at the clock."""


class MsgIds:
    """Makes ids that start with this machine's address and process.

    Args:
        ip: the address, text.
        process_id: of this process.
        clock: wall clock at the start, monotonic from then on: a wall clock that is set back would
            give ids again that were given.
        rng: distinguishes processes that share address and process id (containers).
    """

    def __init__(self, ip: str, process_id: int, clock: Clock, rng: random.Random) -> None:
        try:
            packed = ipaddress.ip_address(ip).packed
        except ValueError:  # a client_ip that is a name
            packed = rng.randbytes(4)
        self._clock = clock
        self._offset_ms = clock.time_ms() - clock.monotonic_ms()
        self._generator = UniqIdGenerator(packed, process_id, rng.getrandbits(32))

    def next(self) -> str:
        """Return the next id."""
        now_ms = self._offset_ms + self._clock.monotonic_ms()
        if self._generator.needs_month(now_ms):
            self._set_month(now_ms)
        return self._generator.next_id(now_ms)

    def next_many(self, count: int) -> list[str]:
        """Return the next ids, of looks at the clock so often that none can be given twice."""
        ids: list[str] = []
        while len(ids) < count:
            now_ms = self._offset_ms + self._clock.monotonic_ms()
            if self._generator.needs_month(now_ms):
                self._set_month(now_ms)
            ids += self._generator.next_ids(now_ms, min(_AT_ONCE, count - len(ids)))
        return ids

    def _set_month(self, now_ms: int) -> None:
        local = datetime.fromtimestamp(now_ms / 1000).astimezone()
        start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following_year = start.year + start.month // 12
        end = start.replace(year=following_year, month=start.month % 12 + 1)
        self._generator.set_month(int(start.timestamp() * 1000), int(end.timestamp() * 1000))
