from collections.abc import Iterator

from rocketpy.namesrv.route_types import RouteLimits
from rocketpy.namesrv.topic_routes import TopicRoutes
from rocketpy.proto.bodies.route import QueueData


class CountingTopics(dict[str, object]):
    """Dictionary that counts lookups and iterations."""

    looks = 0

    def get(self, *arguments: object) -> object:
        self.looks += 1
        return super().get(*arguments)  # type: ignore[call-overload]

    def __getitem__(self, name: str) -> object:
        self.looks += 1
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self.looks += len(self)
        return super().__iter__()


def put(routes: TopicRoutes, broker_name: str, *topics: str) -> list[bool]:
    return [routes.put(topic, QueueData(broker_name, 4, 4, 6, 0)) for topic in topics]


def test_drop_broker_visits_only_its_topics() -> None:
    routes = TopicRoutes(RouteLimits())
    put(routes, "big", *(f"big{number}" for number in range(1_000)))
    for number in range(20):
        put(routes, f"small-{number}", "own", f"own{number}")
    counting = CountingTopics(routes._topics)
    routes._topics = counting  # type: ignore[assignment]
    for number in range(20):
        routes.drop_broker(f"small-{number}")
    assert counting.looks <= 100
    assert len(routes.topics()) == 1_000
    assert routes.change_perm(routes.of_broker("big"), "big", lambda _: 4) == 1_000
    assert routes.change_perm(["t1", "none"], "small-1", lambda _: 4) == 0


def test_drop_broker_frees_room_in_the_tables() -> None:
    routes = TopicRoutes(RouteLimits(max_topics=2, max_routes=3, max_mappings=1))
    assert put(routes, "a", "t1", "t2", "t3") == [True, True, False]
    assert put(routes, "b", "t1", "t2") == [True, False]
    routes.put_mappings([("t1", {"epoch": 1}), ("t2", {"epoch": 1}), ("t9", {})], "a")
    assert routes.mappings("t1") == {"a": {"epoch": 1}}
    assert routes.mappings("t2") == {}
    routes.drop_broker("a")
    assert routes.mappings("t1") == {}
    assert (list(routes.topics()), list(routes.of_broker("b"))) == (["t1"], ["t1"])
    routes.put_mappings([("t1", {"epoch": 2})], "b")
    assert routes.mappings("t1") == {"b": {"epoch": 2}}
    routes.drop(["t1", "unknown"], "b")
    assert list(routes.topics()) == []
    assert list(routes.of_broker("b")) == []
    assert put(routes, "c", "t1", "t2") == [True, True]
