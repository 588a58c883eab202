"""Requests that came together are offered to a run processor before they are served one by one."""

from collections.abc import Sequence

from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection import Connection
from tests.unit.remoting.fakes import Rig


class Together:
    """Serves so many of the first requests it is offered, and notes how many it saw."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.offered: list[int] = []

    def __call__(
        self, _channel: Channel, commands: Sequence[RemotingCommand]
    ) -> tuple[int, list[bytes]]:
        self.offered.append(len(commands))
        count = self.counts.pop(0)
        if count < 0:
            raise OSError("as told")
        return count, [encode_command(make_response(each, 0, "run")) for each in commands[:count]]


def served(run: Together, count: int) -> tuple[Rig, list[tuple[int, str | None]]]:
    rig = Rig()
    rig.owner.table.register(2, lambda _, command: make_response(command, 0, "one"), None, run)
    rig.connection = Connection(rig.owner, rig.loop)  # type: ignore[arg-type]
    rig.open().connection.data_received(b"".join(map(framed, range(count))))
    return rig, [(each.opaque, each.remark) for each in rig.transport.responses()]


def framed(opaque: int) -> bytes:
    command = make_request(2)
    command.opaque = opaque
    return encode_command(command)


def test_requests_that_came_together_are_offered_together() -> None:
    run = Together(64, 36)
    _, answers = served(run, 100)
    assert run.offered == [64, 36]
    assert answers == [(opaque, "run") for opaque in range(100)]


def test_what_a_run_does_not_take_is_served_one_by_one_and_in_order() -> None:
    run = Together(3, 0, 0)
    _, answers = served(run, 20)
    assert run.offered == [20, 17, 9]
    assert answers == [(n, "run" if n < 3 else "one") for n in range(20)]


def test_a_few_requests_are_not_offered() -> None:
    run = Together()
    _, answers = served(run, 7)
    assert answers == [(n, "one") for n in range(7)]


def test_a_run_that_fails_costs_its_connection() -> None:
    rig, answers = served(Together(-1), 20)
    assert not rig.connection.channel.is_open
    assert answers == []
