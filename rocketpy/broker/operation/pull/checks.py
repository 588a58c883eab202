"""Checks of pulls: names, permissions and filters, in Apache's order.

A consumer repeats the same pull at other offsets. A positive result is therefore cached as long as
nothing it depends on changes: the settings, and the tables of topics and groups, are replaced as a
whole with each change, and the table of connected consumers counts its changes. Refusals are not
cached, nor SQL92 filters, which depend on more.

Source: PullMessageProcessor.processRequest (5.4.0).
"""

import itertools
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.message_filters import ConsumerFilter, SqlFilter
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.filters import PullFilters
from rocketpy.broker.operation.pull.request import PullForbidden, PullRefused, PullRequest
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.wire.codes import ResponseCode

KEPT_EXPRESSION_CHARS: Final = 200
"""Longest expression that is cached, to bound memory."""
MAX_ALLOWED: Final = 4_096
"""Cached results, about a kilobyte each."""
_KEPT_CODES: Final = 32
"""Most tags of a cached filter: each result has its own set of codes."""
_FORBIDDEN_BROKER: Final = 1
_FORBIDDEN_GROUP: Final = 2
_FORBIDDEN_TOPIC: Final = 3
_Key: TypeAlias = tuple[object, ...]


class AllowedPull(NamedTuple):
    """Result of the checks of a permitted pull.

    Attributes:
        group: its group.
        topic: its topic.
        message_filter: its filter; None accepts everything.
    """

    group: SubscriptionGroupConfig
    topic: TopicConfig
    message_filter: ConsumerFilter | None


class ChecksVersion(NamedTuple):
    """Everything that the result of checks depends on, at one time, with cached results.

    Attributes:
        number: unique number of this version.
        config: the broker's settings.
        topics: topic table.
        groups: group table.
        forbidden: topics that groups must not read.
        consumers: `ConsumerTable.version`.
        allowed: cached results, by the fields that a consumer repeats for a queue.
    """

    number: int
    config: BrokerConfig
    topics: Mapping[str, TopicConfig]
    groups: Mapping[str, SubscriptionGroupConfig]
    forbidden: Mapping[str, Mapping[str, int]]
    consumers: int
    allowed: dict[_Key, AllowedPull]


class PullChecks:
    """Checks pulls; safe from any thread.

    Args:
        topics: topic table.
        groups: group table.
        filters: finds filters.
        config: the broker's settings; see `configure`.

    Attributes:
        topics: topic table.
        groups: group table.
        consumers: connected consumers.
        config: the current settings.
        last: last result of `standing`. It is valid while its fields equal these four, so that hot
            paths may compare instead of calling `standing`.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        filters: PullFilters,
        config: BrokerConfig,
    ) -> None:
        self.topics: TopicTable = topics
        self.groups: SubscriptionGroupTable = groups
        self._filters = filters
        self.consumers: ConsumerTable = filters.consumers
        self.config: BrokerConfig = config
        self._numbers = itertools.count(1)
        self.last: ChecksVersion = self._stand()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self.config = config

    def standing(self) -> ChecksVersion:
        """Return the current version; a new one after any change.

        A caller that caches the result of a check must get the version before the check, and cache
        both: a change during the check then invalidates the result.
        """
        found = self.last
        # Compared by identity: the tables are replaced with each change.
        if (
            found.topics is self.topics.entries
            and found.groups is self.groups.entries
            and found.consumers == self.consumers.version
            and found.config is self.config
            and found.forbidden is self.groups.forbidden
        ):
            return found
        found = self.last = self._stand()
        return found

    def _stand(self) -> ChecksVersion:
        topics, groups = self.topics, self.groups
        return ChecksVersion(
            next(self._numbers),
            self.config,
            topics.entries,
            groups.entries,
            groups.forbidden,
            self.consumers.version,
            {},
        )

    def check(self, wanted: PullRequest) -> AllowedPull:
        """Check a pull.

        Raises:
            PullRefused: the pull, or its filter, is not permitted.
        """
        allowed = self.standing().allowed
        # All fields but offsets, sizes and times, which differ between pulls of one queue.
        key = (wanted[0], wanted[1], wanted[2], *wanted[8:])
        found = allowed.get(key)
        if found is None:
            group, topic = self.names(wanted)
            found = AllowedPull(group, topic, self._filters.of(wanted, group))
            if is_kept(wanted, found):
                # Cleared at once: results in use are added again with the next pull.
                if len(allowed) >= MAX_ALLOWED:
                    allowed.clear()
                allowed[key] = found
        return found

    def names(self, wanted: PullRequest) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """Check everything but the filter.

        Raises:
            PullRefused: the pull is not permitted.
        """
        config = self.config
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_name}] pulling message is forbidden"
            raise PullRefused(PullForbidden(_FORBIDDEN_BROKER, remark))
        # Official clients show the code of the first check that fails, so the order is Apache's.
        if wanted.is_lite and not config.lite_pull_message_enable:
            remark = f"the broker[{config.broker_name}] for lite pull consumer is forbidden"
            raise PullRefused(PullForbidden(_FORBIDDEN_BROKER, remark))
        group = self.groups.get_or_create(wanted.group)
        if group is None:
            remark = f"subscription group [{wanted.group}] does not exist"
            raise PullRefused.with_code(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {wanted.group}"
            raise PullRefused(PullForbidden(_FORBIDDEN_GROUP, remark))
        topic = self.topics.get(wanted.topic)
        if topic is None:
            remark = f"topic[{wanted.topic}] not exist, apply first please!"
            raise PullRefused.with_code(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{wanted.topic}] pulling message is forbidden"
            raise PullRefused(PullForbidden(_FORBIDDEN_TOPIC, remark))
        if not 0 <= wanted.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{wanted.queue_id}] is illegal, topic:[{wanted.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
            raise PullRefused.with_code(ResponseCode.INVALID_PARAMETER, remark)
        if topic.is_batch_cq:
            # Refused, because the consumer would wait for ever for messages it cannot read.
            remark = "this broker version does not support topics with queue.type BatchCQ"
            raise PullRefused.with_code(ResponseCode.SYSTEM_ERROR, remark)
        return group, topic


def is_kept(wanted: PullRequest, allowed: AllowedPull) -> bool:
    """Return whether a result may be cached with its version."""
    # SQL92 filters depend on registrations that have no version here.
    message_filter = allowed.message_filter
    if message_filter is not None and (
        isinstance(message_filter, SqlFilter) or len(message_filter.codes) > _KEPT_CODES
    ):
        return False
    return wanted.expression is None or len(wanted.expression) <= KEPT_EXPRESSION_CHARS
