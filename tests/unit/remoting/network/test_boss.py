"""Boss with a fake listener: hand-over of sockets, and failing accepts."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.boss import Boss
from rocketpy.runtime.os_resources import DescriptorGauge
from tests.unit.remoting.fakes import FakeLoop, ManualClock


class FakeSocket:
    def __init__(self) -> None:
        self.is_closed = False

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def close(self) -> None:
        self.is_closed = True


class FakeListener(FakeSocket):
    """Listener with waiting peers; an error stands for an accept that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[FakeSocket, str] | OSError] = []

    def accept(self) -> tuple[FakeSocket, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        first = self.waiting.pop(0)
        if isinstance(first, OSError):
            raise first
        return first[0], (first[1], 4321)


class ReaderLoop(FakeLoop):
    def __init__(self) -> None:
        super().__init__()
        self.reader: Callable[[], None] | None = None

    def add_reader(self, listener: object, callback: Callable[[], None]) -> None:
        assert self.reader is None
        self.reader = callback

    def remove_reader(self, listener: object) -> None:
        self.reader = None


class Rig:
    def __init__(self, max_per_ip_count: int = 0) -> None:
        self.loop = ReaderLoop()
        self.listener = FakeListener()
        self.handed: list[str] = []
        boss: Any = Boss
        self.boss: Boss = boss(
            self.listener,
            Admission(0, max_per_ip_count, ManualClock()),
            lambda sock, ip, is_crowded: self.handed.append(ip),
            DescriptorGauge(ManualClock()),
        )
        self.boss.start(self.loop)

    def peers(self, *ips: str) -> list[FakeSocket]:
        socks = [FakeSocket() for _ in ips]
        self.listener.waiting += zip(socks, ips, strict=True)
        return socks

    def wake(self) -> None:
        assert self.loop.reader is not None
        self.loop.reader()


def test_boss_hands_over_admitted_sockets_and_closes_others() -> None:
    rig = Rig(max_per_ip_count=1)
    socks = rig.peers("10.0.0.1", "10.0.0.1", "10.0.0.2")
    rig.wake()
    assert rig.handed == ["10.0.0.1", "10.0.0.2"]
    assert [sock.is_closed for sock in socks] == [False, True, False]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_boss_without_descriptors_pauses_a_second_and_resumes(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.listener.waiting.append(OSError(number, "none left"))
    rig.peers("10.0.0.1")
    rig.wake()
    assert rig.loop.reader is None, "it would be woken again and again"
    assert caplog.text.count("accept failed, pausing") == 1
    rig.loop.advance(1.0)
    rig.wake()
    assert rig.handed == ["10.0.0.1"]


def test_boss_stopped_during_pause_does_not_resume() -> None:
    rig = Rig()
    rig.listener.waiting.append(OSError(errno.EMFILE, "none left"))
    rig.wake()
    rig.boss.stop()
    rig.loop.advance(2.0)
    assert rig.loop.reader is None
    assert rig.listener.is_closed


def test_boss_accepts_bounded_number_per_wake_up() -> None:
    rig = Rig()
    rig.peers(*["10.0.0.1"] * 100)
    rig.wake()
    assert len(rig.handed) == 64
    rig.wake()
    assert len(rig.handed) == 100
