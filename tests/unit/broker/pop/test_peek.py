"""Peeks return what a pop would hand out, and change nothing."""

from typing import Any

import pytest

from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, after, send, simulate


class Seen:
    """A response, taken apart."""

    def __init__(self, response: RemotingCommand) -> None:
        self.code = response.code
        self.remark = response.remark or ""
        self.fields = response.ext_fields
        messages = decode_messages(response.body) if response.body else []
        self.found = [(one.topic, one.body) for one in messages]
        self.bodies = [one.body for one in messages]


async def peek(popper: Popper, **changes: Any) -> Seen:
    fields: dict[str, Any] = {"topic": "T", "queueId": -1, "maxMsgNums": 32, **changes}
    return Seen(await popper.ask(200052, consumerGroup="g", **fields))


def test_peek_leaves_messages_for_pop() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 5)
        for _ in range(2):
            seen = await peek(popper)
            assert (seen.code, seen.remark) == (0, "FOUND")
            assert sorted(seen.bodies) == [b"0", b"1", b"2", b"3", b"4"]
            assert {**seen.fields, "rocketpy": "msgpack"} == {
                "rocketpy": "msgpack",  # said once a connection
                "popTime": "0",
                "invisibleTime": "0",
                "reviveQid": "0",
                "restNum": "5",
            }
        asked = await popper.ask(
            14, consumerGroup="g", topic="T", queueId=0, setZeroIfNotFound="false"
        )
        assert asked.code == 22, "no position was made"
        assert sorted((await popper.pop()).bodies) == [b"0", b"1", b"2", b"3", b"4"]

    simulate(case)


def test_peek_starts_at_next_pop_and_counts_rest() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 5)
        assert (await popper.pop(maxMsgNums=2)).bodies == [b"0", b"1"]
        seen = await peek(popper, queueId=0, maxMsgNums=2)
        assert seen.bodies == [b"2", b"3"]
        assert seen.fields["restNum"] == "3"
        assert (await popper.pop(maxMsgNums=32)).bodies == [b"2", b"3", b"4"]
        empty = await peek(popper)
        assert (empty.code, empty.remark, empty.bodies) == (19, "NO_MESSAGE_IN_QUEUE", [])
        assert empty.fields["restNum"] == "0"

    simulate(case, queues=1)


def test_peek_returns_retried_messages_under_retry_topic() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 2)
        await popper.pop(invisibleTime=1_000)
        await after(20)
        assert set((await peek(popper)).found) == {
            ("%RETRY%g_T", b"0"),
            ("%RETRY%g_T", b"1"),
        }

    simulate(case)


def test_peek_count_is_limited_like_pop() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 40)
        many = await peek(popper, maxMsgNums=1 << 30)
        assert (len(many.bodies), many.fields["restNum"]) == (32, "40")
        for none in (0, -1):
            nothing = await peek(popper, maxMsgNums=none)
            assert (nothing.code, nothing.bodies, nothing.fields["restNum"]) == (19, [], "40")

    simulate(case)


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "None"}, 17, "topic[None] not exist"),
        ({"queueId": 99}, 29, "queueId[99] is illegal"),
        ({"maxMsgNums": None}, 1, "maxMsgNums"),
        ({"queueId": "x"}, 1, "queueId"),
    ],
)
def test_peek_invalid_request_is_refused(changes: dict[str, Any], code: int, remark: str) -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 1)
        refused = await peek(popper, **changes)
        assert refused.code == code
        assert remark in refused.remark

    simulate(case)


def test_peek_without_read_permission_is_refused() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 1)
        assert (await popper.ask(25, b"brokerPermission=2\n")).code == 0
        refused = await peek(popper)
        assert (refused.code, refused.bodies) == (16, [])
        assert "peeking message is forbidden" in refused.remark

    simulate(case)
