"""Tables of connected producers and consumers."""

from typing import Any

from rocketpy.broker.clients.client_registry import (
    ClientChannel,
    ConsumerGroup,
    ConsumerTable,
    ProducerTable,
    subscription_bytes,
)
from rocketpy.broker.clients.memberships import Memberships
from rocketpy.proto.subscription import build_subscription
from rocketpy.remoting.connection.channel import Channel
from tests.unit.broker.fakes import FakeChannel


def client(channel: Any, name: str = "c", now_ms: int = 1000) -> ClientChannel:
    return ClientChannel(channel, name, 0, 493, 0, now_ms)


def channel_of(fake: Any) -> Channel:
    """Identity of a fake channel in the tables."""
    channel: Channel = fake
    return channel


def register(table: ConsumerTable, one: ClientChannel, *topics: str, version: int = 1) -> bool:
    return table.register(
        "g",
        one,
        [build_subscription(topic, "*", sub_version=version) for topic in topics],
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
    )


def test_producers_register_and_unregister() -> None:
    table = ProducerTable()
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    table.register("p", client(first, "a"))
    table.register("p", client(second, "b"))
    table.register("q", client(second, "b"))
    assert [one.client_id for one in table.clients("p")] == ["a", "b"]
    found = table.find_client("b")
    assert found is not None
    assert found.channel is channel_of(second)
    table.unregister("p", first)  # type: ignore[arg-type]
    table.forget_channel(second)  # type: ignore[arg-type]
    assert table.groups() == {}


def test_clients_silent_client_expires() -> None:
    producers, consumers = ProducerTable(), ConsumerTable()
    old, new = FakeChannel(port=1), FakeChannel(port=2)
    for channel, seen_ms in ((old, 1_000), (new, 50_000)):
        producers.register("p", client(channel, str(seen_ms), seen_ms))
        register(consumers, client(channel, str(seen_ms), seen_ms), "T")
    assert producers.expire(2_000) == [channel_of(old)]
    assert consumers.expire(2_000) == [channel_of(old)]
    group = consumers.group("g")
    assert group is not None
    assert group.client_ids() == ["50000"]


def test_consumers_changed_members_or_topics_are_reported() -> None:
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


def test_consumers_older_subscription_does_not_replace_newer() -> None:
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


def test_consumers_heartbeat_without_subscriptions_keeps_them() -> None:
    table = ConsumerTable()
    one = client(FakeChannel())
    register(table, one, "T")
    changed = table.register(
        "g", one, None, consume_type="", message_model="CLUSTERING", consume_from_where=""
    )
    assert not changed
    assert table.subscription("g", "T") is not None
    assert table.groups_of_topic("T") == {"g"}


def test_clients_groups_of_a_connection_are_bounded() -> None:
    for table in (ProducerTable(Memberships(2)), ConsumerTable(Memberships(2))):
        channel: Any = FakeChannel()
        assert table.make_room(channel, {"a": 1, "b": 1})
        assert not table.make_room(channel, {"a": 1, "b": 1, "c": 1})
        assert channel.is_open


def test_clients_full_table_closes_largest_connection() -> None:
    table = ProducerTable(Memberships(max_members=10))
    greedy, modest, third = (FakeChannel(port=port) for port in range(3))
    for number in range(9):
        table.register(f"p{number}", client(greedy))
    table.register("p", client(modest))
    assert not table.make_room(greedy, {"q": 700})  # type: ignore[arg-type]
    assert table.make_room(third, {"q": 700})  # type: ignore[arg-type]
    assert greedy.close_reason is not None
    assert modest.is_open
    assert table.groups().keys() == {"p"}


def test_consumers_subscriptions_are_counted_for_one_member() -> None:
    table = ConsumerTable()
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    memberships = table._memberships
    register(table, client(first), "T", "U")
    alone = memberships.size_bytes
    assert alone > 2 * subscription_bytes(build_subscription("T", "*"))
    register(table, client(second), "T", "U")
    member = client(second).size_bytes + len("g")
    assert memberships.size_bytes == alone + member
    table.unregister("g", second)  # type: ignore[arg-type]
    assert memberships.size_bytes == alone, "the one that stays bears them again"
    register(table, client(first))
    assert memberships.size_bytes == member
    table.forget_channel(first)  # type: ignore[arg-type]
    assert (memberships.size_bytes, memberships.count) == (0, 0)


def test_consumers_member_is_found_by_client_id() -> None:
    table = ConsumerTable()
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    register(table, client(first, "a"))
    register(table, client(second, "a"))
    group = table.group("g")
    assert group is not None
    table.unregister("g", first)  # type: ignore[arg-type]
    found = group.find_client("a")
    assert found is not None
    assert found.channel is channel_of(second)
    register(table, client(second, "b"))
    assert group.find_client("a") is None
    assert group.find_client("b") is not None


def test_clients_wall_clock_change_expires_no_client() -> None:
    """Liveness depends on `seen_ms` only; the wall time is informational."""
    table = ProducerTable()
    table.register("p", ClientChannel(FakeChannel(), "a", 0, 493, 5, 1_000))  # type: ignore[arg-type]
    assert table.expire(1_000) == []


def test_consumers_different_subscriptions_mark_group_as_divided() -> None:
    table = ConsumerTable()
    first, second = FakeChannel(port=1), FakeChannel(port=2)

    def divided(channel: Any, *topics: str) -> bool:
        register(table, client(channel, f"{channel.remote_address}"), *topics)
        group = table.group("g")
        assert group is not None
        return group.is_divided

    assert not divided(first, "T", "U")
    assert not divided(second, "U", "T")
    assert divided(second, "T")
    assert divided(first, "T", "U"), "until all of them agree"
    table.forget_channel(second)  # type: ignore[arg-type]
    assert not divided(first, "T"), "who differed is gone"


def test_expected_member_counts_until_it_connects_and_leaves() -> None:
    table = ConsumerTable()
    table.expect({"g": ["early", "late"]}, 30_000)
    assert table.member_ids("g") == [], "no member is connected, so nothing is known yet"
    early, late = FakeChannel(port=1), FakeChannel(port=2)
    register(table, client(early, "early"), "T")
    assert table.member_ids("g") == ["early", "late"]
    register(table, client(late, "late"), "T")
    table.forget_channel(channel_of(late))
    assert table.member_ids("g") == ["early"]
    assert table.members() == {"g": ["early"]}


def test_expected_member_that_unregisters_or_never_connects_is_reported() -> None:
    table = ConsumerTable()
    changed: list[str] = []
    table.on_change = lambda group: changed.append(group.name)
    table.expect({"g": ["here", "left", "lost"], "h": ["lost"]}, 30_000)
    register(table, client(FakeChannel(port=1), "here"), "T")
    changed.clear()
    table.unregister("g", channel_of(FakeChannel(port=2)), "left")
    assert (table.member_ids("g"), changed) == (["here", "lost"], ["g"])
    table.expire_expected(29_999)
    assert table.members() == {"g": ["here", "lost"], "h": ["lost"]}
    table.expire_expected(30_000)
    assert (table.members(), changed) == ({"g": ["here"]}, ["g", "g"])
