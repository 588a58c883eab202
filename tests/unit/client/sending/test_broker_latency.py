"""Time for which a broker is avoided, by both tables, and the choice of the least bad broker."""

import random
from collections import Counter
from typing import Literal

import pytest

from rocketpy.client.config import ProducerConfig
from rocketpy.client.sending.broker_latency import BrokerLatencies
from rocketpy.client.sending.queue_selection import RoundRobin
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.testing.sim_clock import SimClock
from tests.unit.client.sends import destination

QUEUES = [MessageQueue("t", broker, n) for broker in ("a", "b") for n in range(4)]

# latencyMax and notAvailableDuration, ms.
TABLES = {
    "4.x": [
        (0, 0), (50, 0), (100, 0), (550, 30_000), (1000, 60_000), (2000, 120_000),
        (3000, 180_000), (15_000, 600_000),
    ],
    "5.x": [
        (0, 0), (50, 0), (100, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10_000),
        (15_000, 30_000),
    ],
}  # fmt: skip


class Kit:
    def __init__(self, profile: str = "4.x", seed: int = 1) -> None:
        self.clock = SimClock()
        name: Literal["4.x", "5.x"] = "5.x" if profile == "5.x" else "4.x"
        self.faults = BrokerLatencies(name, clock=self.clock, rng=random.Random(seed))
        self.turn = RoundRobin(QUEUES, random.Random(seed), self.faults, destination)

    def chosen(self, count: int = 16, failed: tuple[str, ...] = ()) -> Counter[str]:
        return Counter(self.turn.next(failed).queue.broker_name for _ in range(count))


def test_avoiding_is_off_and_the_older_table_is_the_default() -> None:
    config = ProducerConfig()
    assert (config.latency_fault, config.latency_profile) == (False, "4.x")


@pytest.mark.parametrize("profile", sorted(TABLES))
def test_each_line_of_the_table(profile: str) -> None:
    faults = Kit(profile).faults
    table = TABLES[profile]
    for (at_least, avoid_ms), (below, _) in zip(table, [*table[1:], (10**9, 0)], strict=True):
        for latency_ms in {at_least, (at_least + below) // 2, below - 1}:
            assert faults.avoid_ms(latency_ms) == avoid_ms, latency_ms


@pytest.mark.parametrize(
    ("profile", "latency_ms", "failed", "avoid_ms"),
    [
        ("4.x", 549, False, 0),
        ("4.x", 550, False, 30_000),
        ("4.x", 2500, False, 120_000),
        ("4.x", 5, True, 600_000),
        ("4.x", 16_000, True, 600_000),
        ("5.x", 550, False, 2000),
        ("5.x", 5, True, 10_000),
        ("5.x", 16_000, True, 10_000),
    ],
)
def test_broker_is_available_again_when_its_time_is_over(
    profile: str, latency_ms: int, failed: bool, avoid_ms: int
) -> None:
    kit = Kit(profile)
    kit.faults.update("a", latency_ms, failed=failed)
    if avoid_ms:
        kit.clock.advance(avoid_ms - 1)
        assert not kit.faults.is_available("a")
        assert kit.chosen() == {"b": 16}
        kit.clock.advance(1)
    assert kit.faults.is_available("a")
    assert kit.chosen() == {"a": 8, "b": 8}


def test_later_verdict_overwrites_an_earlier_one() -> None:
    kit = Kit("4.x")
    kit.faults.update("a", 3, failed=True)
    assert not kit.faults.is_available("a")
    kit.faults.update("a", 3)
    assert kit.faults.is_available("a")
    assert kit.faults.is_available("never heard of")


def test_in_5x_a_shorter_verdict_replaces_no_longer_one() -> None:
    kit = Kit("5.x")
    kit.faults.update("a", 15_000)
    kit.faults.update("a", 550)
    kit.faults.update("a", 1)
    kit.clock.advance(29_999)
    assert not kit.faults.is_available("a")
    kit.clock.advance(1)
    assert kit.faults.is_available("a")


def test_first_lap_wants_an_available_broker_that_has_not_just_failed() -> None:
    kit = Kit()
    assert kit.chosen(failed=("a",)) == {"b": 16}
    kit.faults.update("b", 600)
    assert kit.chosen() == {"a": 16}


def test_when_all_are_avoided_the_better_half_takes_turns() -> None:
    kit = Kit()
    queues = [MessageQueue("t", broker, n) for broker in "abcde" for n in range(3)]
    turn = RoundRobin(queues, random.Random(2), kit.faults, destination)
    for broker, latency_ms in zip("abcde", (9000, 700, 800, 5000, 600), strict=True):
        kit.faults.update(broker, latency_ms)
    chosen = [turn.next().queue for _ in range(24)]
    assert Counter(queue.broker_name for queue in chosen) == {"b": 12, "e": 12}
    assert {queue.queue_id for queue in chosen} == {0, 1, 2}
    kit.faults.update("d", 549)
    assert kit.faults.pick_one_at_least() in {"d", "e"}, "an available one is better than any other"


def test_equal_latencies_choose_any_broker() -> None:
    picked = set()
    for seed in range(20):
        kit = Kit(seed=seed)
        kit.faults.update("a", 700)
        kit.faults.update("b", 700)
        picked.add(kit.faults.pick_one_at_least())
    assert picked == {"a", "b"}


def test_least_bad_broker_without_queues_leaves_the_table() -> None:
    kit = Kit()
    kit.faults.update("a", 800)
    kit.faults.update("b", 800)
    kit.faults.update("gone", 700)
    assert kit.turn.next().queue.broker_name in {"a", "b"}
    assert kit.faults.pick_one_at_least() != "gone"


def test_empty_latency_table_has_no_least_bad_broker() -> None:
    assert Kit().faults.pick_one_at_least() is None


def test_when_choosing_fails_queues_are_taken_in_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit()

    def broken(_: str) -> bool:
        raise ZeroDivisionError("a fault of the table")

    monkeypatch.setattr(BrokerLatencies, "is_available", lambda _, name: broken(name))
    assert kit.chosen() == {"a": 8, "b": 8}
    assert "queue selection failed" in caplog.text


def test_5x_latencies_prefer_reachable_brokers_then_round_robin() -> None:
    kit = Kit("5.x")
    kit.faults.update("a", 5, failed=True, reachable=False)
    kit.faults.update("b", 5, failed=True, reachable=True)
    assert kit.chosen() == {"b": 16}
    kit.faults.update("b", 5, failed=True, reachable=False)
    assert kit.chosen() == {"a": 8, "b": 8}


@pytest.mark.parametrize("profile", ["4.x", "5.x"])
@pytest.mark.parametrize("seed", range(8))
def test_refusing_brokers_are_skipped_while_another_is_left(profile: str, seed: int) -> None:
    """All have failed, and those that refuse seem the best: to choose one of them would spin."""
    kit = Kit(profile, seed)
    queues = [MessageQueue("t", broker, n) for broker in ("a", "b", "c") for n in range(4)]
    kit.faults.update("c", 3_000, failed=True, reachable=False)
    turn = RoundRobin(queues, random.Random(seed), kit.faults, destination)
    for failed in (("c", "a", "b"), ("c", "b", "a"), ("a", "b")):
        assert turn.next(failed, frozenset("ab")).queue.broker_name == "c"
    assert turn.next(("c", "b", "a"), frozenset("a")).queue.broker_name == "b"
