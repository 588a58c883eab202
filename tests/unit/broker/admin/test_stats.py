"""Counters for administration tools."""

from rocketpy.broker.admin.stats import StatsAdmin
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_stats_view_returns_windows(kit: Kit) -> None:
    kit.stats.inc_topic_put("T", 4, 400)
    kit.stats.step(kit.clock.mono_ms + 10_000)
    ext = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
    found = loads(ask(kit.admin(StatsAdmin).view, ext).body)
    assert found["statsMinute"] == {"avgpt": 4.0, "sum": 4, "tps": 0.4}
    assert found["statsDay"]["sum"] == 4


def test_stats_view_of_unknown_counter_is_refused(kit: Kit) -> None:
    response = ask(kit.admin(StatsAdmin).view, {"statsName": "A", "statsKey": "B"})
    assert (response.code, response.remark) == (1, "The stats <A> <B> not exist")
