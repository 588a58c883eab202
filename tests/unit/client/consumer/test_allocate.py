"""Allocation of queues: the same shares as in official clients, without a lost queue."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.client.consumer.rebalance import find_allocation
from rocketpy.proto.allocation import (
    allocate_average,
    allocate_circle,
    by_machine_room,
    consistent_hash,
    fixed_queues,
    java_sorted,
    machine_room_nearby,
    sorted_queues,
)
from rocketpy.proto.message_queue import MessageQueue

QUEUES = [MessageQueue("T", broker, n) for broker in ("broker-a", "broker-b") for n in range(4)]
IDS = ["10.0.0.1@101#1", "10.0.0.2@202#2", "10.0.0.3@303#3"]


def names(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in queues]


def test_shares_as_printed_by_the_java_client() -> None:
    hashed = [names(consistent_hash()(me, QUEUES, IDS)) for me in IDS]
    assert hashed == [["a1", "b0", "b3"], ["a0", "a2", "b1"], ["a3", "b2"]]
    average = [names(allocate_average(me, QUEUES, IDS)) for me in IDS]
    circle = [names(allocate_circle(me, QUEUES, IDS)) for me in IDS]
    assert average == [["a0", "a1", "a2"], ["a3", "b0", "b1"], ["b2", "b3"]]
    assert circle == [["a0", "a3", "b2"], ["a1", "b0", "b3"], ["a2", "b1"]]


@settings(deadline=None)
@given(queues=st.integers(0, 40), members=st.integers(1, 12))
def test_every_queue_has_exactly_one_owner(queues: int, members: int) -> None:
    all_queues = [MessageQueue("T", "b", n) for n in range(queues)]
    ids = [f"c{n:02}" for n in range(members)]
    nearby = machine_room_nearby(
        lambda queue: f"r{queue.queue_id % 3}", lambda me: f"r{int(me[1:]) % 2}"
    )
    for allocate in (consistent_hash(3), nearby):
        shares = [allocate(me, all_queues, ids) for me in ids]
        assert sorted(queue for share in shares for queue in share) == all_queues
    for allocate in (allocate_average, allocate_circle):
        shares = [allocate(me, all_queues, ids) for me in ids]
        assert sorted(queue for share in shares for queue in share) == all_queues
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_stranger_gets_nothing() -> None:
    assert allocate_average("unknown", QUEUES, IDS) == []
    assert allocate_circle("unknown", QUEUES, IDS) == []
    assert consistent_hash()("unknown", QUEUES, IDS) == []
    assert by_machine_room(["a"])("unknown", QUEUES, IDS) == []
    nearby = machine_room_nearby(lambda _: "a", lambda _: "a")
    assert nearby("unknown", QUEUES, IDS) == []


def test_few_queues_move_when_a_member_comes() -> None:
    rule = find_allocation("consistent_hash")
    for me in IDS[:2]:
        kept = set(rule(me, QUEUES, IDS[:2])) & set(rule(me, QUEUES, IDS))
        assert kept == set(rule(me, QUEUES, IDS)), "members that stay get nothing from each other"


def test_fixed_share_is_what_was_given_as_far_as_it_exists() -> None:
    rule = fixed_queues([QUEUES[1], MessageQueue("T", "gone", 0)])
    assert names(rule("anybody", QUEUES, IDS)) == ["a1"]


def test_queues_of_some_machine_rooms_are_dealt_out() -> None:
    rooms = [
        MessageQueue("T", f"{room}@{broker}", number)
        for room in ("one", "two")
        for broker in ("a", "b")
        for number in range(2)
    ]
    rule = by_machine_room({"one"})
    # Pages of one, and the fourth queue to the first member; brokers without a room get nobody.
    shares = [[(q.broker_name, q.queue_id) for q in rule(me, rooms + QUEUES, IDS)] for me in IDS]
    assert shares == [
        [("one@a", 0), ("one@b", 1)],
        [("one@a", 1)],
        [("one@b", 0)],
    ]


def test_members_read_their_own_room_and_share_rooms_without_members() -> None:
    nearby = machine_room_nearby(
        lambda queue: queue.broker_name, lambda me: "broker-a" if me != IDS[2] else "elsewhere"
    )
    shares = [names(nearby(me, QUEUES, IDS)) for me in IDS]
    assert shares == [["a0", "a1", "b0", "b1"], ["a2", "a3", "b2"], ["b3"]]


def test_names_sort_as_java_sorts_them() -> None:
    # Java compares UTF-16 units: a surrogate pair sorts before U+FF5E, in Python after it.
    assert java_sorted(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]
    queues = [MessageQueue("t", "b", 10), MessageQueue("t", "b", 9), MessageQueue("s", "z", 0)]
    assert sorted_queues(queues) == [queues[2], queues[1], queues[0]]
