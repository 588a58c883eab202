"""Consumer groups of this broker: subscriptionGroup.json and auto-creation.

Source: SubscriptionGroupManager.java, SubscriptionGroupConfig.java (5.4.0).
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import JsonDocument, as_int, as_table
from rocketpy.broker.metadata.persistent_table import PersistentTable
from rocketpy.errors import StoreError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

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
_MAX_GROUP_CHARS: Final = 255
_GROUP_CHARS: Final = frozenset(
    "%|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)
_READ_FORBIDDEN_INDEX: Final = 0


class SubscriptionGroupTable(PersistentTable[SubscriptionGroupConfig]):
    """Consumer groups of this broker; safe from any thread, reads take no lock.

    Attributes:
        forbidden: topics that a group must not read, by group, as bits; each change replaces the
            whole mapping.
    """

    entries: Mapping[str, SubscriptionGroupConfig]
    written: Mapping[str, SubscriptionGroupConfig]
    _table_key: ClassVar[str] = "subscriptionGroupTable"

    def __init__(self, config: BrokerConfig, file: JsonDocument, clock: Clock) -> None:
        self._config = config
        system = {name: SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS}
        super().__init__(file, clock, system)
        self._is_full_logged = False
        self._is_unwritten_logged = False
        self._by_clients: set[str] = set()
        self.forbidden: dict[str, dict[str, int]] = {}
        self._written_forbidden: dict[str, dict[str, int]] = self.forbidden
        self._being_forbidden: dict[str, dict[str, int]] = self.forbidden

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings (auto-creation)."""
        self._config = config

    def load(self) -> None:
        """Read subscriptionGroup.json."""
        value = as_table(self._file.load())
        with self._lock:
            loaded = {
                name: replace(SubscriptionGroupConfig.from_json(entry), group_name=name)
                for name, entry in as_table(value.get("subscriptionGroupTable")).items()
            }
            self.written = self.entries = {**self.entries, **loaded}
            for group, topics in as_table(value.get("forbiddenTable")).items():
                self.forbidden[group] = {
                    topic: as_int(bits, 0) for topic, bits in as_table(topics).items()
                }
            self._version.load(value.get("dataVersion"))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group, or None."""
        return self.entries.get(group)

    def exists(self, group: str) -> bool:
        """Return whether a group exists."""
        return group in self.entries

    def get_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group; it is created if the settings allow it and its name is valid, else None.

        The group exists at once and is written soon. Consumers are served even while the file
        cannot be written: the group has default settings, the next change of the table writes it,
        and after a kill it is created again.
        """
        found = self.entries.get(group)
        if found is not None:
            return found
        if not self._config.auto_create_subscription_group and not group.startswith("CID_RMQ_SYS_"):
            return None
        if self._is_full():
            return None
        if not group or len(group) > _MAX_GROUP_CHARS or not _GROUP_CHARS.issuperset(group):
            return None
        with contextlib.suppress(StoreError), self.write_soon():
            found = self._current().get(group)
            if found is None:
                found = SubscriptionGroupConfig(group)
                self._by_clients.add(group)
                with self._changing(group) as groups:
                    groups[group] = found
        return found

    def _is_full(self) -> bool:
        """Return whether clients may create no more groups; operators still may."""
        limit = self._config.max_groups_for_auto_create
        if len(self.entries) < limit:
            self._is_full_logged = False
            return False
        if not self._is_full_logged:
            self._is_full_logged = True
            _log.warning("group creation stopped: limit reached", maxGroupsForAutoCreate=limit)
        return True

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Return a copy of the table."""
        return dict(self.entries)

    def to_json(self) -> dict[str, Any]:
        """Return the content of subscriptionGroup.json, which is also the body of request 201."""
        return {
            "dataVersion": self._version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self.forbidden.items()},
            "subscriptionGroupTable": {name: one.to_json() for name, one in self.all().items()},
        }

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group, and write the file.

        Raises:
            StoreError: the file cannot be written; the table is unchanged.
        """
        with self.one_write(), self._changing(group.group_name) as groups:
            groups[group.group_name] = replace(group)

    def delete(self, group: str) -> SubscriptionGroupConfig | None:
        """Delete a group; returns the deleted one, or None.

        Raises:
            StoreError: the file cannot be written; the group still exists.
        """
        with self.one_write():
            old = self._delete_entry(group)
            if old is None:
                return None
            if group in self.forbidden:
                self.forbidden = {
                    name: bits for name, bits in self.forbidden.items() if name != group
                }
            self._by_clients.discard(group)
        return old

    def follow(
        self,
        wanted: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
    ) -> None:
        """Take the groups of the master, at a slave; what does not differ is not written.

        Args:
            wanted: all groups of the master. System groups that it lacks stay.
            forbidden: topics that groups must not read, as bits.
        """
        with self.write_soon():
            now = self._current()
            changed = {name: each for name, each in wanted.items() if now.get(name) != each}
            gone = [name for name in now if name not in wanted and name not in SYSTEM_GROUPS]
            rights = {group: dict(topics) for group, topics in forbidden.items()}
            if changed or gone or rights != self.forbidden:
                with self._changing(*changed, *gone) as groups:
                    for name, group in changed.items():
                        groups[name] = replace(group, group_name=name)
                    for name in gone:
                        del groups[name]
                    self._by_clients.difference_update(gone)
                    if rights != self.forbidden:
                        self.forbidden = rights

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Return whether a group must not read a topic."""
        if not self.forbidden:
            return False
        bits = self.forbidden.get(group, {}).get(topic, 0)
        return bool(bits >> _READ_FORBIDDEN_INDEX & 1)

    def set_forbidden(self, group: str, topic: str, forbidden: bool) -> None:
        """Forbid or allow a group to read a topic, and write the file.

        Raises:
            StoreError: the file cannot be written; the table is unchanged.
        """
        bit = 1 << _READ_FORBIDDEN_INDEX
        with self.one_write(), self._changing():
            table = {name: dict(topics) for name, topics in self.forbidden.items()}
            topics = table.setdefault(group, {})
            bits = topics.get(topic, 0)
            topics[topic] = bits | bit if forbidden else bits & ~bit
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del table[group]
            self.forbidden = table

    def _beside(self) -> dict[str, Any]:
        self._being_forbidden = self.forbidden
        return {"forbiddenTable": self.forbidden}

    def _wrote(self) -> None:
        self._written_forbidden = self._being_forbidden
        self._by_clients.difference_update([one for one in self._by_clients if one in self.written])
        self._is_unwritten_logged = False

    def _undone(self, failure: Exception) -> Mapping[str, SubscriptionGroupConfig]:
        if self.forbidden is not self._written_forbidden:
            # A new mapping, so that threads which saw the undone one notice another change.
            self.forbidden = self._written_forbidden = dict(self._written_forbidden)
        kept = {
            name: SubscriptionGroupConfig(name)
            for name in self._by_clients
            if name in self.entries and name not in self.written
        }
        if kept and not self._is_unwritten_logged:
            self._is_unwritten_logged = True
            _log.warning(
                "client groups not written",
                group=next(iter(kept)),
                reason=str(failure),
            )
        return kept
