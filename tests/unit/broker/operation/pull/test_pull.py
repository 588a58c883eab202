"""Pulls: suspension, resumption and refusals."""

from typing import Any

import pytest

from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.filters.message_filters import TagFilter
from rocketpy.broker.long_polling.suspended_requests import SuspendedRequests
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.filters import PullFilters
from rocketpy.broker.operation.pull.pull import GROWTH_INTERVAL_MS, PullOperation, SuspendedPull
from rocketpy.broker.operation.pull.request import PullRequest, PullResult
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.tags import tags_code
from rocketpy.sql92.condition import MAX_EXPRESSION_CHARS
from rocketpy.store.results import GetMessageStatus
from tests.unit.broker.fakes import FakeClock, FakeStats, FakeStore, MemoryFile


class Kit:
    """Topic T has four queues without a message; everybody may read."""

    def __init__(self, **config: Any) -> None:
        self.config = BrokerConfig(broker_name="b", **config)
        self.clock = FakeClock()
        self.topics = TopicTable(self.config, MemoryFile(), self.clock)
        self.topics.put(TopicConfig("T", 4, 4, 6))
        self.store = FakeStore()
        self.suspended = SuspendedRequests("SuspendedPulls")
        self.resumed: list[SuspendedPull] = []
        groups = SubscriptionGroupTable(self.config, MemoryFile(), self.clock)
        sql = ConsumerFilters(self.config, MemoryFile(), self.clock)
        self.offsets = ConsumerOffsets(self.config, MemoryFile(), self.clock)
        self.pulls = PullOperation(
            self.store,
            topics=self.topics,
            groups=groups,
            filters=PullFilters(groups, ConsumerTable(), sql, self.config),
            offsets=self.offsets,
            suspended=self.suspended,
            stats=FakeStats(),
            config=self.config,
            clock=self.clock,
        )

    def pull(
        self,
        expression: str = "*",
        *,
        queue_id: int = 0,
        offset: int = 0,
        kind: str | None = None,
        group: str = "g",
    ) -> Any:
        wanted = PullRequest(
            group=group,
            topic="T",
            queue_id=queue_id,
            queue_offset=offset,
            max_count=32,
            max_bytes=1_000,
            commit_offset=None,
            suspend_ms=15_000,
            expression=expression,
            expression_type=kind,
            sub_version=0,
            is_lite=False,
        )
        return self.pulls.pull(wanted, self, lambda _: None)

    def resume(self, request: Any, _pool: object = None) -> None:
        """Note a resumed pull; the kit is the channel of them all."""
        self.resumed.append(request)

    def arrive(self, tag: str, next_offset: int = 1, queue_id: int = 0) -> None:
        self.pulls.on_arrival("T", queue_id, next_offset, tags_code(tag))


def test_pull_arrival_resumes_pulls_with_its_tag() -> None:
    kit = Kit()
    for expression in ("a", "a || b", "c", "*"):
        assert kit.pull(expression) is None
    kit.arrive("a")
    assert [pull.wanted.expression for pull in kit.resumed] == ["*", "a", "a || b"]
    kit.arrive("a", 2)
    kit.arrive("c", 3, queue_id=1)
    assert len(kit.resumed) == 3
    kit.arrive("c", 3)
    assert len(kit.resumed) == 4


