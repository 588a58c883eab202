"""Statistics of the broker: windows, keys and daily totals."""

import time

import pytest

from rocketpy.broker.stats.broker_stats import BrokerStats


class FakeClock:
    def __init__(self, wall_ms: int = 1_795_000_000_000) -> None:
        self.wall_ms = wall_ms
        self.mono_ms = 5_000

    def time_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.mono_ms

    def advance(self, ms: int) -> int:
        self.wall_ms += ms
        self.mono_ms += ms
        return self.mono_ms


def make(clock: FakeClock | None = None) -> tuple[BrokerStats, FakeClock]:
    clock = clock or FakeClock()
    stats = BrokerStats(clock, cluster_name="C", is_system_topic=lambda topic: topic == "SYS")
    return stats, clock


def run(stats: BrokerStats, clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds):
        stats.step(clock.advance(1_000))


def test_stats_minute_window_covers_last_minute() -> None:
    stats, clock = make()
    stats.step(clock.mono_ms)
    stats.inc_topic_put("T", 30, 3_000)
    stats.inc_topic_put("T", 30, 3_000)
    run(stats, clock, 60)
    data = stats.stats_data("TOPIC_PUT_NUMS", "T")
    size = stats.stats_data("TOPIC_PUT_SIZE", "T")
    assert data is not None
    assert size is not None
    assert (data.minute.sum, size.minute.sum) == (60, 6_000)
    assert data.minute.avgpt == 30.0
    assert data.minute.tps == pytest.approx(1.0, rel=0.2)


def test_stats_hour_window_outlasts_minute_window() -> None:
    stats, clock = make()
    run(stats, clock, 1)
    stats.inc_topic_put("T", 7, 70)
    run(stats, clock, 620)
    data = stats.stats_data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.minute.sum == 0
    assert data.hour.sum == 7


def test_stats_day_window_is_sampled_every_hour() -> None:
    stats, clock = make()
    stats.step(clock.mono_ms)
    stats.inc_topic_put("T", 5, 5)
    stats.step(clock.advance(3_600_000))
    stats.inc_topic_put("T", 6, 6)
    stats.step(clock.advance(3_600_000))
    data = stats.stats_data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.day.sum == 11


def test_stats_group_counters_are_keyed_by_topic_and_group() -> None:
    stats, clock = make()
    stats.inc_get("G", "T", 3, 300)
    stats.inc_group_get_latency("G", "T", 2, 40)
    stats.inc_send_back("G", "T")
    stats.inc_dead_letter("G", "T", 2)
    run(stats, clock, 1)

    def total(name: str, key: str) -> int | None:
        data = stats.stats_data(name, key)
        return None if data is None else data.minute.sum

    assert total("GROUP_GET_NUMS", "T@G") == 3
    assert total("GROUP_GET_SIZE", "T@G") == 300
    assert total("GROUP_GET_LATENCY", "2@T@G") == 40
    assert total("SNDBCK_PUT_NUMS", "T@G") == 1
    assert total("DLQ_PUT_NUMS", "T@G") == 2
    assert stats.group_get_tps("G", "T") == pytest.approx(0.3)


def test_stats_broker_counters_are_keyed_by_cluster() -> None:
    stats, clock = make()
    stats.inc_broker_put(4)
    stats.inc_get("G", "T", 3, 10)
    run(stats, clock, 1)
    put = stats.stats_data("BROKER_PUT_NUMS", "C")
    got = stats.stats_data("BROKER_GET_NUMS", "C")
    assert put is not None
    assert got is not None
    assert (put.minute.sum, got.minute.sum) == (4, 3)


def test_stats_unknown_name_or_key_is_none() -> None:
    stats, _ = make()
    stats.inc_topic_put("T", 1, 1)
    assert stats.stats_data("NOPE", "T") is None
    assert stats.stats_data("TOPIC_PUT_NUMS", "other") is None


def test_stats_day_totals_skip_system_topics_and_move_at_midnight() -> None:
    noon = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
    clock = FakeClock(int(noon) * 1000)
    stats, _ = make(clock)
    stats.inc_topic_put("T", 10, 1)
    stats.inc_topic_put("SYS", 99, 1)
    stats.inc_get("G", "T", 4, 1)
    stats.step(clock.advance(24 * 3_600_000))
    stats.inc_topic_put("T", 5, 1)
    stats.step(clock.advance(24 * 3_600_000))
    stats.inc_topic_put("T", 1, 1)
    totals = stats.day_totals()
    assert (totals.put_now, totals.put_today_morning, totals.put_yesterday_morning) == (16, 15, 10)
    assert (totals.get_now, totals.get_today_morning, totals.get_yesterday_morning) == (4, 4, 4)


def test_stats_deleted_topic_or_group_is_removed() -> None:
    stats, _ = make()
    stats.inc_topic_put("T", 1, 1)
    stats.inc_get("G", "T", 1, 1)
    stats.inc_get("G", "U", 1, 1)
    stats.inc_get("H", "U", 1, 1)
    stats.inc_group_get_latency("G", "T", 0, 1)
    stats.inc_group_get_latency("G", "U", 0, 1)
    stats.remove_topic("T")
    assert stats.stats_data("TOPIC_PUT_NUMS", "T") is None
    assert stats.stats_data("GROUP_GET_NUMS", "T@G") is None
    assert stats.stats_data("GROUP_GET_LATENCY", "0@T@G") is None
    assert stats.stats_data("GROUP_GET_NUMS", "U@G") is not None
    stats.remove_group("G")
    assert stats.stats_data("GROUP_GET_NUMS", "U@G") is None
    assert stats.stats_data("GROUP_GET_LATENCY", "0@U@G") is None
    assert stats.stats_data("GROUP_GET_NUMS", "U@H") is not None


def test_stats_step_is_due_every_second() -> None:
    stats, clock = make()
    assert stats.step(clock.mono_ms) == clock.mono_ms + 1_000
