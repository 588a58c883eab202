import pytest

from rocketpy.remoting.network.admission import Admission
from tests.unit.remoting.fakes import ManualClock


def test_admission_total_limit_refuses_connection(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission(2, 0, ManualClock())
    assert admission.admit("1.1.1.1")
    assert admission.admit("1.1.1.1")
    assert not admission.is_over
    assert admission.admit("2.2.2.2")
    assert admission.is_over
    admission.refuse("2.2.2.2")
    assert "2 connections are open (serverMaxConnections)" in caplog.text
    assert not admission.is_over
    assert admission.count == 2


def test_admission_limit_by_address_refuses_connection(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission(0, 1, ManualClock())
    assert admission.admit("1.1.1.1")
    assert not admission.admit("1.1.1.1")
    assert "1 connections from 1.1.1.1" in caplog.text
    assert admission.admit("2.2.2.2")
    admission.release("1.1.1.1")
    assert admission.admit("1.1.1.1")


def test_admission_without_limits_admits_all() -> None:
    admission = Admission(0, 0, ManualClock())
    assert all(admission.admit("1.1.1.1") for _ in range(1000))
    for _ in range(1000):
        admission.release("1.1.1.1")
    assert admission.count == 0
    assert admission._by_ip == {}


def test_admission_refusals_are_logged_once_a_second_with_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    admission = Admission(0, 1, clock)
    assert admission.admit("1.1.1.1")
    for _ in range(5):
        assert not admission.admit("1.1.1.1")
    assert caplog.text.count("connections refused") == 1
    clock.now += 1_000
    assert not admission.admit("1.1.1.1")
    assert "connections refused: count=5" in caplog.text
