from rocketpy.broker.admin.stats import StatsAdmin
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_windows_of_a_counter(kit: Kit) -> None:
    kit.stats.inc_topic_put("T", 4, 400)
    kit.stats.step(kit.clock.mono_ms + 10_000)
    ext = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
    found = loads(ask(kit.admin(StatsAdmin).view, ext).body)
    assert found["statsMinute"] == {"avgpt": 4.0, "sum": 4, "tps": 0.4}
    assert found["statsDay"]["sum"] == 4


def test_unknown_counters_say_so(kit: Kit) -> None:
    response = ask(kit.admin(StatsAdmin).view, {"statsName": "A", "statsKey": "B"})
    assert (response.code, response.remark) == (1, "The stats <A> <B> not exist")
