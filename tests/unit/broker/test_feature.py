"""A feature as masters and slaves run it."""

from rocketpy.broker.feature import Feature


class Part:
    """A service and a state."""

    name = "Part"

    def step(self, now_ms: int) -> int:
        return now_ms

    def load(self) -> None:
        return

    def persist(self) -> None:
        return


def test_feature_of_a_slave_lacks_what_stores_messages() -> None:
    reads, stores, loops = Part(), Part(), Part()
    feature = Feature(
        name="f",
        services=(reads, stores),
        loop_services=(loops,),
        states=(stores, reads),
        masters_only=(stores, loops),
    )
    slave = feature.of_slave()
    assert slave.services == (reads,)
    assert slave.loop_services == ()
    assert slave.states == (reads,)
    assert feature.services == (reads, stores)
