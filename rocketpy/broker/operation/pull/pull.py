"""Pulling: read a queue, or wait for something to read. Checks run in Apache's order.

A pull that finds nothing yet is suspended until a message comes that it takes, or its time is
over. It is kept as a `SuspendedPull` meanwhile, which has the fields it needs to go on and nothing
else of the request. Its keys are its queue, and its queue with each tag it takes, so that an
arrival looks at nobody whose tag it is not.

One read looks at a bounded number of queue entries: a filter that takes none of them is answered
with the offset to go on at, as Apache does.

Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java (5.4.0).

The message that came last, read once for all conditions that wait for it.
"""

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.message_filters import ConsumerFilter, TagFilter
from rocketpy.broker.long_polling.suspended_requests import (
    Reply,
    RequestOwner,
    SuspendedRequest,
    SuspendedRequests,
)
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.checks import KEPT_EXPRESSION_CHARS, PullChecks
from rocketpy.broker.operation.pull.filters import PullFilters
from rocketpy.broker.operation.pull.request import (
    PullOutcome,
    PullRefused,
    PullRequest,
    PullResult,
)
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.record import properties_of
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import GetMessageResult, GetMessageStatus, MessageFilter

_MOST_WEIGHT: Final = 1_000
"""Of the conditions that one message is looked at by while it is stored: some 20 ms of them."""


class _Store(Protocol):
    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int
    ) -> GetMessageResult: ...


class LastArrival:
    """Properties of the message that came last; any thread.

    Args:
        store: has it.
    """

    __slots__ = ("_found", "_store", "_weight_left")

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._found: tuple[str, int, int, bytes | None] | None = None
        self._weight_left = _MOST_WEIGHT

    def forget(self) -> None:
        """Another message came: what was read is not asked for again."""
        self._found = None
        self._weight_left = _MOST_WEIGHT

    def has_budget_for(self, weight: int) -> bool:
        """Whether it may be looked at by one more condition: others wait until all have looked.

        Args:
            weight: of the condition, see `rocketpy.sql92.condition.Condition`.
        """
        if weight > self._weight_left:
            return False
        self._weight_left -= weight
        return True

    def properties(self, topic: str, queue_id: int, queue_offset: int) -> bytes | None:
        """Return a message's properties as stored; None when they cannot be read like this.

        Args:
            topic: of the queue.
            queue_id: of the queue.
            queue_offset: of the message.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        found = self._found
        if found is None or found[:3] != (topic, queue_id, queue_offset):
            read = self._store.get_message(topic, queue_id, queue_offset, 1, 1)
            is_found = read.status is GetMessageStatus.FOUND
            is_it = is_found and read.next_begin_offset == queue_offset + 1
            properties = properties_of(read.buffers[0]) if is_it else None
            found = self._found = topic, queue_id, queue_offset, properties
        return found[3]


MAX_SUSPEND_MS: Final = 30_000
GROWTH_INTERVAL_MS: Final = 5_000
"""A suspended pull with a filter goes on this often when its queue has grown: so that a consumer
with a narrow filter moves on, and retention does not overtake it."""
MAX_PULL_BYTES: Final = 8 * 1024 * 1024
MAX_PULL_COUNT: Final = 1_024
"""As many as official clients may be told to ask for. A read may look at as many entries, so this
also bounds what a filter that takes nothing costs the loop."""

_MAX_LOOKED_AT: Final = 128
"""Messages that a suspended pull's condition is asked about for one arrival."""
_MAX_TAG_KEYS: Final = 32

CODE_BY_STATUS: Final[Mapping[GetMessageStatus, int]] = MappingProxyType(
    {
        GetMessageStatus.FOUND: int(ResponseCode.SUCCESS),
        GetMessageStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        GetMessageStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        GetMessageStatus.OFFSET_FOUND_NULL: int(ResponseCode.PULL_NOT_FOUND),
        GetMessageStatus.OFFSET_OVERFLOW_ONE: int(ResponseCode.PULL_NOT_FOUND),
        GetMessageStatus.OFFSET_OVERFLOW_BADLY: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.OFFSET_TOO_SMALL: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.OFFSET_RESET: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.NO_MESSAGE_IN_QUEUE: int(ResponseCode.PULL_OFFSET_MOVED),
    }
)
assert set(CODE_BY_STATUS) == set(GetMessageStatus)
_EMPTY_QUEUE: Final = frozenset(
    {GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE}
)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_SUCCESS: Final = int(ResponseCode.SUCCESS)


