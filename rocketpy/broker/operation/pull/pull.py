"""Pulls: read a queue, or suspend the request until there is a message.

A pull that finds no message is suspended until a matching message arrives or its time ends. It is
kept as a `SuspendedPull` with only the fields that it needs to continue. Its keys are its queue,
and its queue with each of its tags, so that an arrival checks no pull with other tags.

One read visits a bounded number of queue entries. If a filter accepts none of them, the response
contains the offset to continue at, as in Apache. Checks run in Apache's order.

Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java (5.4.0).
"""

import struct
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from rocketpy.broker.config import MASTER_ID, BrokerConfig
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
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.record import PHY_OFFSET_AT, properties_of
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import JoiningReader, QueueReader
from rocketpy.store.results import GetMessageResult, GetMessageStatus

_MOST_WEIGHT: Final = 1_000
"""Bound on the conditions evaluated while one message is stored: some 20 ms for its sender."""


class LastArrival:
    """Properties of the last arrival, read once for all conditions; safe from any thread.

    Args:
        store: source of the message.
    """

    __slots__ = ("_found", "_store", "_weight_left")

    def __init__(self, store: QueueReader) -> None:
        self._store = store
        self._found: tuple[str, int, int, bytes | None] | None = None
        self._weight_left = _MOST_WEIGHT

    def forget(self) -> None:
        """Drop the properties: another message arrived."""
        self._found = None
        self._weight_left = _MOST_WEIGHT

    def has_budget_for(self, weight: int) -> bool:
        """Reserve the cost of one more condition; False when the sender has waited long enough.

        Args:
            weight: cost of the condition, see `rocketpy.sql92.condition.Condition`.
        """
        if weight > self._weight_left:
            return False
        self._weight_left -= weight
        return True

    def properties(self, topic: str, queue_id: int, queue_offset: int) -> bytes | None:
        """Return the stored properties of a message; None when it cannot be read alone.

        Args:
            topic: topic of the queue.
            queue_id: queue within the topic.
            queue_offset: offset of the message.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no file descriptor is free.
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
"""How often a suspended pull with a filter is resumed while its queue grows.

A consumer with a narrow filter thereby advances, and retention does not overtake it.
"""
MAX_PULL_BYTES: Final = 8 * 1024 * 1024
MAX_PULL_COUNT: Final = 1_024
"""Limit that official clients accept. A read may visit as many entries, so this also bounds what a
filter that accepts nothing costs the loop."""

_MAX_LOOKED_AT: Final = 128
"""Messages that a suspended pull's condition may check for one arrival."""
_MAX_TAG_KEYS: Final = 32
"""Tags with a key each; with more, the filter is checked for each arrival."""

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
_OUTSIDE: Final = _EMPTY_QUEUE | {
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_TOO_SMALL,
}
_PHY_OFFSET: Final = struct.Struct(">q")
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_SUCCESS: Final = int(ResponseCode.SUCCESS)


class PullStore(JoiningReader, Protocol):
    """Store of pulls: messages, and the end of the log."""

    @property
    def max_phy_offset(self) -> int:
        """End of the log."""
        ...


class PullCounter(Protocol):
    """Interface of the statistics."""

    def inc_get(self, group: str, topic: str, count: int, size_bytes: int, times: int = 1) -> None:
        """Count messages that a number of requests delivered."""
        ...


def _no_slave_has(_broker_id: int, _phy_offset: int) -> bool:
    return False


class SlaveReads(NamedTuple):
    """Settings of a broker group with slaves that a pull depends on.

    Attributes:
        is_slave: whether this broker is a slave.
        recent_bytes: size of the newest part of the log that is assumed to be in memory; a
            consumer that reads before it is sent to a slave.
        slave_has: returns whether the slave of a broker id is connected, is in sync, and has
            received the message at a physical offset.
    """

    is_slave: bool = False
    recent_bytes: int = 0
    slave_has: Callable[[int, int], bool] = _no_slave_has


_MASTER_ONLY: Final = SlaveReads()


