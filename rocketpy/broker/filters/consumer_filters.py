"""SQL92 filters by topic and group: set by heartbeats, stored in consumerFilter.json.

The filter of a group for a topic is that of its newest heartbeat. When the last member of the group
is lost, or the group no longer subscribes to the topic, the filter is dead; it is removed a day
later. Peers choose the names of topics and groups, so there is a bound: dead filters are removed
first, and when all are alive no more are accepted (a pull without its filter is answered with
FILTER_DATA_NOT_EXIST).

The file is compatible with Apache's. The Bloom filter bits in it have no function here:
docs/decisions/0007.

Source: ConsumerFilterManager.java, ConsumerFilterData.java (5.4.0).
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.message_filters import SqlFilter
from rocketpy.broker.metadata.json_document import JsonDocument, as_int, as_table
from rocketpy.errors import ExpressionError
from rocketpy.proto.subscription import EXPRESSION_SQL92, SubscriptionData
from rocketpy.runtime.clock import Clock
from rocketpy.sql92.bloom import BloomFilter, BloomFilterData
from rocketpy.sql92.condition import Condition


@dataclass(slots=True)
class Registration:
    """SQL92 filter of one group for one topic.

    Attributes:
        topic: the topic.
        group: the group.
        condition: the condition.
        bloom: bits of the group in a Bloom filter of all groups of the topic.
        client_version: version that the client gave the subscription; the greatest one wins.
        born_ms: wall time of the subscription.
        dead_ms: wall time when the group lost its last member or the topic; 0 while it is alive.
        filter: filter of its pulls.
    """

    topic: str
    group: str
    condition: Condition
    bloom: BloomFilterData
    client_version: int
    born_ms: int
    dead_ms: int = 0
    filter: SqlFilter = field(init=False)

    def __post_init__(self) -> None:
        self.filter = SqlFilter(self.condition)

    @property
    def is_dead(self) -> bool:
        """Whether no connected group uses it."""
        return self.dead_ms >= self.born_ms

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self.filter.size_bytes + len(self.topic) + len(self.group)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the file."""
        return {
            "bloomFilterData": {
                "bitNum": self.bloom.bit_count,
                "bitPos": list(self.bloom.positions),
            },
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.condition.expression,
            "expressionType": "SQL92",
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: object, now_ms: int) -> Self | None:
        """Read an entry of the file.

        A filter that was alive when the file was written counts as dead for half a minute, so that
        it is removed unless its group connects again.

        Args:
            value: the entry.
            now_ms: wall time.

        Returns:
            None when it is not a valid SQL92 filter.
        """
        table = as_table(value)
        bloom = as_table(table.get("bloomFilterData"))
        positions = bloom.get("bitPos")
        texts = [table.get(name) for name in ("topic", "consumerGroup", "expression")]
        if not isinstance(positions, list) or table.get("expressionType") != "SQL92":
            return None
        if not all(isinstance(text, str) and text for text in texts):
            return None
        topic, group, expression = map(str, texts)
        try:
            condition = Condition(expression)
        except ExpressionError:
            return None
        born_ms = as_int(table.get("bornTime"), 0)
        dead_ms = as_int(table.get("deadTime"), 0)
        return cls(
            topic,
            group,
            condition,
            BloomFilterData(
                as_int(bloom.get("bitNum"), 0), tuple(as_int(one, 0) for one in positions)
            ),
            as_int(table.get("clientVersion"), 0),
            born_ms,
            dead_ms or max(born_ms, now_ms - _DEAD_SINCE_MS),
        )


_DEAD_SINCE_MS = 30_000


MAX_FILTERS: Final = 20_000
MAX_FILTER_BYTES: Final = 64 * 1024 * 1024
"""Bounds of the table; peers choose topics, groups and expressions."""
PERSIST_INTERVAL_MS: Final = 10_000

_log = structlog.get_logger(__name__)


