"""Notifications of group members, a few at a time."""

from typing import Any

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerGroup
from rocketpy.broker.clients.member_notifications import MAX_NOTICES_A_TURN, MemberNotifier
from tests.unit.broker.fakes import FakeChannel, FakeLoop


class World:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.told: list[tuple[object, str]] = []
        self.notices = MemberNotifier(lambda channel, name: self.told.append((channel, name)))

    def group(self, name: str, member_count: int) -> ConsumerGroup:
        group = ConsumerGroup(name)
        for number in range(member_count):
            channel: Any = FakeChannel(self.loop, port=number)
            group.put_member(ClientChannel(channel, f"c{number}", 0, 0, 0))
        return group

    def run(self) -> None:
        while self.loop.turn():
            pass


def test_notifier_many_members_are_notified_in_several_iterations() -> None:
    world = World()
    groups = [world.group(f"g{n}", 90) for n in range(10)]
    for group in groups:
        world.notices.add(group)
    assert world.told == []
    world.loop.turn()
    assert 0 < len(world.told) <= MAX_NOTICES_A_TURN
    world.run()
    assert world.told == [(m.channel, g.name) for g in groups for m in g.clients()]
    world.notices.add(groups[0])
    world.run()
    assert len(world.told) == 990, "a later change is told again"


def test_notifier_repeated_changes_are_merged() -> None:
    world = World()
    group = world.group("g", 3)
    for _ in range(100):
        world.notices.add(group)
    world.run()
    assert len(world.told) == 3


def test_notifier_notifies_members_at_time_of_sending() -> None:
    world = World()
    group = world.group("g", 2)
    first = group.clients()[0].channel
    world.notices.add(group)
    group.remove_member(first)
    world.run()
    assert [channel for channel, _ in world.told] == [m.channel for m in group.clients()]
    world.notices.add(ConsumerGroup("nobody"))
    world.run()
    assert len(world.told) == 1


def test_notifier_closed_loop_drops_queue() -> None:
    world = World()
    group = world.group("g", 1)
    channel: Any = group.clients()[0].channel
    channel.call_soon = lambda *_: False
    world.notices.add(group)
    del channel.call_soon
    world.notices.add(group)
    world.run()
    assert len(world.told) == 1
