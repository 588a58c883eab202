"""Log of failed handlers: one traceback a kind, then counted lines."""

import logging

import pytest

from rocketpy.client.callbacks.failure_log import (
    _MAX_KINDS,
    LINE_INTERVAL_MS,
    TRACEBACK_INTERVAL_MS,
    FailureLog,
)
from rocketpy.testing.sim_clock import SimClock


def number_of(text: str) -> int:
    return int(text)


def failing(text: str) -> Exception:
    try:
        int(text)
    except ValueError as error:
        return error
    raise AssertionError


def failing_elsewhere() -> Exception:
    try:
        number_of("x")
    except ValueError as error:
        return error
    raise AssertionError


def counts(records: list[logging.LogRecord]) -> list[tuple[bool, int]]:
    """Whether each record has a traceback, and the failures it counts."""
    found = []
    for record in records:
        fields = record.args
        assert isinstance(fields, dict)
        found.append((record.exc_info is not None, fields["count"]))
    return found


def test_failures_of_one_kind_are_a_traceback_then_counted_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SimClock()
    log = FailureLog(clock)
    for number in range(1_000):
        log.note([], failing(f"x{number}"))
        clock.advance(10)
    assert counts(caplog.records) == [(True, 1), (False, LINE_INTERVAL_MS // 10)]
    assert "'x500'" in caplog.text


def test_failures_of_another_line_are_logged_with_their_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FailureLog(SimClock())
    for error in (failing("a"), failing("b"), failing_elsewhere()):
        log.note([], error)
    assert counts(caplog.records) == [(True, 1), (True, 1)]


def test_failures_after_a_long_time_have_a_traceback_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SimClock()
    log = FailureLog(clock)
    log.note([], failing("a"))
    log.note([], failing("b"))
    clock.advance(TRACEBACK_INTERVAL_MS)
    log.note([], failing("c"))
    assert counts(caplog.records) == [(True, 1), (True, 2)]


def test_number_of_kinds_is_bounded() -> None:
    log = FailureLog(SimClock())
    for number in range(_MAX_KINDS + 10):
        log.note([], type(f"E{number}", (Exception,), {})())
    assert len(log._kinds) == _MAX_KINDS


def test_failures_of_on_error_are_counted_apart(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(SimClock(), "on_error")
    log.note([], failing("a"))
    assert "callback=on_error" in caplog.text


def test_failures_that_are_answered_say_so(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(SimClock(), outcome="answered")
    log.note([], failing("a"))
    assert "outcome=answered" in caplog.text
