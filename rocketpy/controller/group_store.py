"""Groups and their durable log: one change at a time, stored before it is applied."""

import asyncio
from collections.abc import Callable, Sequence

from rocketpy.controller.events import AnyEvent
from rocketpy.controller.replica_groups import ReplicaGroups
from rocketpy.controller.rules import Verdict
from rocketpy.controller.state_log import StateLog
from rocketpy.errors import StoreReadOnlyError
from rocketpy.runtime.ordered_set import OrderedSet

Listener = Callable[[Sequence[AnyEvent]], None]


class GroupStore:
    """Groups of a controller, on one event loop.

    Args:
        log: where changes are stored.

    Attributes:
        groups: the stored state; read only.
        is_read_only: whether a write has failed: the stored state is unknown until a restart.
    """

    def __init__(self, log: StateLog) -> None:
        self.groups: ReplicaGroups = ReplicaGroups()
        self.is_read_only: bool = False
        self._log = log
        self._changing = asyncio.Lock()
        self._tasks: OrderedSet[asyncio.Task[Verdict]] = OrderedSet()
        self._listeners: list[Listener] = []

    @property
    def state_id(self) -> str:
        """See `StateLog.state_id`."""
        return self._log.state_id

    def add_listener(self, listener: Listener) -> None:
        """Call a listener with the events of each change, after they were applied."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Load the stored state.

        Raises:
            StoreError: it cannot be used.
        """
        groups = ReplicaGroups()
        groups.apply(await self._log.load())
        self.groups, self.is_read_only = groups, False

    def reset(self) -> None:
        """Forget the state, which another controller may change from now on."""
        self.groups, self.is_read_only = ReplicaGroups(), False

    async def change(self, decide: Callable[[], Verdict]) -> Verdict:
        """Decide about a change, store it, apply it.

        A change that has begun ends, even if its caller is cancelled: a stored change that was not
        applied would make the state a wrong one.

        Args:
            decide: called when all earlier changes are applied.

        Raises:
            ResourceShortError: the change cannot be stored now; nothing was changed.
            StoreReadOnlyError: a write has failed.
        """
        task = asyncio.ensure_future(self._change(decide))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _change(self, decide: Callable[[], Verdict]) -> Verdict:
        async with self._changing:
            groups = self.groups
            verdict = decide()
            if not verdict.events:
                return verdict
            try:
                await self._log.append(verdict.events)
            except StoreReadOnlyError:
                self.is_read_only = True
                raise
            self.is_read_only = False
            if groups is not self.groups:
                raise StoreReadOnlyError("the leadership has ended meanwhile")
            groups.apply(verdict.events)
        for listener in self._listeners:
            listener(verdict.events)
        return verdict

    async def close(self) -> None:
        """Finish changes that have begun, and close the log."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._log.close()