class ConsumerFilters:
    """Filters of all groups, and the background service that writes them; safe from any thread.

    Args:
        config: the broker's settings.
        file: consumerFilter.json.
        clock: wall time.
        max_filters: maximal number of filters.
        max_bytes: maximal estimated memory of all filters.
    """

    name = "ConsumerFilters"

    def __init__(
        self,
        config: BrokerConfig,
        file: JsonDocument,
        clock: Clock,
        *,
        max_filters: int = MAX_FILTERS,
        max_bytes: int = MAX_FILTER_BYTES,
    ) -> None:
        self._bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._keep_dead_ms = config.filter_data_clean_time_span
        self._file = file
        self._clock = clock
        self._max_filters = max_filters
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, Registration]] = {}
        self._count = 0
        self._size_bytes = 0
        self._dirty = False

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all filters."""
        return self._size_bytes

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._keep_dead_ms = config.filter_data_clean_time_span

    def get(self, topic: str, group: str) -> Registration | None:
        """Return the filter of a group for a topic, or None."""
        topics = self._groups.get(group)
        return None if topics is None else topics.get(topic)

    # ---- heartbeats

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Set the filters of a group; filters of topics that are not included become dead."""
        wanted = {
            one.topic: one for one in subscriptions if one.expression_type == EXPRESSION_SQL92
        }
        if not wanted and group not in self._groups:
            return
        with self._lock:
            for subscription in wanted.values():
                self._register(group, subscription)
            for topic, known in self._groups.get(group, {}).items():
                if topic not in wanted and not known.is_dead:
                    self._bury(known)

    def unregister(self, group: str) -> None:
        """Mark the filters of a group that lost its last member as dead."""
        if group not in self._groups:
            return
        with self._lock:
            for known in self._groups.get(group, {}).values():
                if not known.is_dead:
                    self._bury(known)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, expression = subscription.topic, subscription.sub_string
        version = subscription.sub_version
        known = self.get(topic, group)
        if known is not None and version < known.client_version:
            return
        if known is not None and expression == known.condition.expression:
            if version > known.client_version or known.is_dead:
                known.client_version = version
                known.dead_ms = 0
                self._dirty = True
            return
        if known is not None and version == known.client_version:
            return
        try:
            condition = Condition(expression)
        except ExpressionError as error:
            _log.warning("filter invalid", group=group, topic=topic, error=str(error))
            # Without a filter, pulls are refused with a reason; an old filter would hide it.
            self._remove(topic, group)
            return
        if condition.ignored_from is not None:
            _log.warning(
                "filter truncated: text after its end ignored, as in Apache",
                group=group,
                topic=topic,
                ignored=expression[condition.ignored_from :][:100],
            )
        self._put(
            Registration(
                topic,
                group,
                condition,
                self._bloom.data_of(group, topic),
                version,
                self._clock.time_ms(),
            )
        )

    def _bury(self, known: Registration) -> None:
        known.dead_ms = max(known.born_ms, self._clock.time_ms())
        self._dirty = True

    # ---- the table

    def _put(self, new: Registration) -> None:
        self._remove(new.topic, new.group)
        if self._is_full(new):
            self._forget_dead(older_than_ms=self._clock.time_ms() + 1)
            if self._is_full(new):
                _log.warning("filter rejected: table full", group=new.group, topic=new.topic)
                return
        self._groups.setdefault(new.group, {})[new.topic] = new
        self._count += 1
        self._size_bytes += new.size_bytes
        self._dirty = True

    def _is_full(self, new: Registration) -> bool:
        too_large = self._size_bytes + new.size_bytes > self._max_bytes
        return self._count >= self._max_filters or too_large

    def _remove(self, topic: str, group: str) -> None:
        topics = self._groups.get(group, {})
        known = topics.pop(topic, None)
        if known is None:
            return
        self._count -= 1
        self._size_bytes -= known.size_bytes
        self._dirty = True
        if not topics:
            del self._groups[group]

    def _forget_dead(self, older_than_ms: int) -> None:
        for known in list(self._all()):
            if known.is_dead and known.dead_ms < older_than_ms:
                self._remove(known.topic, known.group)

    def _all(self) -> Iterator[Registration]:
        for topics in self._groups.values():
            yield from topics.values()

    # ---- the file

    def load(self) -> None:
        """Read consumerFilter.json; it is ignored if the Bloom filter differs, as in Apache."""
        now_ms = self._clock.time_ms()
        topics = as_table(as_table(self._file.load()).get("filterDataByTopic"))
        found = [
            registration
            for topic in topics.values()
            for entry in as_table(as_table(topic).get("groupFilterData")).values()
            if (registration := Registration.from_json(entry, now_ms)) is not None
        ]
        shape = self._bloom
        for one in found:
            fits = len(one.bloom.positions) == shape.hash_count
            if one.bloom.bit_count != shape.bit_count or not fits:
                _log.info("consumerFilter.json ignored: Bloom filter differs")
                return
        with self._lock:
            for one in found:
                self._put(one)
            self._dirty = False

    def step(self, now_ms: int) -> int:
        """Remove filters that are dead for too long, and write the file if anything changed."""
        with self._lock:
            self._forget_dead(self._clock.time_ms() - self._keep_dead_ms + 1)
        if self._dirty:
            self.persist()
        return now_ms + PERSIST_INTERVAL_MS

    def persist(self) -> None:
        """Write consumerFilter.json.

        Raises:
            StoreError: it cannot be written; the old file is unchanged.
        """
        with self._lock:
            content = self.to_json()
            self._dirty = False
        try:
            self._file.save(content)
        except BaseException:
            self._dirty = True
            raise

    def to_json(self) -> dict[str, Any]:
        """Return the content of consumerFilter.json."""
        topics: dict[str, dict[str, Any]] = {}
        for one in self._all():
            topic = topics.setdefault(one.topic, {"groupFilterData": {}, "topic": one.topic})
            topic["groupFilterData"][one.group] = one.to_json()
        return {"filterDataByTopic": topics}
