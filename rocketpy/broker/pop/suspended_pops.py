"""Suspended pops and notifications.

One message is for one member of a group. An arriving message therefore resumes one suspended
request of each group; when that leaves messages behind, it resumes the next one. Groups that wait
are kept by topic, so that an arrival checks no other groups.

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
from rocketpy.broker.pop.pop_locks import GroupQueue

ANY_QUEUE: Final = -1

Listener = Callable[[str, int, int, int], None]
"""Called with topic, queue id, next queue offset and tags code of an arriving message."""


class Source(Protocol):
    """Interface of the queues of a request."""

    def has_message(self, wanted: Any) -> bool:  # noqa: ANN401 - the operation's own
        """Return whether there is a message to read."""
        ...

    def free_at_ms(self, wanted: Any) -> int | None:  # noqa: ANN401
        """Return the monotonic time at which the next blocked queue is free; None if none is."""
        ...


class SuspendedPop(SuspendedRequest):
    """A suspended request.

    Attributes:
        wanted: the request, as its operation needs it to continue.
        filter: its filter; None accepts everything.
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
        reply: "PopReply",
    ) -> None:
        size_bytes = 0 if message_filter is None else message_filter.size_bytes
        super().__init__(keys, owner, deadline_ms, reply, size_bytes)
        self.wanted: Any = wanted
        self.filter: ConsumerFilter | None = message_filter
        self._source = source

    def is_ready(self) -> bool:
        """Return whether there is a message to read."""
        return self._source.has_message(self.wanted)

    def next_check_ms(self, now_ms: int) -> int:
        """Return when a blocked queue becomes free; the deadline for unordered requests."""
        if not self.wanted.is_ordered:
            return self.deadline_ms
        free_at_ms = self._source.free_at_ms(self.wanted)
        return self.deadline_ms if free_at_ms is None else max(free_at_ms, now_ms + 1)


PopReply: TypeAlias = Reply[SuspendedPop]


class SuspendedPops:
    """Suspended requests of one kind, by topic and group; safe from any thread.

    Args:
        suspended: the table of suspended requests.
        listen: subscribes a listener to message arrivals; called when the first request is
            suspended, so that a broker without pops has no cost for each message.
    """

    def __init__(self, suspended: SuspendedRequests, listen: Callable[[Listener], None]) -> None:
        self.suspended = suspended
        self._listen: Callable[[Listener], None] | None = listen
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, None]] = {}

    @property
    def groups(self) -> Mapping[str, Mapping[str, None]]:
        """Topics, with the groups that wait for them now or did recently."""
        return self._groups

    def suspend(self, waiting: SuspendedPop, queues: Sequence[GroupQueue], now_ms: int) -> bool:
        """Suspend a request; it may be resumed before this returns.

        Args:
            waiting: the request; its keys are `keys_of` the queues.
            queues: the queues that it waits for.
            now_ms: monotonic time.

        Returns:
            False when too many requests are suspended.
        """
        self._note_groups(queues)
        if not self.suspended.suspend(waiting, now_ms):
            return False
        if self._note_groups(queues) and waiting.is_ready():
            # Its groups were dropped before it was suspended, so an arrival in between was missed.
            self.suspended.wake(queues[0], lambda one: one is waiting)
        return True

    def on_arrival(self, topic: str, queue_id: int, _next_offset: int, tags_code: int) -> None:
        """Resume one suspended request of each group; on the thread that stored the message."""
        groups = self._groups.get(topic)
        if not groups:
            return
        for group in tuple(groups):
            self.wake(GroupQueue(topic, group, queue_id), tags_code)

    def on_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Resume one suspended request of a group after a reset of its offset."""
        if group in self._groups.get(topic, ()):
            self.wake(GroupQueue(topic, group, queue_id))

    def wake(self, queue: GroupQueue, tags_code: int | None = None) -> None:
        """Resume one suspended request of a group for a queue.

        Args:
            queue: queue with a message.
            tags_code: tags code of the message; None resumes any request.
        """
        topic, group, _ = queue

        def wants(one: SuspendedPop) -> bool:
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
        """Drop the requests of a lost owner.

        An arriving message may have resumed one of them. It could not read the message, so the next
        request of the group is resumed in its place.
        """
        for lost in self.suspended.release_owner(owner):
            assert isinstance(lost, SuspendedPop)
            wanted = lost.wanted
            self.wake(GroupQueue(wanted.topic, wanted.group, max(ANY_QUEUE, wanted.queue_id)))

    def _note_groups(self, queues: Iterable[GroupQueue]) -> bool:
        """Register the groups of queues; returns whether one of them was new."""
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
    """Return the keys of a request: its groups, which are counted, and its queues."""
    pairs: dict[Hashable, None] = dict.fromkeys((queue.topic, queue.group) for queue in queues)
    return [*pairs, *queues]
