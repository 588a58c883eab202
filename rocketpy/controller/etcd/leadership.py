"""Leadership of one of several controllers: campaign, keep, lose.

Source: DLedgerController.RoleChangeHandler (5.4.0); etcd instead of Raft is ours.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from rocketpy.controller.etcd.etcd_log import EtcdStateLog
from rocketpy.errors import RocketPyError

_logger = structlog.get_logger(__name__)

_PERIOD_S: Final = 1.0
"""A fifth of the time after which etcd ends a leadership."""


class Leadership:
    """Task that keeps a controller the leader, or makes it the leader when there is none.

    Args:
        log: the log, which knows the leader.
        gain: called when this controller has become the leader; a failure ends the leadership.
        lose: called when it has lost the leadership.
    """

    def __init__(
        self, log: EtcdStateLog, gain: Callable[[], Awaitable[None]], lose: Callable[[], None]
    ) -> None:
        self._log = log
        self._gain = gain
        self._lose = lose
        self._leads = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for a leader, on the running loop."""
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """End the leadership, if any."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._end()
        await self._log.resign()

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except RocketPyError as error:
                _logger.warning("leadership uncertain", error=str(error), leads=self._leads)
            except Exception:
                # Continues: that a controller had stopped its campaign would be noticed too late.
                _logger.exception("leadership check failed")
            await asyncio.sleep(_PERIOD_S)

    async def _step(self) -> None:
        if self._leads:
            if self._log.is_leader and await self._log.keep():
                return
            self._end()
            await self._log.resign()
        if await self._log.look() is None and await self._log.campaign():
            await self._begin()

    async def _begin(self) -> None:
        try:
            await self._gain()
        except RocketPyError:
            await self._log.resign()
            raise
        self._leads = True
        _logger.warning("leadership begins", leader=self._log.leader)

    def _end(self) -> None:
        if self._leads:
            self._leads = False
            _logger.warning("leadership ends")
            self._lose()