def test_pull_arrival_does_not_visit_pulls_with_other_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand pulls for another tag cost a send nothing."""
    kit = Kit()
    kit.pull("other")

    def looked_at(*_: object) -> bool:
        raise AssertionError("looked at")

    monkeypatch.setattr(SuspendedPull, "wants", looked_at)
    kit.arrive("a")
    with pytest.raises(AssertionError, match="looked at"):
        kit.arrive("other")


def test_pull_filter_with_many_tags_is_checked() -> None:
    kit = Kit()
    assert kit.pull(" || ".join(f"t{number}" for number in range(100))) is None
    kit.arrive("other")
    assert kit.resumed == []
    kit.arrive("t99", 2)
    assert len(kit.resumed) == 1


def test_pull_arrival_before_its_offset_does_not_resume() -> None:
    kit = Kit()
    kit.pull(offset=5)
    kit.arrive("a", 5)
    assert kit.resumed == []
    kit.arrive("a", 6)
    assert len(kit.resumed) == 1


def test_pull_narrow_filter_is_resumed_by_queue_growth() -> None:
    kit = Kit()
    kit.pull("a")
    kit.pull("*", queue_id=1)
    kit.store.ends = {("T", 0): 3, ("T", 1): 3}
    kit.suspended.step(kit.clock.now_ms + GROWTH_INTERVAL_MS - 1)
    assert kit.resumed == []
    kit.suspended.step(kit.clock.now_ms + GROWTH_INTERVAL_MS)
    assert [pull.wanted.queue_id for pull in kit.resumed] == [0]


def test_pull_message_between_read_and_suspension_is_not_missed() -> None:
    kit = Kit()
    kit.store.ends["T", 0] = 1
    assert kit.pull() is None
    assert len(kit.resumed) == 1


def test_pull_resumed_pull_is_checked_again() -> None:
    kit = Kit()
    kit.pull()
    kit.topics.delete("T")
    kit.arrive("a")
    (pull,) = kit.resumed
    assert kit.suspended.count == 1, "it counts until it has been read"
    outcome = kit.pulls.resume(pull)
    assert isinstance(outcome, Refusal)
    assert outcome.code == 17
    assert kit.suspended.count == 0


def test_pull_topic_deletion_answers_suspended_pulls() -> None:
    kit = Kit()
    for queue_id in range(4):
        assert kit.pull("a" if queue_id else "*", queue_id=queue_id) is None
    deleted = kit.topics.delete("T")
    assert deleted is not None
    kit.pulls.topic_deleted(deleted)
    assert sorted(pull.wanted.queue_id for pull in kit.resumed) == [0, 1, 2, 3]
    for pull in kit.resumed:
        outcome = kit.pulls.resume(pull)
        assert isinstance(outcome, Refusal)
        assert outcome.code == 17
    assert kit.suspended.count == 0


def test_pull_reset_answers_suspended_pulls_of_group() -> None:
    kit = Kit()
    kit.offsets.on_reset.append(kit.pulls.offset_reset)
    for group, queue_id in (("g", 0), ("h", 0), ("g", 1)):
        assert kit.pull("a", queue_id=queue_id, group=group, offset=9) is None
    kit.offsets.assign_reset("g", "T", 0, 3)
    (pull,) = kit.resumed
    assert (pull.wanted.group, pull.wanted.queue_id) == ("g", 0)
    told = kit.pulls.resume(pull)
    assert isinstance(told, PullResult)
    assert (told.code, told.read.next_begin_offset) == (21, 3)
    assert kit.suspended.count == 2, "the others wait on"


def test_pull_reset_between_read_and_suspension_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    kit.offsets.on_reset.append(kit.pulls.offset_reset)
    suspend = kit.suspended.suspend

    def reset_before(pull: SuspendedPull, now_ms: int) -> bool:
        kit.offsets.assign_reset("g", "T", 0, 3)
        return suspend(pull, now_ms)

    monkeypatch.setattr(kit.suspended, "suspend", reset_before)
    assert kit.pull() is None
    told = kit.pulls.resume(kit.resumed[0])
    assert isinstance(told, PullResult)
    assert told.read.status is GetMessageStatus.OFFSET_RESET


def test_pull_resumed_pull_uses_its_filter_and_is_not_suspended_again() -> None:
    kit = Kit()
    kit.pull("a")
    kit.arrive("a")
    outcome = kit.pulls.resume(kit.resumed[0])
    assert isinstance(outcome, PullResult)
    assert outcome.read.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert outcome.code == 19
    assert kit.store.reads[1][5] is kit.store.reads[0][5]


def test_pull_failed_read_releases_pull() -> None:
    kit = Kit()
    kit.pull()
    kit.arrive("a")

    def broken(*_: object, **_named: object) -> None:
        raise OSError("bad disk")

    kit.store.get_message = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(OSError, match="bad disk"):
        kit.pulls.resume(kit.resumed[0])
    assert kit.suspended.count == 0


def test_pull_large_fields_are_dropped_or_counted() -> None:
    kit = Kit()
    kit.pull("*")
    plain_bytes = kit.suspended.size_bytes
    tags = "||".join(f"t{number}" for number in range(1_000))
    kit.pull(tags)
    assert (
        kit.suspended.size_bytes - 2 * plain_bytes == TagFilter(frozenset(range(1_000))).size_bytes
    )
    kit.arrive("t7")
    assert [pull.wanted.expression for pull in kit.resumed] == ["*", ""]


def test_pull_expression_too_long_is_refused() -> None:
    kit = Kit()
    assert kit.pull("x" * MAX_EXPRESSION_CHARS) is None
    refused = kit.pull("x" * (MAX_EXPRESSION_CHARS + 1))
    assert isinstance(refused, Refusal)
    assert refused.code == 23
    assert str(MAX_EXPRESSION_CHARS) in refused.remark


def test_pull_lost_owner_drops_its_pulls() -> None:
    kit = Kit()
    kit.pull()
    kit.pulls.forget(kit)
    kit.arrive("a")
    assert (kit.resumed, kit.suspended.count) == ([], 0)


def test_pull_full_table_answers_at_once() -> None:
    kit = Kit(max_held_pulls=0)
    kit.pulls.configure(kit.config)
    outcome = kit.pull()
    assert isinstance(outcome, PullResult)
    assert outcome.code == 19


def test_pull_topic_deletion_between_read_and_suspension_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A concurrent deletion finds no suspended pull to answer yet."""
    kit = Kit()
    kit.topics.on_delete = kit.pulls.topic_deleted
    suspend = kit.suspended.suspend

    def delete_before(pull: SuspendedPull, now_ms: int) -> bool:
        kit.topics.delete("T")
        return suspend(pull, now_ms)

    monkeypatch.setattr(kit.suspended, "suspend", delete_before)
    assert kit.pull() is None
    assert len(kit.resumed) == 1
    told = kit.pulls.resume(kit.resumed[0])
    assert isinstance(told, Refusal)
    assert "not exist" in told.remark
