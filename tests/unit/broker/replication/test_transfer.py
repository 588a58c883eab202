"""Pace of a transfer: frames, flow control, and the share of a catch-up."""

import pytest

from rocketpy.broker.replication.transfer import AppendRate, TransferPace

MIB = 1 << 20


def active(bytes_per_s: int) -> AppendRate:
    rate = AppendRate()
    for second in range(60):
        rate.sample(second * bytes_per_s, second * 1_000)
    return rate


def pace(rate: AppendRate | None = None, limit: int | None = None) -> TransferPace:
    return TransferPace(
        rate or AppendRate(), batch_bytes=32 << 10, max_frame_bytes=4 * MIB, limit_bytes_per_s=limit
    )


def test_append_rate_follows_the_log() -> None:
    rate = active(1_000_000)
    assert rate.bytes_per_s == pytest.approx(1_000_000, rel=0.01)
    assert rate.is_active
    for second in range(60, 80):
        rate.sample(59_000_000, second * 1_000)
    assert not rate.is_active


def test_close_follower_gets_batches_at_once() -> None:
    found = pace(active(10 * MIB))

    assert found.frame_bytes(100) == 100
    assert found.frame_bytes(MIB) == 32 << 10
    found.sent(100, 100, 0.001, 5.0)
    assert found.wait_s(5.0) == 0


def test_catch_up_gets_larger_frames() -> None:
    assert pace().frame_bytes(100 * MIB) == MIB


def test_frames_fit_a_peer_with_small_ones() -> None:
    found = TransferPace(AppendRate(), batch_bytes=32 << 10, max_frame_bytes=32 << 10)

    assert found.frame_bytes(100 * MIB) == 32 << 10


def test_catch_up_uses_a_tenth_of_the_time_while_clients_send() -> None:
    found = pace(active(10_000))
    found.sent(512 << 10, 100 * MIB, 0.002, 5.0)

    assert found.wait_s(5.0) == pytest.approx(0.018)
    assert found.wait_s(5.018) == 0


def test_catch_up_is_faster_than_the_clients() -> None:
    found = pace(active(50 * MIB))
    found.sent(MIB, 100 * MIB, 0.01, 5.0)
    assert found.wait_s(5.0) == pytest.approx(1 / (50 * 1.25) - 0.01, rel=0.05)

    found.sent(MIB, 100 * MIB, 0.1, 6.0)
    assert found.wait_s(6.0) == 0  # a busy machine is slow enough


def test_catch_up_is_not_limited_while_no_client_sends() -> None:
    found = pace()
    found.sent(512 << 10, 100 * MIB, 0.1, 5.0)

    assert found.wait_s(5.0) == 0


def test_flow_control_waits_for_the_next_second() -> None:
    found = pace(limit=40_000)
    assert found.wait_s(5.25) == 0
    found.sent(found.frame_bytes(MIB), MIB, 0.0, 5.25)
    assert found.frame_bytes(MIB) == 40_000 - (32 << 10)
    found.sent(found.frame_bytes(MIB), MIB, 0.0, 5.5)

    assert found.wait_s(5.5) == pytest.approx(0.5)
    assert found.wait_s(6.0) == 0
    assert found.bytes_per_s == 40_000


def test_rate_of_an_idle_second_is_zero() -> None:
    found = pace()
    found.sent(100, 100, 0.0, 5.0)
    found.wait_s(7.0)

    assert found.bytes_per_s == 0
