"""Every member computes the same shares as the official clients, and nobody's queue is lost."""

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.proto.allocation import allocate_average, allocate_circle, java_sorted, sorted_queues
from rocketpy.proto.message_queue import MessageQueue

QUEUES = [MessageQueue("T", broker, n) for broker in ("broker-a", "broker-b") for n in range(4)]
IDS = ["10.0.0.1@101#1", "10.0.0.2@202#2", "10.0.0.3@303#3"]


def names(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in queues]


def test_shares_as_printed_by_the_java_client() -> None:
    average = [names(allocate_average(me, QUEUES, IDS)) for me in IDS]
    circle = [names(allocate_circle(me, QUEUES, IDS)) for me in IDS]
    assert average == [["a0", "a1", "a2"], ["a3", "b0", "b1"], ["b2", "b3"]]
    assert circle == [["a0", "a3", "b2"], ["a1", "b0", "b3"], ["a2", "b1"]]


@given(queues=st.integers(0, 40), members=st.integers(1, 12))
def test_every_queue_has_exactly_one_owner(queues: int, members: int) -> None:
    all_queues = [MessageQueue("T", "b", n) for n in range(queues)]
    ids = [f"c{n:02}" for n in range(members)]
    for allocate in (allocate_average, allocate_circle):
        shares = [allocate(me, all_queues, ids) for me in ids]
        assert sorted(queue for share in shares for queue in share) == all_queues
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_a_stranger_gets_nothing() -> None:
    assert allocate_average("unknown", QUEUES, IDS) == []
    assert allocate_circle("unknown", QUEUES, IDS) == []


def test_names_sort_as_java_sorts_them() -> None:
    # Java compares UTF-16 units: a surrogate pair sorts before U+FF5E, in Python after it.
    assert java_sorted(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]
    queues = [MessageQueue("t", "b", 10), MessageQueue("t", "b", 9), MessageQueue("s", "z", 0)]
    assert sorted_queues(queues) == [queues[2], queues[1], queues[0]]
