"""Telling a user which queues a consumer got, and which it is about to lose."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from rocketpy.client.handlers import is_coroutine_function
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX

logger: logging.Logger = logging.getLogger(__name__)

AssignmentHook = Callable[[list[MessageQueue]], Awaitable[None] | None]
"""Gets queues; a coroutine function, or a plain one, which runs on a thread."""


class AssignmentHooks:
    """Calls the hooks, if there are some; what they raise is logged.

    Queues of the group's retry topic are nobody's business and left out.

    Args:
        group: for the log.
        on_assigned: told of queues that are read from now on.
        on_revoked: told of queues that are given up now, while their offsets can be committed.
    """

    def __init__(
        self, group: str, on_assigned: AssignmentHook | None, on_revoked: AssignmentHook | None
    ) -> None:
        self._group = group
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked

    async def assigned(self, queues: Iterable[MessageQueue]) -> None:
        """Tell of queues that are ours now."""
        await self._tell(self._on_assigned, queues)

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Tell of queues that stop being ours."""
        await self._tell(self._on_revoked, queues)

    async def _tell(self, hook: AssignmentHook | None, queues: Iterable[MessageQueue]) -> None:
        if hook is None:
            return
        told = sorted(each for each in queues if not each.topic.startswith(RETRY_PREFIX))
        if not told:
            return
        try:
            if is_coroutine_function(hook):
                work = hook(told)
                assert work is not None
                await work
            else:
                await asyncio.get_running_loop().run_in_executor(None, hook, told)
        except Exception:
            logger.exception(
                "a hook of group %(group)s failed for %(queues)s",
                {"group": self._group, "queues": told},
            )
