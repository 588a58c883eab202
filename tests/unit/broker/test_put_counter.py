from rocketpy.broker.put_counter import PutCounter
from rocketpy.broker.stats import BrokerStats
from tests.unit.broker.fakes import FakeClock


def test_counts_are_handed_on_once() -> None:
    stats = BrokerStats(FakeClock())
    tally = PutCounter(stats)
    tally.add("T", 1, 100)
    tally.add("T", 2, 200)
    tally.add("U", 1, 50)
    assert stats.day_totals().put_now == 0
    assert tally.step(1_000) > 1_000
    assert stats.day_totals().put_now == 4
    tally.hand_on()
    assert stats.day_totals().put_now == 4
