"""The consumer groups of this broker: subscriptionGroup.json and auto-creation.

Source: SubscriptionGroupManager.java, SubscriptionGroupConfig.java (5.4.0).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.document import DataVersion, JsonDocument, as_int, as_table
from rocketpy.runtime.clock import Clock

__all__ = ["MAX_GROUPS", "SYSTEM_GROUPS", "SubscriptionGroupConfig", "SubscriptionGroupTable"]

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
MAX_GROUPS: Final = 100_000
"""From here on no client creates another one; operators still may. Apache knows no bound."""
_MAX_GROUP_CHARS: Final = 255
_GROUP_CHARS: Final = frozenset(
    "%|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)
_READ_FORBIDDEN_INDEX: Final = 0


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """One consumer group as this broker has it.

    Attributes:
        group_name: its name.
        consume_enable: off refuses every pull of the group.
        consume_from_min_enable: kept for tools.
        consume_broadcast_enable: off refuses broadcasting members.
        consume_message_orderly: POP hands out in order.
        retry_queue_nums: queues of %RETRY%group; 0 turns retries off.
        retry_max_times: deliveries before the dead-letter queue.
        broker_id: where to pull from, 0 the master.
        which_broker_when_consume_slowly: suggested when the group lags far behind.
        notify_consumer_ids_changed_enable: tell members about each other.
        group_sys_flag: unit bits.
        consume_timeout_minute: kept for tools.
        group_retry_policy: delays between deliveries, as JSON.
        subscription_data_set: fixed subscriptions as JSON, or None.
        attributes: free for tools.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: object, name: str = "") -> "SubscriptionGroupConfig":
        """Read one entry of the file or of an admin request; missing keys keep the default."""
        table = as_table(value)
        subscriptions = table.get("subscriptionDataSet")
        return cls(
            group_name=str(table.get("groupName") or name),
            consume_enable=table.get("consumeEnable", True) is not False,
            consume_from_min_enable=table.get("consumeFromMinEnable", True) is not False,
            consume_broadcast_enable=table.get("consumeBroadcastEnable", True) is not False,
            consume_message_orderly=table.get("consumeMessageOrderly") is True,
            retry_queue_nums=as_int(table.get("retryQueueNums"), 1),
            retry_max_times=as_int(table.get("retryMaxTimes"), 16),
            broker_id=as_int(table.get("brokerId"), 0),
            which_broker_when_consume_slowly=as_int(table.get("whichBrokerWhenConsumeSlowly"), 1),
            notify_consumer_ids_changed_enable=(
                table.get("notifyConsumerIdsChangedEnable", True) is not False
            ),
            group_sys_flag=as_int(table.get("groupSysFlag"), 0),
            consume_timeout_minute=as_int(table.get("consumeTimeoutMinute"), 15),
            group_retry_policy=as_table(table.get("groupRetryPolicy")) or {"type": "CUSTOMIZED"},
            subscription_data_set=subscriptions if isinstance(subscriptions, list) else None,
            attributes={str(k): str(v) for k, v in as_table(table.get("attributes")).items()},
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in subscriptionGroup.json and on the wire."""
        value: dict[str, Any] = {
            "attributes": dict(self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.group_name,
            "groupRetryPolicy": self.group_retry_policy,
            "groupSysFlag": self.group_sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }
        if self.subscription_data_set is not None:
            value["subscriptionDataSet"] = self.subscription_data_set
        return value


class SubscriptionGroupTable:
    """Every consumer group of this broker; safe from any thread, reads take no lock."""

    def __init__(self, config: BrokerConfig, file: JsonDocument, clock: Clock) -> None:
        self._config = config
        self._file = file
        self._clock = clock
        self._lock = threading.RLock()
        self._is_gathering = False
        self._is_unwritten = False
        self._version = DataVersion(clock.time_ms())
        self._groups = {name: SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings (auto-creation on or off)."""
        self._config = config

    def load(self) -> None:
        """Read subscriptionGroup.json."""
        value = as_table(self._file.load())
        with self._lock:
            for name, entry in as_table(value.get("subscriptionGroupTable")).items():
                self._groups[name] = SubscriptionGroupConfig.from_json(entry, name)
            for group, topics in as_table(value.get("forbiddenTable")).items():
                self._forbidden[group] = {
                    topic: as_int(bits, 0) for topic, bits in as_table(topics).items()
                }
            self._version.load(value.get("dataVersion"))

    def persist(self) -> None:
        """Write subscriptionGroup.json."""
        with self._lock:
            self._save()

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Keep others from changing the table, and write its file once for all changes inside."""
        with self._lock:
            self._is_gathering = True
            try:
                yield
            finally:
                self._is_gathering = False
                if self._is_unwritten:
                    self._save()

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group, or None."""
        return self._groups.get(group)

    def get_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """A group, created when that is allowed and the name is a good one; else None."""
        found = self._groups.get(group)
        if found is not None:
            return found
        if not self._config.auto_create_subscription_group and not group.startswith("CID_RMQ_SYS_"):
            return None
        if len(self._groups) >= MAX_GROUPS:
            return None
        if not group or len(group) > _MAX_GROUP_CHARS or not _GROUP_CHARS.issuperset(group):
            return None
        with self._lock:
            found = self._groups.get(group)
            if found is None:
                found = SubscriptionGroupConfig(group)
                self._put(found)
        return found

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """A copy of the whole table."""
        return dict(self._groups)

    @property
    def data_version(self) -> dict[str, int]:
        """The table's DataVersion as JSON."""
        return self._version.to_json()

    def to_json(self) -> dict[str, Any]:
        """The content of subscriptionGroup.json, which is also the body of request 201."""
        return {
            "dataVersion": self._version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self._forbidden.items()},
            "subscriptionGroupTable": {name: one.to_json() for name, one in self.all().items()},
        }

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group and write the file."""
        with self._lock:
            self._put(group)

    def delete(self, group: str) -> SubscriptionGroupConfig | None:
        """Forget a group; the one that was there, or None."""
        with self._lock:
            old = self._groups.pop(group, None)
            self._forbidden.pop(group, None)
            if old is not None:
                self._version.bump(self._clock)
                self._save()
        return old

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether the group may not read the topic."""
        if not self._forbidden:
            return False
        bits = self._forbidden.get(group, {}).get(topic, 0)
        return bool(bits >> _READ_FORBIDDEN_INDEX & 1)

    def set_forbidden(self, group: str, topic: str, forbidden: bool) -> None:
        """Forbid or allow a group to read a topic, and write the file."""
        with self._lock:
            topics = self._forbidden.setdefault(group, {})
            if forbidden:
                topics[topic] = topics.get(topic, 0) | 1 << _READ_FORBIDDEN_INDEX
            else:
                topics[topic] = topics.get(topic, 0) & ~(1 << _READ_FORBIDDEN_INDEX)
                if not topics[topic]:
                    del topics[topic]
            if not topics:
                self._forbidden.pop(group, None)
            self._version.bump(self._clock)
            self._save()

    def _put(self, group: SubscriptionGroupConfig) -> None:
        self._groups[group.group_name] = replace(group)
        self._version.bump(self._clock)
        self._save()

    def _save(self) -> None:
        self._is_unwritten = self._is_gathering
        if not self._is_gathering:
            self._file.save(self.to_json())
