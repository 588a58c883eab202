"""The group table: auto-creation, bounds, and subscriptionGroup.json."""

from typing import Any

import pytest
import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.subscription_groups import SYSTEM_GROUPS, SubscriptionGroupTable
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from tests.unit.broker.fakes import FakeClock, MemoryFile


def table(**config: Any) -> tuple[SubscriptionGroupTable, MemoryFile]:
    file = MemoryFile()
    groups = SubscriptionGroupTable(BrokerConfig(broker_name="b", **config), file, FakeClock())
    groups.load()
    return groups, file


def test_groups_system_groups_exist_from_start() -> None:
    groups, _ = table()
    assert set(groups.all()) == set(SYSTEM_GROUPS)


def test_groups_auto_created_group_has_apache_defaults() -> None:
    groups, file = table()
    created = groups.get_or_create("g")
    assert created == SubscriptionGroupConfig("g")
    assert file.value["subscriptionGroupTable"]["g"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "g",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "../x", "x" * 256, "ü"])
def test_groups_invalid_name_is_not_created(name: str) -> None:
    groups, file = table()
    assert groups.get_or_create(name) is None
    assert file.saves == 0


def test_groups_auto_creation_off_still_creates_system_groups() -> None:
    groups, _ = table(auto_create_subscription_group=False)
    assert groups.get_or_create("g") is None
    assert groups.get_or_create("CID_RMQ_SYS_X") is not None


def test_groups_forbidden_topics_round_trip() -> None:
    groups, file = table()
    groups.put(SubscriptionGroupConfig("g", consume_enable=False, retry_max_times=3))
    groups.set_forbidden("g", "T", True)
    again = SubscriptionGroupTable(
        BrokerConfig(broker_name="b"), MemoryFile(file.value), FakeClock()
    )
    again.load()
    assert again.all() == groups.all()
    assert again.is_forbidden("g", "T")
    again.set_forbidden("g", "T", False)
    assert not again.is_forbidden("g", "T")
    assert again.to_json()["forbiddenTable"] == {}


def test_groups_minimal_json_decodes_to_defaults() -> None:
    assert SubscriptionGroupConfig.from_json({"groupName": "g"}) == SubscriptionGroupConfig("g")


def test_groups_delete_removes_group() -> None:
    groups, file = table()
    groups.get_or_create("g")
    assert groups.delete("g") == SubscriptionGroupConfig("g")
    assert groups.delete("g") is None
    assert "g" not in file.value["subscriptionGroupTable"]


def test_groups_many_changes_in_one_write() -> None:
    groups, file = table()
    with groups.one_write():
        groups.get_or_create("a")
        groups.get_or_create("b")
        assert file.saves == 0
    assert {"a", "b"} < set(file.value["subscriptionGroupTable"])


def test_groups_auto_creation_is_bounded() -> None:
    config = BrokerConfig(broker_name="b", max_groups_for_auto_create=len(SYSTEM_GROUPS) + 1)
    groups = SubscriptionGroupTable(config, MemoryFile(), FakeClock())
    assert groups.get_or_create("a") is not None
    with structlog.testing.capture_logs() as events:
        assert groups.get_or_create("b") is None
        assert groups.get_or_create("c") is None
    assert [one["event"] for one in events] == ["group creation stopped: limit reached"]
    assert groups.get_or_create("a") is not None


class FullFile(MemoryFile):
    has_space = True

    def save(self, value: object) -> None:
        if not self.has_space:
            raise DiskFullError("no space")
        super().save(value)


def test_groups_full_disk_auto_created_group_is_usable() -> None:
    file = FullFile()
    groups = SubscriptionGroupTable(BrokerConfig(broker_name="b"), file, FakeClock())
    file.has_space = False
    with structlog.testing.capture_logs() as events:
        for name in ("a", "b", "a"):
            assert groups.get_or_create(name) == SubscriptionGroupConfig(name)
    assert [one["event"] for one in events] == ["client groups not written"]
    assert groups.get("a") is groups.get_or_create("a")
    file.has_space = True
    groups.put(SubscriptionGroupConfig("c"))
    assert set(file.value["subscriptionGroupTable"]) >= {"a", "b", "c"}


def test_groups_failed_write_undoes_change() -> None:
    file = FullFile()
    groups = SubscriptionGroupTable(BrokerConfig(broker_name="b"), file, FakeClock())
    groups.put(SubscriptionGroupConfig("kept"))
    groups.set_forbidden("kept", "T", True)
    file.has_space = False
    for change in (
        lambda: groups.put(SubscriptionGroupConfig("new")),
        lambda: groups.delete("kept"),
        lambda: groups.set_forbidden("kept", "T", False),
        lambda: groups.set_forbidden("kept", "U", True),
    ):
        with pytest.raises(DiskFullError):
            change()
        assert groups.is_forbidden("kept", "T")
    assert groups.get("new") is None
    assert groups.get("kept") is not None
    assert groups.is_forbidden("kept", "T")
    assert not groups.is_forbidden("kept", "U")
    file.has_space = True
    groups.put(SubscriptionGroupConfig("new"))
    groups.delete("kept")
    assert not groups.is_forbidden("kept", "T")
    assert set(file.value["subscriptionGroupTable"]) >= {"new"}
    assert file.value["forbiddenTable"] == {}


def test_groups_auto_created_group_stays_after_failed_write() -> None:
    file = FullFile()
    groups = SubscriptionGroupTable(BrokerConfig(broker_name="b"), file, FakeClock())
    groups.use_writer(lambda: None)
    file.has_space = False
    assert groups.get_or_create("a") == SubscriptionGroupConfig("a")
    with pytest.raises(DiskFullError):
        groups.put(SubscriptionGroupConfig("a", consume_enable=False))
    assert groups.get("a") == SubscriptionGroupConfig("a"), "as a client made it"
    assert not groups.is_written("a")
    file.has_space = True
    settled: list[Exception | None] = []
    groups.when_settled(["a"], settled.append)
    groups.write()
    assert settled == [None]
    assert "a" in file.value["subscriptionGroupTable"]
    assert groups.delete("a")
    assert groups.get("a") is None
