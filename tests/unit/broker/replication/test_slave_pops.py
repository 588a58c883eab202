"""Pops at a slave: check points stay in memory, and acks reach the master as commits."""

from typing import Any

from rocketpy.broker.requests import build_requests
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.command import RemotingCommand, encode_command
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.store.results import PutMessage
from tests.unit.broker.fakes import FakeChannel, request
from tests.unit.broker.replication.slave_kit import Pair
from tests.unit.broker.replication.test_metadata_sync import copy_log

POP = {
    "consumerGroup": "g", "topic": "T", "queueId": "0", "maxMsgNums": "32",
    "invisibleTime": "60000", "pollTime": "0", "initMode": "0", "order": "false",
}  # fmt: skip


async def test_slave_pops_and_acks_without_storing_anything() -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    master.topics.put(TopicConfig("T", 1, 1, 6))
    master.groups.put(SubscriptionGroupConfig("g"))
    for body in (b"one", b"two"):
        master.store.put_message(PutMessage("T", 0, body))
    copy_log(pair)
    await pair.sync.follow_once()
    end, routes = slave.store.max_phy_offset, build_requests(slave).routes

    def ask(code: int, ext: dict[str, str]) -> RemotingCommand:
        response: Any = routes[code].processor(FakeChannel(), request(code, ext))  # type: ignore[arg-type]
        frame = response if isinstance(response, bytes) else encode_command(response)
        (decoded,) = CommandReader().feed(frame)
        return decoded

    popped = ask(200_050, POP)
    assert popped.code == 0
    assert [each.body for each in decode_messages(popped.body)] == [b"one", b"two"]
    found = popped.ext_fields
    for offset in range(2):
        handle = f"0 {found['popTime']} 60000 {found['reviveQid']} 0 b 0 {offset}"
        ack = {"consumerGroup": "g", "topic": "T", "queueId": "0", "offset": str(offset)}
        assert ask(200_051, {**ack, "extraInfo": handle}).code == 0
    (positions,) = (each for each in slave.background_services if each.name == "PopPositions")
    positions.step(slave.clock.monotonic_ms())
    assert slave.store.max_phy_offset == end
    assert slave.offsets.query("g", "T", 0) == 2
    await pair.sync.follow_once()
    assert master.offsets.query("g", "T", 0) == 2
