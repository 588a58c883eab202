from typing import Any

from rocketpy.broker.filters import TagFilter
from rocketpy.broker.long_polling import HeldPull, PullRequestHold
from tests.unit.broker.fakes import FakeChannel, FakeLoop, request


class Kit:
    def __init__(self, max_held: int = 10) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.hold = PullRequestHold(lambda t, q: self.ends.get((t, q), 0), max_held)
        self.resumed: list[HeldPull] = []
        self.hold.resume = self.resume
        self.loop = FakeLoop()

    def resume(self, held: HeldPull) -> bytes | None:
        self.resumed.append(held)
        return b"frame%d" % held.queue_id

    def held(
        self,
        queue_id: int = 0,
        *,
        channel: Any = None,
        tag: int | None = None,
        offset: int = 0,
        deadline_ms: int = 1000,
    ) -> HeldPull:
        tag_filter = None if tag is None else TagFilter(frozenset({tag}))
        one = channel or FakeChannel(self.loop)
        return HeldPull(one, request(11), "T", queue_id, offset, tag_filter, deadline_ms)


def test_an_arrival_wakes_once_however_many_messages_follow() -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)
    assert kit.hold.park(kit.held(channel=channel))
    for offset in range(1, 6):
        kit.hold.on_arrival("T", 0, offset, 0)
    assert kit.resumed == []
    assert kit.loop.turn() == 1
    assert len(kit.resumed) == 1
    assert channel.sent == [b"frame0"]
    assert len(kit.hold) == 0


def test_responses_for_one_connection_leave_in_one_write() -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)
    for queue_id in (0, 1):
        kit.hold.park(kit.held(queue_id, channel=channel))
        kit.hold.on_arrival("T", queue_id, 1, 0)
    assert kit.loop.turn() == 1
    assert channel.sent == [b"frame0frame1"]


def test_other_queues_tags_and_old_offsets_do_not_wake() -> None:
    kit = Kit()
    kit.hold.park(kit.held(0, tag=65))
    kit.hold.park(kit.held(1, offset=5))
    kit.ends["T", 1] = 5
    kit.hold.on_arrival("T", 2, 1, 65)
    kit.hold.on_arrival("T", 0, 1, 66)
    kit.hold.on_arrival("T", 1, 5, 0)
    assert kit.loop.turn() == 0
    kit.hold.on_arrival("T", 0, 2, 65)
    kit.hold.on_arrival("T", 1, 6, 0)
    assert kit.loop.turn() == 1
    assert [one.queue_id for one in kit.resumed] == [0, 1]


def test_a_message_between_the_empty_read_and_the_parking_is_not_missed() -> None:
    kit = Kit()
    kit.ends["T", 0] = 1
    kit.hold.park(kit.held())
    kit.loop.turn()
    assert len(kit.resumed) == 1


def test_the_deadline_releases() -> None:
    kit = Kit()
    kit.hold.park(kit.held(deadline_ms=1000))
    kit.hold.step(999)
    assert kit.loop.turn() == 0
    kit.hold.step(1000)
    kit.loop.turn()
    assert len(kit.resumed) == 1


def test_a_narrow_filter_still_moves_on_every_five_seconds() -> None:
    kit = Kit()
    kit.hold.step(0)
    kit.hold.park(kit.held(tag=65, deadline_ms=60_000))
    kit.ends["T", 0] = 3
    kit.hold.step(4_000)
    assert kit.loop.turn() == 0
    kit.hold.step(5_000)
    kit.loop.turn()
    assert len(kit.resumed) == 1


def test_the_count_is_bounded_and_closed_channels_are_dropped() -> None:
    kit = Kit(max_held=2)
    gone = FakeChannel(kit.loop)
    assert kit.hold.park(kit.held(channel=gone))
    assert kit.hold.park(kit.held(1))
    assert not kit.hold.park(kit.held(2))
    kit.hold.forget_channel(gone)  # type: ignore[arg-type]
    assert len(kit.hold) == 1
    assert kit.hold.held_at("T", 0) == 0
    assert kit.hold.park(kit.held(2))
    kit.hold.forget_all()
    assert len(kit.hold) == 0


def test_a_closed_channel_is_not_run() -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)
    kit.hold.park(kit.held(channel=channel))
    kit.hold.on_arrival("T", 0, 1, 0)
    channel.is_open = False
    kit.loop.turn()
    assert kit.resumed == []


def test_a_queue_holds_so_many_pulls_only() -> None:
    kit = Kit()
    kit.hold.max_held_per_queue = 2
    assert [kit.hold.park(kit.held()) for _ in range(3)] == [True, True, False]
    assert kit.hold.park(kit.held(queue_id=1))
    assert (kit.hold.held_at("T", 0), len(kit.hold)) == (2, 3)
