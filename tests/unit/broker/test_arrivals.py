"""Who is told of a message that came."""

import pytest

from rocketpy.broker.feature import Feature
from rocketpy.broker.parts import arrival_listener


def test_a_capability_is_told_of_its_topics_before_pulls_are_told_of_all() -> None:
    told: list[object] = []
    features = [Feature(name="a", arrivals={"S": told.append}), Feature(name="b")]
    on_arrival = arrival_listener(features, lambda *arrival: told.append(arrival))
    on_arrival("T", 1, 2, 3)
    on_arrival("S", 4, 5, 6)
    assert told == [("T", 1, 2, 3), 4, ("S", 4, 5, 6)]


def test_a_capability_is_told_whatever_pulls_raise() -> None:
    told: list[int] = []

    def fail(*_: object) -> None:
        raise ValueError("simulated")

    on_arrival = arrival_listener([Feature(name="a", arrivals={"S": told.append})], fail)
    with pytest.raises(ValueError, match="simulated"):
        on_arrival("S", 4, 5, 6)
    assert told == [4]
