"""The buffer of message counts."""

import threading

import pytest

from rocketpy.broker.stats.broker_stats import BrokerStats, DayTotals
from rocketpy.broker.stats.message_counter import MessageCounter
from tests.unit.broker.fakes import FakeClock


def test_message_counter_forwards_counts_once() -> None:
    stats = BrokerStats(FakeClock())
    tally = MessageCounter(stats)
    tally.add("T", 1, 100)
    tally.add("T", 2, 200)
    tally.add("U", 1, 50)
    assert stats.day_totals().put_now == 0
    assert tally.step(1_000) > 1_000
    assert stats.day_totals().put_now == 4
    tally.hand_on()
    assert stats.day_totals().put_now == 4


def test_message_counter_forwards_reads_once() -> None:
    clock = FakeClock()
    stats = BrokerStats(clock)
    tally = MessageCounter(stats)
    tally.inc_get("G", "T", 3, 300)
    tally.inc_get("G", "T", 2, 200, times=4)
    tally.inc_get("H", "T", 1, 10)
    assert stats.day_totals().get_now == 0
    tally.hand_on()
    tally.hand_on()
    assert stats.day_totals().get_now == 6
    taken, size = (stats.stats_data(name, "T@G") for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"))
    assert taken is not None
    assert size is not None
    assert stats._group_get._counters["T@G"].times == 5
    assert stats._group_get.totals("T@G") == (5, 500)
    assert stats._group_get.totals("T@H") == (1, 10)


def test_message_counter_buffered_counts_do_not_restore_deleted_names() -> None:
    stats = BrokerStats(FakeClock())
    tally = MessageCounter(stats)
    tally.inc_get("G", "T", 3, 300)
    tally.add("T", 1, 1)
    stats.remove_topic("T")
    tally.inc_get("G", "U", 3, 300)
    stats.remove_group("G")
    tally.hand_on()
    assert stats._group_get.keys() == []
    assert stats._topic_put.keys() == []
    assert stats.day_totals() == DayTotals(1, 0, 0, 6, 0, 0)


def test_message_counter_removal_waits_for_concurrent_forwarding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise they would bring back what was removed meanwhile."""
    stats = BrokerStats(FakeClock())
    tally = MessageCounter(stats)
    tally.add("T", 1, 1)
    tally.inc_get("G", "T", 1, 1)
    count_put, hand_on = stats.inc_topic_put, tally.hand_on
    begun, asked = threading.Event(), threading.Event()

    def slow(topic: str, count: int, size_bytes: int) -> None:
        begun.set()
        assert asked.wait(10)
        count_put(topic, count, size_bytes)

    def ask() -> None:
        asked.set()
        hand_on()

    monkeypatch.setattr(stats, "inc_topic_put", slow)
    monkeypatch.setattr(stats, "before_removal", ask)
    service = threading.Thread(target=hand_on)
    service.start()
    assert begun.wait(10)
    stats.remove_topic("T")
    service.join()
    assert stats._topic_put.keys() == []
    assert stats._group_get.keys() == []
    assert stats.day_totals() == DayTotals(1, 0, 0, 1, 0, 0)


def test_message_counter_count_after_deletion_is_in_totals_only() -> None:
    """A put counts its message slightly later, while another thread may delete the topic."""
    stats = BrokerStats(FakeClock())
    topics, groups = {"T", "U"}, {"G", "H"}
    tally = MessageCounter(
        stats, topic_exists=topics.__contains__, group_exists=groups.__contains__
    )
    topics.remove("T")
    stats.remove_topic("T")
    groups.remove("G")
    stats.remove_group("G")
    tally.add("T", 1, 1)
    tally.add("U", 1, 1)
    for group in ("G", "H"):
        for topic in ("T", "U"):
            tally.inc_get(group, topic, 3, 300)
    tally.hand_on()
    assert stats._topic_put.keys() == ["U"]
    assert stats._group_get.keys() == ["U@H"]
    assert stats.day_totals() == DayTotals(2, 0, 0, 12, 0, 0)
