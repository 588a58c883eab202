"""Signals that stop a process."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketpy.runtime.stop_signals import stop_signals


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_hang_up_stops_a_process_unless_it_is_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert stop_signals() == (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert stop_signals() == (signal.SIGTERM, signal.SIGINT)


def test_platform_without_hang_up_has_two_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    assert stop_signals() == (signal.SIGTERM, signal.SIGINT)
    monkeypatch.undo()


def test_stop_signals_of_a_thread_that_takes_no_handlers_are_none() -> None:
    with ThreadPoolExecutor(1) as other:
        assert other.submit(stop_signals).result() == ()
