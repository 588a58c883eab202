"""A service that runs only while it may."""

from rocketpy.broker.acting.gate import GatedService


class Recorded:
    name = "Recorded"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = False

    def restart(self) -> None:
        if self.fails:
            raise OSError("no disk")
        self.calls.append("restart")

    def step(self, now_ms: int) -> int:
        self.calls.append("step")
        return now_ms + 7

    def end(self) -> None:
        self.calls.append("end")


def test_service_restarts_steps_and_ends_with_its_gate() -> None:
    service, may_run = Recorded(), [False]
    gate = GatedService(service, lambda: may_run[0])
    assert gate.step(0) == 200
    assert (service.calls, gate.is_idle) == ([], True)
    may_run[0] = True
    assert gate.step(200) == 207
    assert gate.step(207) == 214
    assert not gate.is_idle
    may_run[0] = False
    assert not gate.is_idle, "until it has ended"
    gate.step(214)
    gate.step(414)
    assert (service.calls, gate.is_idle) == (["restart", "step", "step", "end"], True)


def test_service_that_cannot_start_is_idle_and_starts_later() -> None:
    service = Recorded()
    service.fails = True
    gate = GatedService(service, lambda: True)
    try:
        gate.step(0)
    except OSError:
        assert gate.is_idle
    service.fails = False
    gate.step(1)
    assert service.calls == ["restart", "step"]
