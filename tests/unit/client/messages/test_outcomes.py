"""Rejections: what an exception of a handler, or a back-off function, asks for."""

from datetime import timedelta
from typing import Any

import pytest

from rocketpy.client.messages.outcomes import Rejection, Retry, ToDLQ
from rocketpy.errors import ClientError


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def caused(order: Exception) -> Exception:
    order.__cause__ = OSError("disk full")
    return order


@pytest.mark.parametrize(
    ("error", "level", "delay_s", "exception", "reason"),
    [
        (ValueError("no"), 0, None, "ValueError", "no"),
        (ValueError(), 0, None, "ValueError", ""),
        (Retry(), 0, None, "Retry", "retry at delay level 0"),
        (Retry(delay_level=4), 4, None, "Retry", "retry at delay level 4"),
        (Retry(delay=1.5), 0, 1.5, "Retry", "retry after 1.5 s"),
        (Retry(delay=timedelta(hours=2)), 0, 7200, "Retry", "retry after 7200 s"),
        (Retry(delay=0), 0, 0, "Retry", "retry after 0 s"),
        (caused(Retry(delay=1)), 0, 1, "OSError", "disk full"),
        (ToDLQ("why"), -1, None, "ToDLQ", "why"),
        (caused(ToDLQ("why")), -1, None, "ToDLQ", "why"),
        (caused(ToDLQ()), -1, None, "OSError", "disk full"),
        (ValueError("a\x01b\x02\n\ud800c"), 0, None, "ValueError", "a b c"),
        (ValueError("x" * 5_000), 0, None, "ValueError", "x" * 1_000),
        (UnprintableError(), 0, None, "UnprintableError", ""),
        (ExceptionGroup("in a TaskGroup", [KeyError("sku")]), 0, None, "KeyError", "'sku'"),
        (
            ExceptionGroup("g", [ValueError("no"), ExceptionGroup("h", [OSError("disk")])]),
            0,
            None,
            "ExceptionGroup",
            "ValueError: no; OSError: disk",
        ),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_rejection_of_an_exception_has_its_delay_and_reason(
    error: Exception, level: int, delay_s: float | None, exception: str, reason: str
) -> None:
    assert Rejection.of(error) == Rejection(level, delay_s, exception, reason)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": "5"}, TypeError),
        ({"delay": True}, TypeError),
        ({"delay": float("nan")}, TypeError),
        ({"delay": -1}, ClientError),
        ({"delay": timedelta(hours=3)}, ClientError),
        ({"delay": 5, "delay_level": 2}, ClientError),
    ],
    ids=repr,
)
def test_retry_with_an_unusable_delay_is_refused(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="delay"):
        Retry(**options)


@pytest.mark.parametrize(
    ("given", "result", "delay_s"),
    [
        (Rejection(), 3, 3),
        (Rejection(), timedelta(seconds=4), 4),
        (Rejection(), 1e9, 7_200),
        (Rejection(), float("inf"), 7_200),
        (Rejection(), -1, None),
        (Rejection(), float("nan"), None),
        (Rejection(), "3", None),
        (Rejection(2), 3, None),
        (Rejection(-1), 3, None),
        (Rejection(delay_s=9), 3, 9),
    ],
    ids=repr,
)
def test_backoff_applies_to_rejections_without_a_delay(
    given: Rejection, result: Any, delay_s: float | None
) -> None:
    assert given.backed_off(lambda _: result, 1) == given._replace(delay_s=delay_s)


def test_backoff_that_raises_leaves_the_usual_delay() -> None:
    assert Rejection().backed_off(lambda retry: 1 / (retry - 1), 1) == Rejection()
