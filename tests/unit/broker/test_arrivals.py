"""The store's listener of arriving messages."""

import pytest

from rocketpy.broker.feature import Feature, arrival_listener


def test_arrival_listener_notifies_feature_before_pulls() -> None:
    told: list[object] = []
    features = [Feature(name="a", arrivals={"S": told.append}), Feature(name="b")]
    on_arrival = arrival_listener(features, lambda *arrival: told.append(arrival))
    on_arrival("T", 1, 2, 3)
    on_arrival("S", 4, 5, 6)
    assert told == [("T", 1, 2, 3), 4, ("S", 4, 5, 6)]


def test_arrival_listener_failing_pulls_do_not_affect_feature() -> None:
    told: list[int] = []

    def fail(*_: object) -> None:
        raise ValueError("simulated")

    on_arrival = arrival_listener([Feature(name="a", arrivals={"S": told.append})], fail)
    with pytest.raises(ValueError, match="simulated"):
        on_arrival("S", 4, 5, 6)
    assert told == [4]
