"""Iteration is in insertion order."""

from rocketpy.runtime.ordered_set import OrderedSet


def test_members_keep_their_order_and_are_there_once() -> None:
    members: OrderedSet[str] = OrderedSet()
    for each in ("b", "a", "c", "b"):
        members.add(each)
    assert list(members) == ["b", "a", "c"]
    members.discard("a")
    members.discard("never there")
    assert list(members) == ["b", "c"]
    assert "a" not in members
    members.discard("b")
    members.discard("c")
    assert not members
