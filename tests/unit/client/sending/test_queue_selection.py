"""Queues in turn, around bad brokers; keys hash as in Java."""

import random

import pytest

from rocketpy.client.sending.queue_selection import RoundRobin, java_hash, queue_index_by_key
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sends import destination

QUEUES = [MessageQueue("t", broker, n) for broker in ("a", "b") for n in range(4)]


@pytest.mark.parametrize(
    ("key", "index"),
    [
        ("order-1", 6),
        ("order-2", 5),
        ("a", 1),
        ("", 0),
        ("订单42", 1),
        ("polygenelubricants", 0),
        (7, 7),
        (-7, 7),
        (9999999999, 5),
    ],
)
def test_keys_choose_the_queue_the_java_client_chooses(key: str | int, index: int) -> None:
    assert queue_index_by_key(key, 8) == index


def test_long_hash() -> None:
    assert java_hash(9999999999) == 1410065405
    assert java_hash("polygenelubricants") == -2147483648


def test_after_a_failure_the_other_broker_comes() -> None:
    turn = RoundRobin(QUEUES, random.Random(1), None, destination)
    for _ in range(50):
        assert turn.next(("a",)).queue.broker_name == "b"


def test_only_broker_is_used_again() -> None:
    turn = RoundRobin(QUEUES[:4], random.Random(1), None, destination)
    assert {turn.next(("a",)).queue.queue_id for _ in range(8)} == {0, 1, 2, 3}


def test_queues_are_taken_in_turn_from_a_random_start() -> None:
    starts = set()
    for seed in range(40):
        turn = RoundRobin(QUEUES, random.Random(seed), None, destination)
        places = [QUEUES.index(turn.next().queue) for _ in range(20)]
        assert places == [(places[0] + n) % 8 for n in range(20)]
        starts.add(places[0])
    assert starts == set(range(8))


def test_first_queue_of_another_broker_comes_within_one_lap() -> None:
    turn = RoundRobin(QUEUES, random.Random(1), None, destination)
    for place in range(8):
        turn._turn = place - 1
        queue = turn.next(("a",)).queue
        assert queue == QUEUES[max(place, 4)]
        assert turn._turn == max(place, 4)


def test_all_that_failed_are_left_out_else_the_last_one() -> None:
    queues = [MessageQueue("t", broker, 0) for broker in "abc"]
    turn = RoundRobin(queues, random.Random(1), None, destination)
    assert {turn.next(("a", "b")).queue.broker_name for _ in range(9)} == {"c"}
    assert {turn.next(("a", "c", "b")).queue.broker_name for _ in range(9)} == {"a", "c"}
