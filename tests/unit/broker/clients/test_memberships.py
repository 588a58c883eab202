"""Bounded memberships of connections in groups."""

from typing import Any

from rocketpy.broker.clients.memberships import Memberships
from tests.unit.broker.fakes import FakeChannel


def channels(count: int) -> list[Any]:
    return [FakeChannel(port=port) for port in range(count)]


def test_memberships_count_and_size_follow_changes() -> None:
    memberships = Memberships()
    one, two = channels(2)
    memberships.add(one, "a", 10, 0)
    memberships.add(one, "b", 20, 0)
    memberships.add(two, "a", 5, 0)
    memberships.add(one, "a", 12, 1)
    assert (memberships.count, memberships.size_bytes) == (3, 37)
    assert memberships.groups_of(one) == ["a", "b"]
    for channel in (one, two, two):
        for group in ("a", "b", "c"):
            memberships.remove(channel, group)
    assert (memberships.count, memberships.size_bytes) == (0, 0)
    assert not memberships._groups
    assert not memberships._channel_bytes


def test_memberships_silent_ones_are_first() -> None:
    memberships = Memberships()
    one, two, three = channels(3)
    memberships.add(one, "a", 1, 100)
    memberships.add(two, "a", 1, 200)
    memberships.add(three, "a", 1, 300)
    memberships.add(one, "a", 1, 400)
    assert memberships.unheard_since(200) == []
    assert memberships.unheard_since(301) == [(two, "a"), (three, "a")]


def test_memberships_room_by_size_closes_largest() -> None:
    memberships = Memberships(max_bytes=100)
    one, two, three = channels(3)
    memberships.add(one, "a", 60, 0)
    memberships.add(two, "a", 30, 0)
    assert memberships.room_for(three, {"a": 10}) == []
    assert memberships.room_for(three, {"a": 11}) == [one]
    assert memberships.room_for(three, {"a": 60}) is None, "it would take as much itself"
    assert memberships.room_for(one, {"a": 65}) == []
    assert memberships.room_for(one, {"a": 71}) is None
    assert memberships.room_for(two, {"a": 45}) == [one]


def test_memberships_room_closes_only_as_many_as_needed() -> None:
    memberships = Memberships(max_bytes=100)
    one, two, three, four = channels(4)
    for channel, size_bytes in ((one, 40), (two, 35), (three, 25)):
        memberships.add(channel, "a", size_bytes, 0)
    assert memberships.room_for(four, {"a": 24}) == [one]
    assert memberships.room_for(four, {"a": 30, "b": 1, "c": 3}) == [one]
    memberships.add(three, "b", 20, 0)
    assert memberships.room_for(four, {"a": 33}) == [three, one]


def test_memberships_existing_membership_is_never_refused() -> None:
    memberships = Memberships(max_per_channel=2, max_members=2)
    one, two = channels(2)
    memberships.add(one, "a", 1, 0)
    memberships.add(one, "b", 1, 0)
    assert memberships.room_for(one, {"a": 1, "b": 1}) == []
    assert memberships.room_for(one, {"c": 1}) is None
    assert memberships.room_for(two, {"a": 1}) == [one]
