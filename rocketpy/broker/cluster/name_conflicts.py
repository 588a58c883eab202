"""Conflicts of a broker with another live one of its name and id, as name servers report them.

The first of the two keeps its routes, and the other one waits. A restarted name server knows
neither, and would give the routes to the one that registers first. So the waiting broker asks a
name server first, and lets the other one register there before it.
"""

from collections.abc import Collection
from typing import Any, Final

import structlog

from rocketpy.proto.headers.namesrv import NO_ROUTES_REMARK

logger: Any = structlog.get_logger(__name__)

FREE: Final = ""
"""Holder of a name and id that no broker has registered."""


class NameConflicts:
    """Last report of each name server; not thread-safe."""

    def __init__(self) -> None:
        self._remarks: dict[str, str] = {}
        self._free_since_s: dict[str, float] = {}

    def note(self, address: str, remark: str) -> None:
        """Store the remark of an accepted registration; log when a conflict begins or ends.

        Args:
            address: the name server.
            remark: empty without a conflict.
        """
        self._free_since_s.pop(address, None)
        if remark == self._remarks.get(address, ""):
            return
        if remark:
            self._remarks[address] = remark
            logger.warning(
                "broker name conflict: stop one of the two brokers, or change its brokerName",
                name_server=address,
                remark=remark,
            )
        else:
            del self._remarks[address]
            logger.info("broker name conflict ended", name_server=address)

    def waits_at(self, address: str) -> bool:
        """Return whether a name server gives the routes to the other broker."""
        return self._remarks.get(address, "").endswith(NO_ROUTES_REMARK)

    def remark_without_routes(self, addresses: Collection[str]) -> str | None:
        """Return the remark of one that gives the routes to the other broker; None without one."""
        return next((self._remarks[each] for each in addresses if self.waits_at(each)), None)

    def may_be_first(self, address: str, reached: Collection[str]) -> bool:
        """Return whether this broker may register without asking for the holder before.

        Args:
            address: the name server.
            reached: name servers that accepted the last registration.
        """
        return not (self.waits_at(address) or self._waits_elsewhere(address, reached))

    def note_holder(self, address: str, holder: str | None, now_s: float) -> None:
        """Store which broker a name server has under the name and id.

        Args:
            address: the name server.
            holder: address of the broker, or `FREE`; None if unknown, as during a restart.
            now_s: monotonic time.
        """
        if holder == FREE:
            self._free_since_s.setdefault(address, now_s)
        else:
            self._free_since_s.pop(address, None)

    def must_yield(
        self, address: str, reached: Collection[str], *, now_s: float, period_s: float
    ) -> bool:
        """Return whether the other broker must be able to register before this one.

        Args:
            address: the name server; see `note_holder`.
            reached: name servers that accepted the last registration.
            now_s: monotonic time.
            period_s: time in which each live broker registers.
        """
        since_s = self._free_since_s.get(address)
        if since_s is None:
            return False
        return self._waits_elsewhere(address, reached) or now_s - since_s < period_s

    def _waits_elsewhere(self, address: str, reached: Collection[str]) -> bool:
        """Return whether another name server has the other broker, and has not restarted since."""
        others = (each for each in reached if each != address and each not in self._free_since_s)
        return any(map(self.waits_at, others))
