"""SQL92 filters of groups: their life, and Apache's file of them."""

from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters import consumer_filters
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.errors import DiskFullError
from rocketpy.proto.subscription import SubscriptionData, build_subscription
from rocketpy.proto.wire import fastjson
from rocketpy.store.files.json_file import dump_pretty
from tests.unit.broker.fakes import FakeClock, MemoryFile

VECTOR = Path(__file__).parents[3] / "vectors" / "config" / "consumerFilter.json"
DAY_MS = 24 * 3600 * 1000


class Kit:
    def __init__(self, file: MemoryFile | None = None, **bounds: Any) -> None:
        self.file = file or MemoryFile()
        self.clock = FakeClock()
        self.filters = ConsumerFilters(
            BrokerConfig(broker_name="b"), self.file, self.clock, **bounds
        )


def sql(topic: str, condition: str, version: int = 1) -> SubscriptionData:
    return build_subscription(topic, condition, "SQL92", sub_version=version)


def condition(filters: ConsumerFilters, topic: str = "T") -> str | None:
    found = filters.get(topic, "g")
    return None if found is None else found.condition.expression


def test_consumer_filters_file_round_trips_in_apache_format() -> None:
    file = MemoryFile()
    file.value = fastjson.loads(VECTOR.read_bytes())
    kit = Kit(file)
    kit.filters.load()
    known = kit.filters.get("VecSql", "vec_sql_group")
    assert known is not None
    assert known.condition.matches({"a": "4"})
    assert known.is_dead
    assert dump_pretty(kit.filters.to_json()) == VECTOR.read_text()


def test_consumer_filters_restart_marks_filters_dead_until_heartbeat() -> None:
    kit = Kit()
    kit.filters.register("g", [sql("T", "a > 5")])
    kit.filters.persist()
    kit.clock.now_ms += 60_000
    again = Kit(kit.file)
    again.clock.now_ms = kit.clock.now_ms
    again.filters.load()
    known = again.filters.get("T", "g")
    assert known is not None
    assert known.dead_ms == again.clock.time_ms() - 30_000
    again.filters.register("g", [sql("T", "a > 5")])
    assert not known.is_dead


def test_consumer_filters_newest_subscription_wins() -> None:
    filters = Kit().filters
    filters.register("g", [sql("T", "a > 5", version=5)])
    filters.register("g", [sql("T", "a > 4", version=4)])
    filters.register("g", [sql("T", "a > 6", version=5)])
    assert condition(filters) == "a > 5"
    filters.register("g", [sql("T", "a > 7", version=6)])
    assert condition(filters) == "a > 7"
    filters.register("g", [sql("T", "a >", version=7)])
    assert condition(filters) is None, "the group is told by its next pull"


def test_consumer_filters_dropped_filter_is_removed_after_a_day() -> None:
    kit = Kit()
    kit.filters.register("g", [sql("T", "a > 5"), sql("U", "a > 5")])
    kit.filters.register("g", [sql("T", "a > 5"), build_subscription("U", "x")])
    gone = kit.filters.get("U", "g")
    assert gone is not None
    assert gone.is_dead
    kit.clock.now_ms += DAY_MS - 1
    kit.filters.step(0)
    assert kit.filters.get("U", "g") is gone
    kit.clock.now_ms += 1
    kit.filters.step(0)
    assert kit.filters.get("U", "g") is None
    kit.filters.unregister("g")
    kit.clock.now_ms += DAY_MS
    kit.filters.step(0)
    assert kit.filters.get("T", "g") is None
    assert kit.filters.size_bytes == 0
    assert kit.file.value == {"filterDataByTopic": {}}


def test_consumer_filters_changed_file_is_written_and_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    kit.filters.step(0)
    assert kit.file.saves == 0
    kit.filters.register("g", [sql("T", "a > 5")])
    with monkeypatch.context() as patch:

        def full(_value: object) -> None:
            raise DiskFullError("no space")

        patch.setattr(kit.file, "save", full)
        with pytest.raises(DiskFullError):
            kit.filters.step(0)
    assert kit.filters.step(1) == 1 + consumer_filters.PERSIST_INTERVAL_MS
    assert "T" in kit.file.value["filterDataByTopic"]


def test_consumer_filters_full_table_removes_dead_filters() -> None:
    kit = Kit(max_filters=2)
    kit.filters.register("g", [sql("T", "a > 5"), sql("U", "a > 5")])
    kit.filters.register("g", [sql("T", "a > 5"), sql("U", "a > 5"), sql("V", "a > 5")])
    assert kit.filters.get("V", "g") is None
    kit.filters.register("g", [sql("U", "a > 5")])
    kit.filters.register("g", [sql("U", "a > 5"), sql("V", "a > 5")])
    assert kit.filters.get("V", "g") is not None
    assert kit.filters.get("T", "g") is None
    small = Kit(max_bytes=10_000).filters
    small.register("g", [sql("T", "a = '" + "x" * 10_000 + "'")])
    assert small.get("T", "g") is None
    assert small.size_bytes == 0


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"filterDataByTopic": {"T": None}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {"expressionType": "SQL92"}}}}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {
            "topic": "T", "consumerGroup": "g", "expression": "a >", "expressionType": "SQL92",
            "bloomFilterData": {"bitNum": 112, "bitPos": [1, 2, 3]}}}}}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {
            "topic": "T", "consumerGroup": "g", "expression": "a > 1", "expressionType": "SQL92",
            "bloomFilterData": {"bitNum": 64, "bitPos": [1, 2, 3]}}}}}},
    ],
)  # fmt: skip
def test_consumer_filters_invalid_file_is_empty(content: Any) -> None:
    file = MemoryFile()
    file.value = content
    kit = Kit(file)
    kit.filters.load()
    assert kit.filters.to_json() == {"filterDataByTopic": {}}
