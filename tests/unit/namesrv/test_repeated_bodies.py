"""Registrations that arrive again are not read again, as long as that changes nothing."""

from typing import Any

import pytest

from rocketpy.namesrv import registration
from rocketpy.namesrv.processor import brokers
from rocketpy.namesrv.processor.topics import TopicProcessor
from rocketpy.namesrv.route_types import BrokerKey
from rocketpy.proto.bodies.topic import DataVersion

NAMES = [f"topic-{number}" for number in range(60)]
KEY = BrokerKey("c1", "10.0.0.1:10911")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the bodies that were read."""
    sizes: list[int] = []
    read = registration.read_topics

    def counted(body: bytes, version: int) -> Any:
        sizes.append(len(body))
        return read(body, version)

    monkeypatch.setattr(brokers, "read_topics", counted)
    return sizes


def test_registration_repeated_unchanged_is_read_once_and_keeps_the_broker(
    world: Any, reads: list[int]
) -> None:
    first = world.register(*NAMES)
    world.clock.now_ms += 100_000
    again = world.register(*NAMES)
    assert len(reads) == 1
    assert (again.code, again.ext_fields) == (first.code, first.ext_fields)
    world.clock.now_ms += 100_000
    assert world.routes.expire(world.clock.monotonic_ms()) == []
    assert world.routes.route(NAMES[-1]) is not None
    assert world.routes.data_version(KEY) == DataVersion(timestamp=1, counter=len(NAMES))


def test_registration_with_another_topic_is_read(world: Any, reads: list[int]) -> None:
    world.register(*NAMES)
    world.register(*NAMES, "new")
    assert len(reads) == 2
    assert world.routes.route("new") is not None


def test_registration_restores_a_topic_that_was_deleted_at_the_name_server(
    world: Any, reads: list[int]
) -> None:
    world.register(*NAMES)
    topics = TopicProcessor(world.routes, world.settings, world.repeats)
    assert world.ask(topics.delete, topic=NAMES[3]).code == 0
    assert world.routes.route(NAMES[3]) is None
    world.register(*NAMES)
    assert len(reads) == 2
    assert world.routes.route(NAMES[3]) is not None


def test_registration_on_another_connection_is_read(world: Any, reads: list[int]) -> None:
    world.register(*NAMES)
    world.routes.connection_closed(world.channel)
    world.channel = type(world.channel)()
    world.register(*NAMES)
    assert len(reads) == 2
    assert world.routes.route(NAMES[0]) is not None


def test_registration_of_a_slave_is_read_each_time(world: Any, reads: list[int]) -> None:
    for _ in range(2):
        world.register(*NAMES, brokerId="1", enableActingMaster="true")
    assert len(reads) == 2


def test_registrations_of_many_brokers_are_bounded(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketpy.namesrv.repeated_bodies._MOST_BROKERS", 5)
    for number in range(20):
        world.register(*NAMES, brokerName=f"b{number}", brokerAddr=f"10.0.1.{number}:10911")
        assert len(world.repeats._applied) <= 5
