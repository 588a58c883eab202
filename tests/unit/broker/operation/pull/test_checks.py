"""Checks of pulls, and their cached results."""

from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.checks import MAX_ALLOWED, PullChecks
from rocketpy.broker.operation.pull.filters import PullFilters
from rocketpy.broker.operation.pull.request import PullRefused, PullRequest
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.subscription import build_subscription
from tests.unit.broker.fakes import FakeChannel, FakeClock, MemoryFile


class Kit:
    """Topic T has four queues; group g is there, with one member that wants everything of T."""

    def __init__(self) -> None:
        self.config, clock = BrokerConfig(broker_name="b"), FakeClock()
        self.topics = TopicTable(self.config, MemoryFile(), clock)
        self.group_file = MemoryFile()
        self.groups = SubscriptionGroupTable(self.config, self.group_file, clock)
        self.consumers = ConsumerTable()
        sql = ConsumerFilters(self.config, MemoryFile(), clock)
        self.filters = PullFilters(self.groups, self.consumers, sql, self.config)
        self.topics.put(TopicConfig("T", 4, 4, 6))
        self.groups.put(SubscriptionGroupConfig("g"))
        self.channel: Any = FakeChannel()
        self.register("*")
        self.checks = PullChecks(self.topics, self.groups, self.filters, self.config)

    def register(self, expression: str) -> None:
        self.consumers.register(
            "g",
            ClientChannel(self.channel, "c", 0, 0, 0, seen_ms=1),
            [build_subscription("T", expression, "TAG", sub_version=1)],
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )


def wanted(queue_id: int = 0, expression: str | None = None, kind: str = "TAG") -> PullRequest:
    return PullRequest("g", "T", queue_id, 5, 32, 1_000, None, None, expression, kind, 1, False)


CHANGES: dict[str, Callable[[Kit], object]] = {
    "settings": lambda kit: kit.checks.configure(BrokerConfig(broker_name="b")),
    "topic": lambda kit: kit.topics.put(TopicConfig("U", 4, 4, 6)),
    "topic gone": lambda kit: kit.topics.delete("T"),
    "group": lambda kit: kit.groups.put(SubscriptionGroupConfig("g", consume_enable=False)),
    "new group": lambda kit: kit.groups.get_or_create("h"),
    "group gone": lambda kit: kit.groups.delete("g"),
    "forbidden": lambda kit: kit.groups.set_forbidden("g", "T", forbidden=True),
    "heartbeat": lambda kit: kit.register("a"),
    "good-bye": lambda kit: kit.consumers.unregister("g", kit.channel),
    "connection gone": lambda kit: kit.consumers.forget_channel(kit.channel),
    "silence": lambda kit: kit.consumers.expire(100),
}


@pytest.mark.parametrize("name", CHANGES)
def test_pull_checks_each_change_makes_new_version(name: str) -> None:
    kit = Kit()
    before = kit.checks.standing()
    kit.checks.check(wanted())
    assert kit.checks.standing() is before
    assert len(before.allowed) == 1
    CHANGES[name](kit)
    after = kit.checks.standing()
    assert after.number > before.number
    assert not after.allowed


def test_pull_checks_repeated_pull_is_checked_once() -> None:
    kit = Kit()
    first = kit.checks.check(wanted())
    assert kit.checks.check(wanted()._replace(queue_offset=99, commit_offset=3)) is first
    assert kit.checks.check(wanted(1)) is not first
    assert kit.checks.check(wanted(expression="a")).message_filter is not None
    assert kit.checks.check(wanted()).message_filter is None


def test_pull_checks_refusal_is_not_cached() -> None:
    kit = Kit()
    for _ in range(2):
        with pytest.raises(PullRefused):
            kit.checks.check(wanted(queue_id=4))
    assert not kit.checks.standing().allowed


@pytest.mark.parametrize(("expression", "kind"), [("a > 1", "SQL92"), ("a" * 201, "TAG")])
def test_pull_checks_conditions_and_long_expressions_are_not_cached(
    expression: str, kind: str
) -> None:
    kit = Kit()
    kit.filters.configure(BrokerConfig(broker_name="b", enable_property_filter=True))
    kit.checks.check(wanted(expression=expression, kind=kind))
    assert not kit.checks.standing().allowed


@pytest.mark.parametrize(("tags", "is_remembered"), [(32, True), (33, False)])
def test_pull_checks_many_tags_are_not_cached(tags: int, is_remembered: bool) -> None:
    """Each subscription of the largest size has 260 KB of separate tags codes."""
    kit = Kit()
    kit.consumers.unregister("g", kit.channel)
    kit.register("||".join(f"t{number}" for number in range(tags)))
    assert kit.checks.check(wanted()).message_filter is not None
    assert bool(kit.checks.standing().allowed) is is_remembered


def test_pull_checks_cache_is_bounded() -> None:
    kit = Kit()
    for version in range(MAX_ALLOWED + 1):
        kit.checks.check(wanted()._replace(sub_version=-version))
    assert len(kit.checks.standing().allowed) == 1


def test_pull_checks_permission_undone_after_check_is_checked_again() -> None:
    """Between the two a pull that may not be may have been allowed."""
    kit = Kit()
    kit.groups.set_forbidden("g", "T", forbidden=True)
    before = kit.checks.standing()

    def fails(_value: object) -> None:
        kit.checks.check(wanted())
        raise DiskFullError("full")

    kit.group_file.save = fails  # type: ignore[assignment,method-assign]
    with pytest.raises(DiskFullError):
        kit.groups.set_forbidden("g", "T", forbidden=False)
    assert kit.checks.standing().number > before.number
    with pytest.raises(PullRefused):
        kit.checks.check(wanted())
