"""Queues in turn, around bad brokers; keys hash as in Java."""

import random

import pytest

from rocketpy.client.fault_tolerance import FaultTolerance
from rocketpy.client.queue_select import QueueTurn, java_hash, queue_index_by_key
from rocketpy.proto.message_queue import MessageQueue

QUEUES = [MessageQueue("t", broker, n) for broker in ("a", "b") for n in range(4)]


class StillClock:
    now = 0

    def time_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


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
    turn = QueueTurn(QUEUES, random.Random(1), None)
    for _ in range(50):
        assert turn.next(("a",)).broker_name == "b"


def test_the_only_broker_is_used_again() -> None:
    turn = QueueTurn(QUEUES[:4], random.Random(1), None)
    assert {turn.next(("a",)).queue_id for _ in range(8)} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("profile", "latency_ms", "avoid_ms"),
    [
        ("4.x", 49, 0),
        ("4.x", 549, 0),
        ("4.x", 550, 30_000),
        ("4.x", 1000, 60_000),
        ("4.x", 14_999, 180_000),
        ("4.x", 15_000, 600_000),
        ("5.x", 550, 2_000),
        ("5.x", 1800, 5_000),
        ("5.x", 15_000, 30_000),
    ],
)
def test_how_long_a_slow_broker_is_avoided(profile: str, latency_ms: int, avoid_ms: int) -> None:
    faults = FaultTolerance(profile, clock=StillClock(), rng=random.Random(1))  # type: ignore[arg-type]
    assert faults.avoid_ms(latency_ms) == avoid_ms


def test_a_failed_broker_is_avoided_then_taken_back() -> None:
    clock = StillClock()
    for profile, until in (("4.x", 600_000), ("5.x", 10_000)):
        clock.now = 0
        faults = FaultTolerance(profile, clock=clock, rng=random.Random(1))  # type: ignore[arg-type]
        turn = QueueTurn(QUEUES, random.Random(1), faults)
        faults.update("a", 10, failed=True, reachable=False)
        clock.now = until - 1
        assert {turn.next().broker_name for _ in range(20)} == {"b"}
        clock.now = until
        assert {turn.next().broker_name for _ in range(20)} == {"a", "b"}


def test_a_short_verdict_does_not_replace_a_long_one_in_5x() -> None:
    clock = StillClock()
    faults = FaultTolerance("5.x", clock=clock, rng=random.Random(1))
    faults.update("a", 10, failed=True)
    faults.update("a", 10)
    assert not faults.is_available("a")


def test_when_all_are_bad_one_is_still_chosen() -> None:
    faults = FaultTolerance("4.x", clock=StillClock(), rng=random.Random(1))
    turn = QueueTurn(QUEUES, random.Random(1), faults)
    faults.update("a", 20_000, failed=True)
    faults.update("b", 10, failed=True)
    assert {turn.next().broker_name for _ in range(20)} == {"b"}
