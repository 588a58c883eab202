"""Numbers of waiting messages by topic, and their file."""

from typing import Any

import pytest

from rocketpy.broker.stats.pending_counts import WRITE_INTERVAL_MS, PendingCounts
from rocketpy.errors import DiskFullError
from rocketpy.testing.sim_clock import SimClock
from tests.unit.broker.fakes import MemoryFile

# As Apache 5.4.0 wrote it: a topic decided twice there has a number below 0.
APACHES: dict[str, Any] = {
    "dataVersion": {"counter": 11, "stateVersion": 0, "timestamp": 1795334431087},
    "transactionCount": {
        "T": {"count": 3, "timeStamp": 1795334429078},
        "SCHEDULE_TOPIC_XXXX": {"count": -1, "timeStamp": 1795334396391},
    },
}


class Kit:
    def __init__(self, value: Any = None) -> None:
        self.clock = SimClock()
        self.file = MemoryFile(value)
        self.topics = {"T", "Other", "SCHEDULE_TOPIC_XXXX"}
        self.counts = PendingCounts(
            "Counts",
            "transactionCount",
            self.file,
            topic_exists=self.topics.__contains__,
            clock=self.clock,
        )
        self.counts.load()


def test_pending_counts_add_and_subtract() -> None:
    kit = Kit()
    for number in (1, 1, -1):
        kit.clock.advance(10)
        kit.counts.add("T", number)
    kit.counts.add("Other", 1)
    assert [kit.counts.of(topic) for topic in ("T", "Other", "None")] == [1, 1, 0]
    now = kit.clock.time_ms()
    assert kit.counts.to_json() == {
        "dataVersion": {"counter": 4, "stateVersion": 0, "timestamp": now},
        "transactionCount": {
            "T": {"count": 1, "timeStamp": now},
            "Other": {"count": 1, "timeStamp": now},
        },
    }


def test_pending_counts_load_apache_file_and_never_go_below_zero() -> None:
    kit = Kit(APACHES)
    assert [kit.counts.of(topic) for topic in APACHES["transactionCount"]] == [3, 0]
    kit.counts.add("SCHEDULE_TOPIC_XXXX", -1)
    assert kit.counts.of("SCHEDULE_TOPIC_XXXX") == 0
    assert kit.counts.to_json()["dataVersion"]["counter"] == 12


@pytest.mark.parametrize("value", [None, [], {"transactionCount": {"T": 5}}, {"dataVersion": 1}])
def test_pending_counts_useless_file_counts_from_zero(value: Any) -> None:
    kit = Kit(value)
    kit.counts.add("T", 1)
    assert kit.counts.of("T") == 1


def test_pending_counts_changed_file_is_written_every_ten_seconds() -> None:
    kit = Kit()
    saves = []
    for changes in (0, 1, 0, 2):
        kit.counts.add("T", changes) if changes else None
        next_ms = kit.counts.step(kit.clock.monotonic_ms())
        assert next_ms - kit.clock.monotonic_ms() == WRITE_INTERVAL_MS
        saves.append(kit.file.saves)
        kit.clock.advance(WRITE_INTERVAL_MS)
    assert saves == [0, 1, 1, 2]
    kit.counts.persist()
    assert kit.file.saves == 2
    again = Kit(kit.file.value)
    assert again.counts.of("T") == 3
    assert again.counts.to_json() == kit.file.value


def test_pending_counts_deleted_topic_is_dropped() -> None:
    kit = Kit()
    kit.counts.add("T", 1)
    kit.counts.add("Other", 1)
    kit.topics.remove("T")
    kit.counts.persist()
    assert set(kit.file.value["transactionCount"]) == {"Other"}
    assert kit.counts.of("T") == 0


def test_pending_counts_full_disk_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()
    kit.counts.step(kit.clock.monotonic_ms())
    kit.counts.add("T", 1)
    with monkeypatch.context() as full:

        def refuse(_value: object) -> None:
            raise DiskFullError("no room")

        full.setattr(kit.file, "save", refuse)
        kit.clock.advance(WRITE_INTERVAL_MS)
        assert kit.counts.step(kit.clock.monotonic_ms()) > kit.clock.monotonic_ms()
        with pytest.raises(DiskFullError):
            kit.counts.persist()
    kit.clock.advance(WRITE_INTERVAL_MS)
    kit.counts.step(kit.clock.monotonic_ms())
    assert kit.file.value["transactionCount"]["T"]["count"] == 1