class MessageReader(Protocol):
    """What a pull needs of the store."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002
        *,
        may_join: bool = False,
    ) -> GetMessageResult:
        """Read a queue."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset after the last of a queue."""
        ...


class PullCounter(Protocol):
    """What a pull counts."""

    def inc_get(self, group: str, topic: str, count: int, size_bytes: int, times: int = 1) -> None:
        """Count messages handed out by so many requests."""
        ...


class PullSources(NamedTuple):
    """What pulls that wait look at.

    Attributes:
        store: to read from.
        arrived: the message that came last.
        topics: topic table.
        offsets: committed ones, and resets.
    """

    store: MessageReader
    arrived: LastArrival
    topics: TopicTable
    offsets: ConsumerOffsets


class SuspendedPull(SuspendedRequest):
    """A pull that waits for a message.

    Attributes:
        wanted: the request, without its expression if that is long; what remains is short, for
            topic and group exist.
        message_filter: what it takes, when the request said that; None takes everything.
    """

    __slots__ = (
        "_looked_to",
        "_sources",
        "message_filter",
        "wanted",
    )

    def __init__(
        self,
        wanted: PullRequest,
        message_filter: ConsumerFilter | None,
        owner: RequestOwner,
        deadline_ms: int,
        reply: "PullReply",
        sources: PullSources,
    ) -> None:
        self.wanted: PullRequest = wanted
        self.message_filter: ConsumerFilter | None = message_filter
        self._sources = sources
        self._looked_to = wanted.queue_offset
        size_bytes = 0 if message_filter is None else message_filter.size_bytes
        keys = keys_of(wanted.topic, wanted.queue_id, message_filter)
        super().__init__(keys, owner, deadline_ms, reply, size_bytes)

    def is_ready(self) -> bool:
        """Whether the queue has grown, whatever the tags, its topic is gone, or a reset waits."""
        wanted, sources = self.wanted, self._sources
        if wanted.topic not in sources.topics.entries or sources.offsets.has_reset(*wanted[:3]):
            return True
        return sources.store.max_offset(wanted.topic, wanted.queue_id) > wanted.queue_offset

    def looks_next(self, now_ms: int) -> int:
        """Without a filter every arrival wakes it."""
        return self.deadline_ms if self.message_filter is None else now_ms + GROWTH_INTERVAL_MS

    def wants(self, next_offset: int, tags_code: int) -> bool:
        """Whether messages that came are ones to wake up for.

        Args:
            next_offset: queue offset after the last of them.
            tags_code: of one of them, and of all that are told of with no other call.

        A condition looks at whatever came since it looked last, so that one call tells of a batch.
        When that is more than it may look at here, or too many others have looked at the message
        while its sender waits, the pull goes on and looks in its own turn.
        """
        wanted, message_filter = self.wanted, self.message_filter
        if wanted.queue_offset >= next_offset:
            return False
        if message_filter is None:
            return True
        if isinstance(message_filter, TagFilter):
            return message_filter.matches_tags_code(tags_code)
        begin, (store, arrived, *_) = self._looked_to, self._sources
        if next_offset <= begin:
            return False
        if next_offset - begin > _MAX_LOOKED_AT or not arrived.has_budget_for(
            message_filter.weight
        ):
            return True
        queue = wanted.topic, wanted.queue_id
        try:
            if begin == next_offset - 1:  # as mostly: it is read once for all who wait for it
                properties = arrived.properties(*queue, begin)
                if properties is not None:
                    self._looked_to = next_offset
                    return message_filter.condition.matches_stored(properties)
            read = store.get_message(*queue, begin, 1, MAX_PULL_BYTES, message_filter)
        except (RocketPyError, OSError):
            return True  # it is told so itself: who stored the message has no part in it
        if read.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            return True
        self._looked_to = read.next_begin_offset
        return self._looked_to < next_offset


