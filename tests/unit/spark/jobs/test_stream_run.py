"""Signals that end a stream between two batches."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpy.spark.jobs.stream_run import BatchGate, Stopping, _handled_by, exit_code

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[list[object]]:
    """Handlers that do not end the tests."""
    seen: list[object] = []
    before = {
        each: signal.signal(each, lambda *_: seen.append("left to others")) for each in NUMBERS
    }
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_signal_lets_the_current_batch_finish_and_rejects_the_next(
    number: signal.Signals, handlers: list[object]
) -> None:
    taken: list[int] = []

    def take(frame: Any, batch: int) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # a closed terminal sends it twice
        taken.append(batch)

    gate = BatchGate(take)
    frame: Any = None
    with _handled_by(gate):
        gate(frame, 1)
        with pytest.raises(Stopping, match="batch 2 is left for the next start"):
            gate(frame, 2)
    assert taken == [1]
    assert gate.signal == number
    assert handlers == []
    assert exit_code(gate.signal, None) == 128 + number
    assert exit_code(gate.signal, 60) == 0
    os.kill(os.getpid(), number)
    assert handlers == ["left to others"]


def test_hang_up_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gate = BatchGate(lambda frame, batch: None)
    with _handled_by(gate):
        os.kill(os.getpid(), signal.SIGHUP)
    assert gate.signal is None
