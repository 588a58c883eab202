"""Pops and notifications that wait for a message.

One message is for one member of a group. So an arrival resumes one waiting request of each group,
who wakes the next when it leaves something behind. The groups that wait for a topic are known by
its name, so that an arrival looks at nobody else.

Source: PopLongPollingService.java (5.4.0).
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from rocketpy.broker.filters.message_filters import ConsumerFilter
from rocketpy.broker.long_polling.suspended_requests import (
    Reply,
    RequestOwner,
    SuspendedRequest,
    SuspendedRequests,
)
from rocketpy.broker.pop.queue_locks import GroupQueue

ANY_QUEUE: Final = -1

Listener = Callable[[str, int, int, int], None]
"""Topic, queue id, next queue offset and tags code of a message that came."""


class Source(Protocol):
    """What a request waits for."""

    def has_message(self, wanted: Any) -> bool:  # noqa: ANN401 - the operation's own
        """Whether there is something to read."""
        ...

    def free_at_ms(self, wanted: Any) -> int | None:  # noqa: ANN401
        """Monotonic time at which the next blocked queue becomes free; None when none is."""
        ...


class Waiting(SuspendedRequest):
    """One request that waits.

    Attributes:
        wanted: what was asked for, as its operation needs it to continue.
        filter: what it takes; None takes everything.
    """

    __slots__ = ("_source", "filter", "wanted")

    def __init__(
        self,
        wanted: Any,  # noqa: ANN401 - the operation's own
        keys: Iterable[Hashable],
        owner: RequestOwner,
        deadline_ms: int,
        source: Source,
        *,
        message_filter: ConsumerFilter | None,
        reply: "WaitingReply",
    ) -> None:
        size_bytes = 0 if message_filter is None else message_filter.size_bytes
        super().__init__(keys, owner, deadline_ms, reply, size_bytes)
        self.wanted: Any = wanted
        self.filter: ConsumerFilter | None = message_filter
        self._source = source

    def is_ready(self) -> bool:
        """Whether there is something to read."""
        return self._source.has_message(self.wanted)

    def looks_next(self, now_ms: int) -> int:
        """When a blocked queue becomes free, for requests in order."""
        if not self.wanted.is_ordered:
            return self.deadline_ms
        free_at_ms = self._source.free_at_ms(self.wanted)
        return self.deadline_ms if free_at_ms is None else max(free_at_ms, now_ms + 1)


WaitingReply: TypeAlias = Reply[Waiting]


class PopWaiters:
    """Requests of one kind that wait, by topic and group; safe from any thread.

    Args:
        suspended: where they wait.
        listen: called once, when the first one waits, with what wants to hear of every message
            that comes: so who never pops pays nothing.
    """

    def __init__(self, suspended: SuspendedRequests, listen: Callable[[Listener], None]) -> None:
        self.suspended = suspended
        self._listen: Callable[[Listener], None] | None = listen
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, None]] = {}

    @property
    def groups(self) -> Mapping[str, Mapping[str, None]]:
        """Topics, with the groups that wait or lately waited for them."""
        return self._groups

    def suspend(self, waiting: Waiting, queues: Sequence[GroupQueue], now_ms: int) -> bool:
        """Let a request wait under its keys; it may be resumed before this returns.

        Args:
            waiting: the request; its keys are `keys_of` the queues.
            queues: what it waits for.
            now_ms: monotonic time.

        Returns:
            False when there is no room for it.
        """
        self._note_groups(queues)
        if not self.suspended.suspend(waiting, now_ms):
            return False
        if self._note_groups(queues) and waiting.is_ready():
            # Its groups were forgotten before it waited: an arrival in between found nobody.
            self.suspended.wake(queues[0], lambda one: one is waiting)
        return True

    def on_arrival(self, topic: str, queue_id: int, _next_offset: int, tags_code: int) -> None:
        """Resume one waiting request of each group; on the putting thread."""
        groups = self._groups.get(topic)
        if not groups:
            return
        for group in tuple(groups):
            self.wake(GroupQueue(topic, group, queue_id), tags_code)

    def on_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Resume one waiting request of a group whose offset of a queue was reset."""
        if group in self._groups.get(topic, ()):
            self.wake(GroupQueue(topic, group, queue_id))

    def wake(self, queue: GroupQueue, tags_code: int | None = None) -> None:
        """Resume one request of a group that waits for a queue.

        Args:
            queue: where something can be read.
            tags_code: of the message that came; None: whatever the request takes.
        """
        topic, group, _ = queue

        def wants(one: Waiting) -> bool:
            return (
                tags_code is None or one.filter is None or one.filter.matches_tags_code(tags_code)
            )

        suspended = self.suspended
        if not (
            suspended.wake(GroupQueue(topic, group, ANY_QUEUE), wants, limit=1)
            or suspended.wake(queue, wants, limit=1)
            or suspended.count_at((topic, group))
        ):
            self._forget_group(topic, group)

    def forget(self, owner: Hashable) -> None:
        """Forget the requests of an owner that is lost.

        A message that came woke one of its group: when that one is lost before its turn, the next
        is woken in its place.
        """
        for lost in self.suspended.release_owner(owner):
            assert isinstance(lost, Waiting)
            wanted = lost.wanted
            self.wake(GroupQueue(wanted.topic, wanted.group, max(ANY_QUEUE, wanted.queue_id)))

    def _note_groups(self, queues: Iterable[GroupQueue]) -> bool:
        """Remember who waits for what; whether anything of it was not known."""
        is_new = False
        with self._lock:
            listen, self._listen = self._listen, None
            for topic, group, _ in queues:
                groups = self._groups.setdefault(topic, {})
                if group not in groups:
                    groups[group] = None
                    is_new = True
        if listen is not None:
            listen(self.on_arrival)
        return is_new

    def _forget_group(self, topic: str, group: str) -> None:
        with self._lock:
            groups = self._groups.get(topic)
            if groups is not None and not self.suspended.count_at((topic, group)):
                groups.pop(group, None)
                if not groups:
                    del self._groups[topic]


def keys_of(queues: Sequence[GroupQueue]) -> list[Hashable]:
    """What a request waits under: its groups, by which it is counted, and its queues."""
    pairs: dict[Hashable, None] = dict.fromkeys((queue.topic, queue.group) for queue in queues)
    return [*pairs, *queues]
