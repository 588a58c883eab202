"""Progress of the delay levels: delayOffset.json."""

from typing import Any

from rocketpy.broker.delay.offsets import DelayOffsets
from tests.unit.broker.fakes import FakeClock, MemoryFile


class Kit:
    def __init__(self, content: Any = None) -> None:
        self.file = MemoryFile(content)
        self.clock = FakeClock()
        self.flushed = 0
        self.offsets = DelayOffsets(
            self.file,
            self.clock,
            interval_ms=10_000,
            version_step=200,
            kept_phy_offset=lambda: self.flushed,
            flush_log=self.flush_log,
        )
        self.offsets.load()

    def flush_log(self) -> bool:
        self.flushed = 1 << 40
        return True

    def step(self) -> int:
        return self.offsets.step(self.clock.monotonic_ms())


def test_delay_offsets_file_is_written_every_ten_seconds_with_durable_progress() -> None:
    kit = Kit()
    kit.step()
    kit.offsets.of_level(2).advance(7, 500)
    kit.clock.now_ms += 9_999
    kit.step()
    assert kit.file.saves == 0
    kit.clock.now_ms += 1
    kit.step()
    assert kit.file.value["offsetTable"] == {2: 0}
    kit.flushed = 500
    kit.clock.now_ms += 10_000
    kit.step()
    assert kit.file.value["offsetTable"] == {2: 7}
    kit.clock.now_ms += 10_000
    kit.step()
    assert kit.file.saves == 2, "nothing changed"


def test_delay_offsets_last_write_contains_all_deliveries() -> None:
    kit = Kit()
    kit.offsets.of_level(1).advance(3, 999)
    kit.offsets.persist()
    assert kit.file.value["offsetTable"] == {1: 3}


def test_delay_offsets_version_counts_deliveries() -> None:
    kit = Kit()
    for _ in range(199):
        kit.offsets.count(1)
    assert kit.offsets.to_json()["dataVersion"]["counter"] == 0
    kit.offsets.count(1)
    assert kit.offsets.to_json()["dataVersion"]["counter"] == 1


def test_delay_offsets_load_continues_and_skips_invalid_entries() -> None:
    version = {"counter": 4, "stateVersion": 0, "timestamp": 12}
    table = {"1": 4, "18": 0, "x": 3, "0": 3, "2": -5, "3": "?", "99999999": 1}
    kit = Kit({"dataVersion": version, "offsetTable": table})
    assert kit.offsets.levels == [1, 18]
    assert kit.offsets.of_level(1).position == 4
    assert kit.offsets.to_json() == {"dataVersion": version, "offsetTable": {1: 4, 18: 0}}
