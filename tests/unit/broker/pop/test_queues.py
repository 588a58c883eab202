"""Queues that a pop reads, their order, and whether one of them has a message."""

from typing import NamedTuple

import pytest

from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.queues import PopQueues, awaited_queues
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.pop import INIT_MAX, INIT_MIN
from tests.unit.broker.pop.parts_kit import GROUP, RETRY_V1, RETRY_V2, Parts


class Wanted(NamedTuple):
    group: str = GROUP
    topic: str = "T"
    queue_id: int = -1
    init_mode: int = INIT_MIN
    is_ordered: bool = False
    attempt_id: str | None = None


class Kit(Parts):
    def __init__(self, queues: int = 3, retry: tuple[str, ...] = (), percent: int = 20) -> None:
        super().__init__(queues, pop_from_retry_probability=percent)
        for topic in retry:
            self.topics.put(TopicConfig(topic, 1, 1))
        self.queues = PopQueues(
            self.topics,
            self.positions,
            self.order,
            self.store,
            config=self.config,
            clock=self.clock,
        )

    def in_pop_order(self, start: int, wanted: Wanted | None = None) -> list[tuple[str, int]]:
        found = list(self.queues.in_pop_order(wanted or Wanted(), start))
        assert {each.group for each in found} <= {GROUP}
        return [(each.topic, each.queue_id) for each in found]

    def in_flight(self, queue_id: int, offset: int = 0, attempt_id: str | None = None) -> None:
        """Have an ordered pop hand out one message for a second."""
        self.order.record_pop(
            GroupQueue("T", GROUP, queue_id),
            [offset],
            pop_time_ms=self.clock.time_ms(),
            invisible_ms=1_000,
            attempt_id=attempt_id,
        )


@pytest.mark.parametrize(
    ("start", "first"), [(0, [0, 1, 2]), (1, [1, 2, 0]), (5, [2, 0, 1]), (99, [0, 1, 2])]
)
def test_pop_queues_yields_every_queue_once(start: int, first: list[int]) -> None:
    assert Kit().in_pop_order(start) == [("T", queue_id) for queue_id in first]


def test_pop_queues_named_queue_is_read_alone() -> None:
    for queue_id in (0, 2):
        assert Kit().in_pop_order(7, Wanted(queue_id=queue_id)) == [("T", queue_id)]


def test_pop_queues_unreadable_or_deleted_topic_has_none() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 0, 4))
    assert kit.in_pop_order(5) == []
    kit.topics.delete("T")
    assert kit.in_pop_order(5) == []
    assert not kit.queues.has_message(Wanted())


@pytest.mark.parametrize(("start", "is_first"), [(0, True), (29, True), (30, False), (99, False)])
def test_pop_queues_retry_probability_orders_retry_topic_first(start: int, is_first: bool) -> None:
    kit = Kit(1, (RETRY_V1,), percent=30)
    own, retry = ("T", 0), (RETRY_V1, 0)
    assert kit.in_pop_order(start) == ([retry, own] if is_first else [own, retry])


@pytest.mark.parametrize(("percent", "start"), [(0, 0), (100, 99)])
def test_pop_queues_retry_probability_zero_and_hundred(percent: int, start: int) -> None:
    kit = Kit(1, (RETRY_V1,), percent=percent)
    assert kit.in_pop_order(start)[0][0] == ("T" if percent == 0 else RETRY_V1)


def test_pop_queues_changed_retry_probability_applies_to_next_pop() -> None:
    kit = Kit(1, (RETRY_V1,), percent=100)
    kit.queues.configure(Kit(percent=0).config)
    assert kit.in_pop_order(0)[0] == ("T", 0)


def test_pop_queues_two_retry_topics_alternate() -> None:
    kit = Kit(1, (RETRY_V1, RETRY_V2), percent=0)
    assert [kit.in_pop_order(start)[1][0] for start in (40, 41, 42)] == [
        RETRY_V1,
        RETRY_V2,
        RETRY_V1,
    ]


@pytest.mark.parametrize("only", [RETRY_V1, RETRY_V2])
def test_pop_queues_single_retry_topic_is_always_read(only: str) -> None:
    kit = Kit(1, (only,), percent=0)
    assert [kit.in_pop_order(start)[1][0] for start in (40, 41)] == [only, only]


