"""Two conditions that a sender waits for."""

import pytest

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.send import BothDone

NO = Refusal(14, "no")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [(None, None, None), (NO, None, NO), (None, NO, NO), (NO, Refusal(1, "later"), NO)],
)
def test_both_done_calls_back_after_second_condition(
    first: Refusal | None, second: Refusal | None, told: Refusal | None
) -> None:
    calls: list[Refusal | None] = []
    both = BothDone(calls.append)
    both.arrived(first)
    assert calls == []
    both.arrived(second)
    assert calls == [told]
