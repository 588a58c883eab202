from rocketpy.store.stats import SampleService, StoreStats
from rocketpy.testing.sim_clock import SimClock


def test_puts_fall_into_apaches_ranges() -> None:
    stats = StoreStats(SimClock())
    stats.put_count = 10  # those below a millisecond are only counted
    for elapsed_ms in (1, 10, 11, 700, 20_000):
        stats.put_took(elapsed_ms)
    found = {name: count for name, count in stats.put_distribution().items() if count}
    assert found == {
        "[<=0ms]": 5,
        "[0~10ms]": 2,
        "[10~50ms]": 1,
        "[500ms~1s]": 1,
        "[10s~]": 1,
    }
    assert stats.put_max_ms == 20_000
    assert sum(stats.put_distribution().values()) == stats.put_count


def test_rates_are_of_the_last_10_60_and_600_seconds() -> None:
    clock = SimClock()
    stats = StoreStats(clock)
    service = SampleService(stats)
    for second in range(700):
        stats.put_count += 100 if second >= 690 else 1
        clock.advance(1_000)
        assert service.step(clock.monotonic_ms()) == clock.monotonic_ms() + 1_000
    ten, sixty, six_hundred = map(float, stats.rates("put").split())
    assert (ten, sixty) == (100.0, (10 * 100 + 50) / 60)
    assert six_hundred == (10 * 100 + 590) / 600


def test_rates_of_young_store_use_available_samples() -> None:
    clock = SimClock()
    stats = StoreStats(clock)
    assert stats.rates("put") == "0.0 0.0 0.0"
    stats.got(3, 5)
    stats.got(0, 2)
    clock.advance(2_000)
    stats.sample()
    info = stats.runtime_info()
    assert info["getFoundTps"] == "0.5 0.5 0.5"
    assert info["getTotalTps"] == "1.0 1.0 1.0"
    assert info["getTransferredTps"] == "1.5 1.5 1.5"
    assert info["getMessageEntireTimeMax"] == "5"


def test_runtime_info_adds_up() -> None:
    clock = SimClock()
    stats = StoreStats(clock)
    stats.put_count, stats.put_bytes = 4, 400
    stats.put_failed()
    stats.put_took(30)
    clock.advance(90_061_000)
    info = stats.runtime_info()
    assert info["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert info["putMessageAverageSize"] == "100.0"
    assert info["putMessageFailedTimes"] == "1"
    assert info["putLatency99"] == "50"