def test_pop_queues_ordered_reads_no_retry_topic() -> None:
    kit = Kit(2, (RETRY_V1, RETRY_V2), percent=100)
    kit.put(b"retried", topic=RETRY_V1)
    assert kit.in_pop_order(0, Wanted(is_ordered=True)) == [("T", 0), ("T", 1)]
    assert kit.queues.has_message(Wanted())
    assert not kit.queues.has_message(Wanted(is_ordered=True))


def test_has_message_until_popped() -> None:
    kit = Kit()
    assert not kit.queues.has_message(Wanted())
    kit.put(b"0", queue_id=2)
    assert kit.queues.has_message(Wanted())
    assert kit.queues.has_message(Wanted(queue_id=2))
    assert not kit.queues.has_message(Wanted(queue_id=1))
    queue = GroupQueue("T", GROUP, 2)
    kit.positions.start_offset(queue, INIT_MIN)
    kit.positions.advance(queue, 1, phy_end=1 << 40)
    assert not kit.queues.has_message(Wanted()), "popped, though its check point is not on disk"


def test_has_message_considers_both_retry_topics() -> None:
    for topic in (RETRY_V1, RETRY_V2):
        kit = Kit(1, (RETRY_V1, RETRY_V2))
        kit.put(b"0", topic=topic)
        assert kit.queues.has_message(Wanted())


def test_has_message_new_group_depends_on_init_mode() -> None:
    kit = Kit(1)
    kit.recent.is_recent = False
    kit.put(b"0", b"1")
    kit.offsets.commit("other", "T", 0, 2)
    assert kit.queues.has_message(Wanted(init_mode=INIT_MIN))
    assert kit.queues.has_message(Wanted(init_mode=INIT_MAX)), "it begins with the last message"
    assert not kit.queues.has_message(Wanted(group="other", init_mode=INIT_MIN))


def test_has_message_blocked_queue_only_for_same_attempt() -> None:
    kit = Kit(1)
    kit.put(b"0", b"1")
    kit.in_flight(0, attempt_id="a")
    assert kit.queues.has_message(Wanted()), "who pops without order is not held up"
    assert not kit.queues.has_message(Wanted(is_ordered=True))
    assert not kit.queues.has_message(Wanted(is_ordered=True, attempt_id="b"))
    assert kit.queues.has_message(Wanted(is_ordered=True, attempt_id="a"))
    kit.clock.advance(1_000)
    assert kit.queues.has_message(Wanted(is_ordered=True))


def test_has_message_free_queue_beside_blocked_one() -> None:
    kit = Kit(2)
    kit.put(b"0", queue_id=0)
    kit.in_flight(0)
    assert not kit.queues.has_message(Wanted(is_ordered=True))
    kit.put(b"1", queue_id=1)
    assert kit.queues.has_message(Wanted(is_ordered=True))


def test_free_at_is_earliest_of_blocked_queues() -> None:
    kit = Kit(2)
    wanted = Wanted(is_ordered=True)
    assert kit.queues.free_at_ms(wanted) is None
    kit.in_flight(1)
    kit.clock.advance(400)
    kit.in_flight(0)
    assert kit.queues.free_at_ms(wanted) == kit.clock.monotonic_ms() + 600
    assert kit.queues.free_at_ms(wanted._replace(queue_id=0)) == kit.clock.monotonic_ms() + 1_000
    kit.clock.advance(600)
    assert kit.queues.free_at_ms(wanted) == kit.clock.monotonic_ms() + 400
    kit.clock.advance(400)
    assert kit.queues.free_at_ms(wanted) is None, "all are free now"


def test_free_at_clock_set_back_is_unchanged() -> None:
    kit = Kit(1)
    kit.in_flight(0)
    kit.clock.jump(-5_000)
    assert kit.queues.free_at_ms(Wanted(is_ordered=True)) == kit.clock.monotonic_ms() + 1_000


def test_awaited_queues_include_both_retry_topics() -> None:
    assert awaited_queues("T", GROUP, 3) == [
        GroupQueue("T", GROUP, 3),
        GroupQueue(RETRY_V1, GROUP, -1),
        GroupQueue(RETRY_V2, GROUP, -1),
    ]
    assert awaited_queues("T", GROUP, -7)[0] == GroupQueue("T", GROUP, -1)
