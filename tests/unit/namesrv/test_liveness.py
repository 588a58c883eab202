from typing import Any

from rocketpy.namesrv.liveness import Liveness


def test_liveness_removes_inactive_brokers_and_schedules_the_next_scan(
    world: Any, events: list[Any]
) -> None:
    world.register()
    service = Liveness(world.routes, 5_000)
    assert service.step(100_000) == 105_000
    assert world.routes.topics() == ["t1", "t2"]
    assert service.step(121_001) == 126_001
    assert world.routes.topics() == []
    assert [each["event"] for each in events if each["event"] == "broker expired"]