class PullSources(NamedTuple):
    """Parts of the broker that suspended pulls read.

    Attributes:
        store: the message store.
        arrived: properties of the last arrival.
        topics: topic table.
        offsets: committed offsets and resets.
    """

    store: JoiningReader
    arrived: LastArrival
    topics: TopicTable
    offsets: ConsumerOffsets


class SuspendedPull(SuspendedRequest):
    """A suspended pull.

    Attributes:
        wanted: the request, without a long expression. Its other texts are short, because topic and
            group exist.
        message_filter: its filter, if the request contained one; None accepts everything.
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
        """Return whether the queue has grown, its topic was deleted, or a reset is pending."""
        wanted, sources = self.wanted, self._sources
        if wanted.topic not in sources.topics.entries or sources.offsets.has_reset(*wanted[:3]):
            return True
        return sources.store.max_offset(wanted.topic, wanted.queue_id) > wanted.queue_offset

    def next_check_ms(self, now_ms: int) -> int:
        """Return when to check again; without a filter every arrival resumes it."""
        return self.deadline_ms if self.message_filter is None else now_ms + GROWTH_INTERVAL_MS

    def wants(self, next_offset: int, tags_code: int) -> bool:
        """Return whether arrived messages resume this pull.

        One call may stand for a batch, so a condition checks all messages since its last check. If
        these are too many, or too many conditions were evaluated while the sender waits, the pull
        is resumed and reads in its own turn.

        Args:
            next_offset: queue offset after the last of them.
            tags_code: tags code of one of them, and of all without a call of their own.
        """
        wanted, message_filter = self.wanted, self.message_filter
        # The pull is at an offset in the future, for example after a truncation.
        if wanted.queue_offset >= next_offset:
            return False
        if message_filter is None:
            return True
        if isinstance(message_filter, TagFilter):
            return message_filter.matches_tags_code(tags_code)
        begin, (store, arrived, *_) = self._looked_to, self._sources
        if next_offset <= begin:
            return False
        # Bounded, because the sender of the message waits meanwhile.
        if next_offset - begin > _MAX_LOOKED_AT or not arrived.has_budget_for(
            message_filter.weight
        ):
            return True
        queue = wanted.topic, wanted.queue_id
        try:
            if begin == next_offset - 1:  # the common case: read once for all suspended pulls
                properties = arrived.properties(*queue, begin)
                if properties is not None:
                    self._looked_to = next_offset
                    return message_filter.condition.matches_stored(properties)
            read = store.get_message(*queue, begin, 1, MAX_PULL_BYTES, message_filter)
        except (RocketPyError, OSError):
            return True  # the pull itself reports the failure; the sender is not involved
        if read.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            return True
        self._looked_to = read.next_begin_offset
        return self._looked_to < next_offset


PullReply: TypeAlias = Reply[SuspendedPull]


def keys_of(topic: str, queue_id: int, message_filter: ConsumerFilter | None) -> list[Hashable]:
    """Return the keys of a pull; its queue, at which pulls are counted, comes first."""
    codes = message_filter.codes if isinstance(message_filter, TagFilter) else ()
    any_tag: Hashable = (topic, queue_id, None)
    if not codes or len(codes) > _MAX_TAG_KEYS:
        return [(topic, queue_id), any_tag]
    return [(topic, queue_id), *((topic, queue_id, code) for code in codes)]


class PullOperation:
    """Carries out pulls.

    Args:
        store: the message store.
        topics: topic table.
        groups: group table.
        filters: finds filters.
        offsets: committed offsets.
        suspended: the table of suspended pulls.
        stats: counters.
        config: the broker's settings; see `configure`.
        clock: time.
        slave_reads: role of the broker.

    Attributes:
        checks: permissions and filters.
        offsets: committed offsets.
        now_ms: returns the monotonic time.
        count_plain: counts messages delivered by the fast path, see `PullCounter`.
    """

    def __init__(  # noqa: PLR0913 - the parts a pull touches
        self,
        store: PullStore,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        filters: PullFilters,
        offsets: ConsumerOffsets,
        suspended: SuspendedRequests,
        stats: PullCounter,
        config: BrokerConfig,
        clock: Clock,
        slave_reads: SlaveReads = _MASTER_ONLY,
    ) -> None:
        self._store = store
        self._slave_reads = slave_reads
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
        """Apply changed settings."""
        self._config = config
        self.checks.configure(config)
        self._suspended.max_count = config.max_held_pulls
        self._suspended.max_per_key = config.max_held_pulls_per_queue

    def on_arrival(self, topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        """Resume pulls for an arriving message; called by the store on the putting thread."""
        # The sender waits for this call, so a broker without suspended pulls must leave at once.
        suspended = self._suspended
        if not suspended.count:
            return
        self._sources.arrived.forget()
        # Pulls without a filter or with many tags first, then those of exactly this tag.
        for key in ((topic, queue_id, None), (topic, queue_id, tags_code)):
            suspended.wake(key, lambda one: one.wants(next_offset, tags_code))

    def topic_deleted(self, topic: TopicConfig) -> None:
        """Resume the pulls of a deleted topic, so that they are refused at once."""
        for queue_id in range(topic.read_queue_nums):
            self._suspended.wake((topic.topic_name, queue_id))

    def offset_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Resume the pulls of a group after a reset, so that they deliver it at once."""
        self._suspended.wake((topic, queue_id), lambda one: one.wanted.group == group)

    def pull(
        self, wanted: PullRequest, owner: RequestOwner, reply: PullReply
    ) -> PullOutcome | None:
        """Read a queue.

        Args:
            wanted: the pull.
            owner: the connection of the request; a suspended pull is dropped with it.
            reply: makes the response when a suspended pull is resumed: calls `resume` once, or
                never when the owner is lost.

        Returns:
            The outcome, or None when the pull is suspended and answered later.
        """
        try:
            group, topic, message_filter = self.checks.check(wanted)
        except PullRefused as refused:
            return refused.outcome
        read = self._read(wanted, message_filter)
        code = _code_of(read, wanted.queue_offset)
        # A pull that is answered with OFFSET_MOVED by a reset must not commit its old offset.
        is_reset = read.status is GetMessageStatus.OFFSET_RESET
        commit_offset = None if is_reset else wanted.commit_offset
        self.offsets.commit_read(*wanted[:3], read.next_begin_offset, commit_offset)
        if code == _NOT_FOUND and wanted.suspend_ms is not None:
            # A long expression is dropped, since the compiled filter is kept beside it; this bounds
            # the memory of suspended pulls.
            kept = wanted
            if wanted.expression is not None and len(wanted.expression) > KEPT_EXPRESSION_CHARS:
                kept = wanted._replace(expression="")
            if self._suspend(kept, message_filter, wanted.suspend_ms, owner, reply):
                return None
        return self._result(wanted, code, read, topic, group)

    def _result(
        self,
        wanted: PullRequest,
        code: int,
        read: GetMessageResult,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> PullResult:
        suggested = MASTER_ID
        if code == _SUCCESS:
            self._stats.inc_get(wanted.group, wanted.topic, read.count, read.size_bytes)
            if self._config.slave_read_enable:
                (phy_offset,) = _PHY_OFFSET.unpack_from(read.buffers[-1], PHY_OFFSET_AT)
                suggested = self.suggested_broker_id(group, phy_offset)
        return PullResult(code, read, topic.topic_sys_flag, group.group_sys_flag, suggested)

    def suggested_broker_id(self, group: SubscriptionGroupConfig, phy_offset: int) -> int:
        """Return the broker that a group should pull from next; a slave suggests the master.

        A slave that is away or behind is not suggested: consumers would wait for it.

        Args:
            group: the group.
            phy_offset: physical offset of a message that was just read.
        """
        if not self._config.slave_read_enable or self._slave_reads.is_slave:
            return MASTER_ID
        suggested = group.broker_id
        if self._store.max_phy_offset - phy_offset > self._slave_reads.recent_bytes:
            suggested = group.which_broker_when_consume_slowly
        if suggested != MASTER_ID and not self._slave_reads.slave_has(suggested, phy_offset):
            return MASTER_ID
        return suggested

    def wait_plain(
        self,
        wanted: PullRequest,
        message_filter: ConsumerFilter | None,
        commit_offset: int | None,
        suspend_ms: int | None,
        owner: RequestOwner,
        reply: PullReply,
    ) -> bool:
        """Commit and suspend a pull that the fast path found without a message.

        Args:
            wanted: the pull, with a short expression; its times and commit offset are ignored.
            message_filter: its filter.
            commit_offset: offset to commit; None commits nothing.
            suspend_ms: how long it may be suspended; None: not at all.
            owner: as for `pull`.
            reply: as for `pull`.

        Returns:
            Whether it is suspended; otherwise it must be answered now.
        """
        self.offsets.commit_read(*wanted[:4], commit_offset)
        if suspend_ms is None:
            return False
        return self._suspend(wanted, message_filter, suspend_ms, owner, reply)

    def release(self, pull: SuspendedPull) -> None:
        """Remove a suspended pull that the fast path has answered."""
        self._suspended.release(pull)

    def resume(self, pull: SuspendedPull) -> PullOutcome:
        """Read for a resumed pull.

        All checks run again, as the topic may be deleted. Nothing is committed, and the pull is not
        suspended again.
        """
        wanted = pull.wanted
        try:
            # Without the cached result: permissions may have changed while the pull was suspended.
            group, topic = self.checks.names(wanted)
            message_filter = (
                self._filters.of_group(wanted, group)
                if wanted.expression is None
                else pull.message_filter
            )
            read = self._read(wanted, message_filter)
        except PullRefused as refused:
            return refused.outcome
        # Released also when it is refused; otherwise it would count against the limits permanently.
        finally:
            self._suspended.release(pull)
        self.offsets.commit_read(*wanted[:3], read.next_begin_offset)
        code = _code_of(read, wanted.queue_offset)
        return self._result(wanted, code, read, topic, group)

    def forget(self, owner: Hashable) -> None:
        """Drop the suspended pulls of a lost owner."""
        self._suspended.release_owner(owner)

    def _read(self, wanted: PullRequest, message_filter: ConsumerFilter | None) -> GetMessageResult:
        topic, queue_id = wanted.topic, wanted.queue_id
        # Taken even if it is not delivered: otherwise each query would return it again.
        reset = self.offsets.take_reset(wanted.group, topic, queue_id)
        if reset is not None and self._config.use_server_side_reset_offset:
            return GetMessageResult(
                GetMessageStatus.OFFSET_RESET,
                reset,
                self._store.min_offset(topic, queue_id),
                self._store.max_offset(topic, queue_id),
            )
        read = self._store.get_message(
            topic,
            queue_id,
            wanted.queue_offset,
            wanted.max_count,
            wanted.max_bytes,
            message_filter,
            may_join=True,
        )
        if (
            self._slave_reads.is_slave
            and read.status in _OUTSIDE
            and not self._config.offset_check_in_slave
        ):
            # The master has this message, or had it when the consumer read there: the pull waits
            # for the log, instead of starting elsewhere, or again at once as with Apache.
            status = GetMessageStatus.OFFSET_OVERFLOW_ONE
            return replace(read, status=status, next_begin_offset=wanted.queue_offset)
        return read

    def _suspend(
        self,
        wanted: PullRequest,
        message_filter: ConsumerFilter | None,
        suspend_ms: int,
        owner: RequestOwner,
        reply: PullReply,
    ) -> bool:
        config = self._config
        # Without long polling a pull waits once, briefly, as in Apache.
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
    if read.status is GetMessageStatus.FOUND:  # the common case, without hashing the status
        return _SUCCESS
    # Offset 0 of an empty queue is a consumer that started early, not one with a wrong offset.
    if read.status in _EMPTY_QUEUE and queue_offset == 0:
        return _NOT_FOUND
    return CODE_BY_STATUS[read.status]
