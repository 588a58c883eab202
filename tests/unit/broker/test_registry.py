from typing import Any

from rocketpy.broker.registry import ClientChannel, ConsumerGroup, ConsumerTable, ProducerTable
from rocketpy.proto.subscription import build_subscription
from tests.unit.broker.fakes import FakeChannel


def client(channel: Any, name: str = "c", now_ms: int = 1000) -> ClientChannel:
    return ClientChannel(channel, name, 0, 493, now_ms)


def register(table: ConsumerTable, one: ClientChannel, *topics: str, version: int = 1) -> bool:
    return table.register(
        "g",
        one,
        [build_subscription(topic, "*", sub_version=version) for topic in topics],
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
    )


def test_producers_come_and_go() -> None:
    table = ProducerTable()
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    table.register("p", client(first, "a"))
    table.register("p", client(second, "b"))
    table.register("q", client(second, "b"))
    assert [one.client_id for one in table.clients("p")] == ["a", "b"]
    found = table.find_client("b")
    assert found is not None
    assert found.channel is second
    table.unregister("p", first)  # type: ignore[arg-type]
    table.forget_channel(second)  # type: ignore[arg-type]
    assert table.groups() == {}


def test_silent_clients_expire() -> None:
    producers, consumers = ProducerTable(), ConsumerTable()
    old, new = FakeChannel(port=1), FakeChannel(port=2)
    for channel, seen_ms in ((old, 1_000), (new, 50_000)):
        producers.register("p", client(channel, str(seen_ms), seen_ms))
        register(consumers, client(channel, str(seen_ms), seen_ms), "T")
    assert producers.expire(2_000) == [old]
    assert consumers.expire(2_000) == [old]
    group = consumers.group("g")
    assert group is not None
    assert group.client_ids() == ["50000"]


def test_members_and_topics_that_change_are_reported() -> None:
    table = ConsumerTable()
    reports: list[ConsumerGroup] = []
    table.on_change = reports.append
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    assert register(table, client(first, "a"), "T")
    assert not register(table, client(first, "a"), "T"), "a plain heartbeat is no change"
    assert register(table, client(second, "b"), "T")
    assert register(table, client(second, "b"), "T", "U"), "a new topic"
    assert register(table, client(second, "b"), "U"), "a topic less"
    assert len(reports) == 4
    table.forget_channel(first)  # type: ignore[arg-type]
    table.unregister("g", second)  # type: ignore[arg-type]
    assert len(reports) == 6
    assert table.group("g") is None


def test_an_older_subscription_does_not_replace_a_newer_one() -> None:
    table = ConsumerTable()
    one = client(FakeChannel())
    register(table, one, "T", version=5)
    register(table, one, "T", version=4)
    found = table.subscription("g", "T")
    assert found is not None
    assert found.sub_version == 5
    register(table, one, "T", version=6)
    found = table.subscription("g", "T")
    assert found is not None
    assert found.sub_version == 6


def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    table = ConsumerTable()
    one = client(FakeChannel())
    register(table, one, "T")
    changed = table.register(
        "g", one, None, consume_type="", message_model="CLUSTERING", consume_from_where=""
    )
    assert not changed
    assert table.subscription("g", "T") is not None
    assert table.groups_of_topic("T") == {"g"}


def test_connections_and_tables_have_room_for_so_many_groups() -> None:
    producers, consumers = ProducerTable(2, 3), ConsumerTable(2, 3)
    one, two = FakeChannel(port=1), FakeChannel(port=2)
    for table in (producers, consumers):
        assert table.has_room(one, {"a", "b"})  # type: ignore[arg-type]
        assert not table.has_room(one, {"a", "b", "c"})  # type: ignore[arg-type]
    for group in ("a", "b", "a"):
        producers.register(group, client(one))
    assert producers.has_room(one, {"a", "b"})  # type: ignore[arg-type]
    assert not producers.has_room(one, {"c"})  # type: ignore[arg-type]
    producers.register("a", client(two))
    assert not producers.has_room(two, {"b"})  # type: ignore[arg-type]
    producers.unregister("b", one)  # type: ignore[arg-type]
    assert producers.has_room(two, {"b"})  # type: ignore[arg-type]
    producers.forget_channel(one)  # type: ignore[arg-type]
    producers.forget_channel(two)  # type: ignore[arg-type]
    assert producers._memberships.count == 0
    register(consumers, client(one), "T")
    assert consumers._memberships.count == 1
    consumers.expire(5_000)
    assert consumers._memberships.count == 0