PullReply: TypeAlias = Reply[SuspendedPull]


def keys_of(topic: str, queue_id: int, message_filter: ConsumerFilter | None) -> list[Hashable]:
    """What a pull waits for; its queue, under which it is counted, comes first."""
    codes = message_filter.codes if isinstance(message_filter, TagFilter) else ()
    any_tag: Hashable = (topic, queue_id, None)
    if not codes or len(codes) > _MAX_TAG_KEYS:
        return [(topic, queue_id), any_tag]
    return [(topic, queue_id), *((topic, queue_id, code) for code in codes)]


class PullOperation:
    """Carries out pulls.

    Args:
        store: what to read.
        topics: topic table.
        groups: group table.
        filters: what consumers take.
        offsets: committed offsets.
        suspended: where pulls wait.
        stats: counters.
        config: the broker's settings; see `configure`.
        clock: time.

    Attributes:
        checks: say who may pull what.
        offsets: as given.
        now_ms: returns the monotonic time.
        count_plain: counts what pulls handed out that somebody else answered, see `PullCounter`.
    """

    def __init__(  # noqa: PLR0913 - the parts a pull touches
        self,
        store: MessageReader,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        filters: PullFilters,
        offsets: ConsumerOffsets,
        suspended: SuspendedRequests,
        stats: PullCounter,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._store = store
        self.checks: PullChecks = PullChecks(topics, groups, filters, config)
        self._filters = filters
        self.offsets = offsets
        self._suspended = suspended
        self._sources = PullSources(store, LastArrival(store), topics, offsets)
        self._stats = stats
        self.count_plain: Callable[[str, str, int, int, int], None] = stats.inc_get
        self.now_ms: Callable[[], int] = clock.monotonic_ms
        self._config = config

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config
        self.checks.configure(config)
        self._suspended.max_count = config.max_held_pulls
        self._suspended.max_per_key = config.max_held_pulls_per_queue

    def on_arrival(self, topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        """Wake whoever waits for this message; called by the store on the putting thread."""
        suspended = self._suspended
        if not suspended.count:
            return
        self._sources.arrived.forget()
        for key in ((topic, queue_id, None), (topic, queue_id, tags_code)):
            suspended.wake(key, lambda one: one.wants(next_offset, tags_code))

    def topic_deleted(self, topic: TopicConfig) -> None:
        """Let the pulls go on that wait for a topic which is gone: each is told so at once."""
        for queue_id in range(topic.read_queue_nums):
            self._suspended.wake((topic.topic_name, queue_id))

    def offset_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Let the pulls of a group go on for which an offset waits: they deliver it at once."""
        self._suspended.wake((topic, queue_id), lambda one: one.wanted.group == group)

    def pull(
        self, wanted: PullRequest, owner: RequestOwner, reply: PullReply
    ) -> PullOutcome | None:
        """Read a queue.

        Args:
            wanted: what to read.
            owner: who asks; what waits goes with it.
            reply: makes the response when the pull was suspended and is resumed: calls `resume`
                once, or never when the owner is lost.

        Returns:
            The outcome; None when the pull is answered later.
        """
        try:
            group, topic, message_filter = self.checks.check(wanted)
        except PullRefused as refused:
            return refused.outcome
        read = self._read(wanted, message_filter)
        code = _code_of(read, wanted.queue_offset)
        # Who is told to go elsewhere does not say with the same pull how far he has come.
        is_reset = read.status is GetMessageStatus.OFFSET_RESET
        commit_offset = None if is_reset else wanted.commit_offset
        self.offsets.commit_read(*wanted[:3], read.next_begin_offset, commit_offset)
        if code == _NOT_FOUND and wanted.suspend_ms is not None:
            kept = wanted
            if wanted.expression is not None and len(wanted.expression) > KEPT_EXPRESSION_CHARS:
                kept = wanted._replace(expression="")
            if self._suspend(kept, message_filter, wanted.suspend_ms, owner, reply):
                return None
        if code == _SUCCESS:
            self._stats.inc_get(wanted.group, wanted.topic, read.count, read.size_bytes)
        return PullResult(code, read, topic.topic_sys_flag, group.group_sys_flag)

    def wait_plain(
        self,
        wanted: PullRequest,
        message_filter: ConsumerFilter | None,
        commit_offset: int | None,
        suspend_ms: int | None,
        owner: RequestOwner,
        reply: PullReply,
    ) -> bool:
        """Do what follows a read of which somebody else knows that it finds nothing yet.

        Args:
            wanted: what was asked for, with a short expression; its own times and offsets to be
                committed say nothing.
            message_filter: what it takes.
            commit_offset: how far the group has consumed the queue; None commits nothing.
            suspend_ms: how long it may wait; None does not wait.
            owner: as for `pull`.
            reply: as for `pull`.

        Returns:
            Whether it waits: it is answered now otherwise.
        """
        self.offsets.commit_read(*wanted[:4], commit_offset)
        if suspend_ms is None:
            return False
        return self._suspend(wanted, message_filter, suspend_ms, owner, reply)

    def release(self, pull: SuspendedPull) -> None:
        """Forget a pull that somebody else has answered."""
        self._suspended.release(pull)

    def resume(self, pull: SuspendedPull) -> PullOutcome:
        """Read for a pull that was resumed.

        Everything is checked again: the topic may be gone. Nothing is committed, and the pull
        does not wait again.
        """
        wanted = pull.wanted
        try:
            group, topic = self.checks.names(wanted)
            message_filter = (
                self._filters.of_group(wanted, group)
                if wanted.expression is None
                else pull.message_filter
            )
            read = self._read(wanted, message_filter)
        except PullRefused as refused:
            return refused.outcome
        finally:
            self._suspended.release(pull)
        self.offsets.commit_read(*wanted[:3], read.next_begin_offset)
        code = _code_of(read, wanted.queue_offset)
        if code == _SUCCESS:
            self._stats.inc_get(wanted.group, wanted.topic, read.count, read.size_bytes)
        return PullResult(code, read, topic.topic_sys_flag, group.group_sys_flag)

    def forget(self, owner: Hashable) -> None:
        """Forget the pulls of an owner that is lost."""
        self._suspended.release_owner(owner)

    def _read(self, wanted: PullRequest, message_filter: ConsumerFilter | None) -> GetMessageResult:
        topic, queue_id = wanted.topic, wanted.queue_id
        # Taken even where it is not delivered: else it would be what queries are told for ever.
        reset = self.offsets.take_reset(wanted.group, topic, queue_id)
        if reset is not None and self._config.use_server_side_reset_offset:
            return GetMessageResult(
                GetMessageStatus.OFFSET_RESET,
                reset,
                self._store.min_offset(topic, queue_id),
                self._store.max_offset(topic, queue_id),
            )
        return self._store.get_message(
            topic,
            queue_id,
            wanted.queue_offset,
            wanted.max_count,
            wanted.max_bytes,
            message_filter,
            may_join=True,
        )

    def _suspend(
        self,
        wanted: PullRequest,
        message_filter: ConsumerFilter | None,
        suspend_ms: int,
        owner: RequestOwner,
        reply: PullReply,
    ) -> bool:
        config = self._config
        wait_ms = config.short_polling_time_mills
        if config.long_polling_enable:
            wait_ms = max(0, min(suspend_ms, MAX_SUSPEND_MS))
        now_ms = self.now_ms()
        pull = SuspendedPull(
            wanted,
            message_filter,
            owner,
            now_ms + wait_ms,
            reply,
            self._sources,
        )
        return self._suspended.suspend(pull, now_ms)


def _code_of(read: GetMessageResult, queue_offset: int) -> int:
    if read.status is GetMessageStatus.FOUND:  # as mostly; a look-up hashes it in Python
        return _SUCCESS
    # Asking an empty queue for entry 0 is a consumer that came early, not one that is lost.
    if read.status in _EMPTY_QUEUE and queue_offset == 0:
        return _NOT_FOUND
    return CODE_BY_STATUS[read.status]
