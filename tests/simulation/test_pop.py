"""Popping under seeds: kills, power cuts, parted hosts; judged by what was delivered and acked.

`SEED=7` runs one seed, `SIM_SEEDS=500` that many.
"""

from typing import Any

import pytest

from rocketpy.broker.pop.ack import Acked, AckOperation
from rocketpy.broker.pop.revive.revive import Reviver
from rocketpy.proto.pop import PopHandle
from tests.simulation.pop_world import BUFFERED_S, Holders, run_seed
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(12)
CHUNKS = 4
TEST = "tests/simulation/test_pop.py::test_popped_messages_are_acked_or_come_back_under_any_seed"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    run_seed(seed)


@pytest.mark.timeout(60 + 20 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_popped_messages_are_acked_or_come_back_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


@pytest.mark.alternate
@pytest.mark.parametrize("seed", [43, 9910057])
def test_check_knows_what_it_was_once_wrong_about(seed: int) -> None:
    """A broker served, and ended before its start was complete; an ack too late to be asked for."""
    run_seed(seed)


@pytest.mark.alternate
def test_check_notices_a_message_that_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reviver, "revive", lambda *_: True)
    with pytest.raises(AssertionError, match="is lost"):
        run_seed(1)


@pytest.mark.alternate
def test_check_notices_an_ack_that_was_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(*_: Any, **__: Any) -> Acked:
        return Acked()

    monkeypatch.setattr(AckOperation, "_store_ack", forgotten)
    with pytest.raises(AssertionError, match="a confirmed ack is lost"):
        run_seed(1)


def test_check_puts_an_ack_down_to_the_delivery_it_is_of() -> None:
    """A clock step ends the invisible time before an ack: the next consumer gets the message."""
    holders = Holders(BUFFERED_S, forks=True)
    message = b"0/0", 1
    first, second, third = (
        PopHandle(0, pop_time_ms, 6_000, 0, mark, "broker-a", 0, 0)
        for pop_time_ms, mark in ((1_000, "0"), (604_000, "1"), (614_000, "1"))
    )
    holders.deliver(message, first, 1_000, 1.0, 1_000, [], 0.0)
    holders.step_clock(1.5, 1_500)
    holders.step_clock(1.5, 601_500)
    holders.deliver(message, second, 603_900, 4.0, 604_000, [], 0.0)
    holders.ack(message, first, 4.5, 604_500)
    holders.deliver(message, third, 613_900, 14.0, 614_000, [], 0.0)
    holders.ack(message, third, 14.5, 614_500)
    with pytest.raises(AssertionError, match="was acked and came again"):
        holders.deliver(message, third, 624_000, 24.0, 624_000, [], 0.0)
