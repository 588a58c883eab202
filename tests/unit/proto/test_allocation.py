import pytest

from rocketpy.proto.allocation import (
    allocate_average,
    allocate_circle,
    java_sorted,
    sorted_queues,
)
from rocketpy.proto.message_queue import MessageQueue

QUEUES = [MessageQueue("T", "b", queue_id) for queue_id in range(7)]
MEMBERS = ["c1", "c2", "c3"]


def ids(queues: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in queues]


def test_average_gives_pages_and_the_first_members_the_rest() -> None:
    assert [ids(allocate_average(one, QUEUES, MEMBERS)) for one in MEMBERS] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]


def test_circle_deals_out() -> None:
    assert [ids(allocate_circle(one, QUEUES, MEMBERS)) for one in MEMBERS] == [
        [0, 3, 6],
        [1, 4],
        [2, 5],
    ]


@pytest.mark.parametrize("rule", [allocate_average, allocate_circle])
def test_strangers_get_nothing_and_late_members_may(rule: object) -> None:
    assert callable(rule)
    assert rule("x", QUEUES, MEMBERS) == []
    assert rule("c3", QUEUES[:2], MEMBERS) == []
    assert rule("c1", [], MEMBERS) == []


def test_java_sorts_by_utf16_units() -> None:
    assert java_sorted(["\uffee", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uffee"]
    queues = [MessageQueue("T", "b", 10), MessageQueue("T", "b", 9), MessageQueue("T", "a", 11)]
    assert [each.queue_id for each in sorted_queues(queues)] == [11, 9, 10]
