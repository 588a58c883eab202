import pytest

from rocketpy.remoting.connection.fair_turns import TurnScheduler
from tests.unit.remoting.fakes import FakeLoop


class Peer:
    def __init__(self, name: str) -> None:
        self.remote_address = name
        self.is_open = True
        self.is_writable = True
        self.has_unwritten = False

    def write(self, frame: bytes) -> None:
        raise AssertionError("connections write themselves")

    send = write

    def call_soon(self, callback: object, *args: object) -> bool:
        raise AssertionError("nothing runs on a pool here")


class Rig:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.now_ms = 0
        self.is_full = False
        self.is_exhausted = False
        self.turns = TurnScheduler(
            self.loop, lambda: self.now_ms, lambda: self.is_full, lambda: self.is_exhausted
        )
        self.seen: list[str] = []

    def add(self, peer: Peer, text: str, took_ms: int = 0, *, is_small: bool = False) -> None:
        def callback() -> None:
            self.seen.append(text)
            self.now_ms += took_ms

        self.turns.add_connection(peer, callback, is_small=is_small)


def test_channels_take_turns_and_each_keeps_its_order() -> None:
    rig, a, b = Rig(), Peer("a"), Peer("b")
    for number in range(3):
        rig.add(a, f"a{number}")
    rig.add(b, "b0")
    rig.loop.run()
    assert rig.seen == ["a0", "b0", "a1", "a2"]


def test_turns_yield_to_loop_after_two_ms() -> None:
    rig, a = Rig(), Peer("a")
    for number in range(4):
        rig.add(a, f"a{number}", took_ms=1)
    rig.loop.call_soon(lambda: rig.seen.append("other work"))
    rig.loop.run()
    assert rig.seen == ["a0", "a1", "other work", "a2", "a3"]


def test_scheduler_runs_at_most_64_turns_per_iteration() -> None:
    rig, a = Rig(), Peer("a")
    for number in range(100):
        rig.add(a, str(number))
    rig.loop.call_soon(lambda: rig.seen.append("other work"))
    rig.loop.run()
    assert rig.seen.index("other work") == 64
    assert len(rig.seen) == 101


def test_big_turns_wait_while_too_much_is_unsent() -> None:
    rig, a = Rig(), Peer("a")
    rig.is_full = True
    rig.add(a, "a")
    rig.loop.run()
    rig.loop.advance(0.02)
    assert rig.seen == []
    rig.is_full = False
    rig.loop.advance(0.02)
    assert rig.seen == ["a"]


def test_small_turns_run_while_too_much_is_unsent() -> None:
    rig, peers = Rig(), [Peer(name) for name in "abcdef"]
    rig.is_full = True
    for peer in peers:
        rig.add(peer, peer.remote_address, is_small=peer.remote_address in "be")
    rig.add(peers[1], "b again")
    rig.loop.run()
    assert rig.seen == ["b", "e"]
    rig.loop.advance(0.02)
    assert rig.seen == ["b", "e"], "the others wait"
    assert rig.turns.is_blocked
    rig.is_full = False
    rig.loop.advance(0.02)
    assert sorted(rig.seen[2:]) == ["a", "b again", "c", "d", "f"]
    rig.is_full = rig.is_exhausted = True
    rig.add(peers[0], "last", is_small=True)
    rig.loop.run()
    assert "last" not in rig.seen
    rig.is_exhausted = False
    rig.loop.advance(0.02)
    assert rig.seen[-1] == "last"


def test_dropped_channel_gets_no_turn() -> None:
    rig, a, b = Rig(), Peer("a"), Peer("b")
    rig.add(a, "a")
    rig.add(b, "b")
    rig.turns.drop(a)
    rig.loop.run()
    assert rig.seen == ["b"]


def test_failing_turn_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    rig, a = Rig(), Peer("a")

    def broken() -> None:
        raise ValueError("deliberate")

    rig.turns.add_connection(a, broken)
    rig.add(a, "next")
    rig.loop.run()
    assert rig.seen == ["next"]
    assert "turn failed: peer=a" in caplog.text
