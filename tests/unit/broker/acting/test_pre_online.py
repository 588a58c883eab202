"""A master that returns takes the progress of its slaves before it serves."""

from collections.abc import Mapping

import orjson
import structlog

from rocketpy.broker.acting.member_poll import Members
from rocketpy.broker.acting.pre_online import Offsets, PreOnline, SlaveProgress
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import ConnectError
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.store.timer.checkpoint import TimerMarks
from rocketpy.testing.sim_clock import SimClock

MARKS = TimerMarks(9_000, 520, 7, 7)
BODIES = {
    45: orjson.dumps({"offsetTable": {"3": 5}}),
    43: orjson.dumps({"offsetTable": {"T@g": {"0": 24}}}),
    60: MARKS.encode(),
}


class Kit:
    """A master, and its slaves by address."""

    def __init__(self, members: Members | None) -> None:
        self.known = members
        self.asked: list[tuple[str, int]] = []
        self.codes: dict[int, int] = {}
        self.fields: dict[str, str] = {}
        self.is_down = False
        self.is_streaming = True
        self.taken: list[object] = []
        self.unrevived: list[int] = []
        identity = BrokerIdentity(BrokerConfig(broker_name="b", broker_ip1="127.0.0.1"))
        identity.listens_on(10911)
        self.online = PreOnline(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            identity=identity,
            progress=SlaveProgress(
                delays=self._take_delays,
                timer=self.taken.append,
                unrevived=self.unrevived.append,
                offsets=self._take_offsets,
                is_streaming=lambda _: self.is_streaming,
                flushed_phy_offset=lambda: 100,
            ),
            clock=SimClock(),
        )

    def _take_delays(self, levels: Mapping[int, int]) -> None:
        self.taken.append(dict(levels))

    def _take_offsets(self, offsets: Offsets) -> None:
        self.taken.append(offsets)

    async def members(self) -> Members | None:
        return self.known

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms == 5_000
        if self.is_down:
            raise ConnectError("refused")
        if command.code == 906:
            assert command.ext_fields == {
                "masterAddress": "127.0.0.1:10911",
                "masterFlushOffset": "100",
                "masterHaAddress": "127.0.0.1:10912",
            }
        self.asked.append((address, command.code))
        code = self.codes.get(command.code, 0)
        fields = self.fields if command.code == 60 else {}
        return make_response(command, code, ext_fields=fields, body=BODIES.get(command.code, b""))


async def test_master_takes_progress_of_each_slave_in_order() -> None:
    kit = Kit({2: "s2", 1: "s1"})
    assert await kit.online.attempt()
    assert kit.asked == [(each, code) for each in ("s1", "s2") for code in (906, 45, 43, 60)]
    assert kit.taken == [{3: 5}, {("T", "g"): {0: 24}}, MARKS] * 2


async def test_master_takes_the_time_within_a_slot_of_the_timer_of_its_slave() -> None:
    for text, read_ms in ((str(MARKS.read_ms + 7), MARKS.read_ms + 7), ("x", MARKS.read_ms)):
        kit = Kit({1: "s1"})
        kit.fields = {"rocketpyDeliveredMs": text}
        assert await kit.online.attempt()
        assert kit.taken[-1] == MARKS._replace(read_ms=read_ms)


async def test_master_takes_the_time_of_unrevived_popped_messages() -> None:
    kit = Kit({1: "s1", 2: "s2"})
    assert await kit.online.attempt()
    assert kit.unrevived == [], "of slaves that did not act"
    kit.fields = {"rocketpyUnrevivedMs": "77"}
    assert await kit.online.attempt()
    assert kit.unrevived == [77, 77]


async def test_master_without_slaves_is_online_at_once() -> None:
    for members in ({}, {0: "127.0.0.1:10911"}):
        kit = Kit(members)
        assert await kit.online.attempt()
        assert kit.asked == []


async def test_master_waits_for_a_name_server_and_for_its_slave() -> None:
    kit = Kit(None)
    assert not await kit.online.attempt()
    kit.known = {1: "s1"}
    kit.is_down = True
    with structlog.testing.capture_logs() as logs:
        assert not await kit.online.attempt()
        assert not await kit.online.attempt()
    assert [each["reason"] for each in logs] == ["refused"], "logged once"
    kit.is_down = False
    kit.codes = {906: 2}
    assert not await kit.online.attempt()
    assert kit.taken == []
    kit.codes = {}
    assert await kit.online.attempt()


async def test_slave_without_a_timer_does_not_delay_the_master() -> None:
    kit = Kit({1: "s1"})
    kit.codes = {60: 1}
    assert await kit.online.attempt()
    assert kit.taken == [{3: 5}, {("T", "g"): {0: 24}}]


async def test_master_registers_when_it_is_online() -> None:
    kit = Kit({1: "s1"})
    registered = []

    async def register() -> None:
        registered.append(kit.online.is_online)

    assert not kit.online.is_online
    await kit.online._run(register)
    assert registered == [True]
