from rocketpy.namesrv.notifier import notice, receivers
from rocketpy.namesrv.route_types import MinBrokerChange


def test_receivers_after_a_broker_left_are_all_others() -> None:
    change = MinBrokerChange("b", {1: "h1:1", 2: "h2:1"}, "h0:1", "h1:2")
    assert receivers(change) == ["h1:1", "h2:1"]
    request = notice(change)
    assert request.is_oneway
    assert request.code == 905
    assert request.ext_fields == {
        "minBrokerId": "1",
        "brokerName": "b",
        "minBrokerAddr": "h1:1",
        "offlineBrokerAddr": "h0:1",
        "haBrokerAddr": "h1:2",
    }


def test_receivers_after_a_broker_joined_are_the_others() -> None:
    change = MinBrokerChange("b", {0: "h0:1", 1: "h1:1"})
    assert receivers(change) == ["h1:1"]
    assert "offlineBrokerAddr" not in notice(change).ext_fields
    assert receivers(MinBrokerChange("b", {0: "h0:1"})) == ["h0:1"]
