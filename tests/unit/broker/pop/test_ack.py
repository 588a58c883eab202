"""Acks and changes with handles that are forged, stale or meaningless."""

import base64
from typing import Any

import pytest

from rocketpy.proto.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, after, send, simulate

DAY_MS = 24 * 3_600 * 1_000


def test_ack_location_outside_queue_is_refused_as_in_apache() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[list[int]]:
        await send(cluster, 1)
        message = (await popper.pop()).messages[0]
        changes: list[dict[str, Any]] = [
            {"topic": "T0"},
            {"queueId": 2},
            {"queueId": -1},
            {"offset": 2},
            {"offset": -1},
            {"offset": 1},
            {"extraInfo": "text"},
            {"extraInfo": "0 x 0 0 0 b 0 0"},
        ]
        acks = [(await popper.ack(message, **each)).code for each in changes]
        moves = [(await popper.change(message, 1_000, **each)).code for each in changes]
        return [acks, moves]

    acks, moves = simulate(case, queues=1)
    assert acks == [17, 13, 13, 208, 208, 0, 1, 1]
    assert moves == [17, 13, 13, 208, 208, 208, 1, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"revive_queue_id": 8},
        {"revive_queue_id": -1},
        {"pop_time_ms": 1 << 60},
        {"pop_time_ms": -1},
        {"invisible_ms": 1 << 60},
        {"invisible_ms": -5},
    ],
    ids=str,
)
def test_ack_forged_handle_is_refused_and_not_stored(
    change: dict[str, int],
) -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        await send(cluster, 1)
        message = (await popper.pop()).messages[0]
        names = ["check_point_offset", "pop_time_ms", "invisible_ms", "revive_queue_id"]
        parts = message.properties["POP_CK"].split(" ")
        for name, value in change.items():
            parts[names.index(name)] = str(value)
        forged = " ".join(parts)
        before = cluster.brokers[0].broker.parts.store.max_phy_offset
        codes = [
            (await popper.ack(message, extraInfo=forged)).code,
            (await popper.change(message, 1_000, extraInfo=forged)).code,
        ]
        assert cluster.brokers[0].broker.parts.store.max_phy_offset == before
        return codes

    assert simulate(case) == [13, 13]


def test_ack_handle_of_other_broker_changes_nothing() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        await send(cluster, 1)
        message = (await popper.pop()).messages[0]
        forged = message.properties["POP_CK"].replace(cluster.brokers[0].name, "other")
        codes = [
            (await popper.ack(message, extraInfo=forged)).code,
            (await popper.change(message, 1_000, extraInfo=forged)).code,
        ]
        await after(15)
        assert (await popper.pop()).bodies == [b"0"], "it is still not acked"
        return codes

    assert simulate(case) == [0, 208]


@pytest.mark.parametrize("invisible_ms", [-1, 3 * DAY_MS + 1])
def test_change_invisible_time_out_of_reach_is_refused(invisible_ms: int) -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        await send(cluster, 1)
        message = (await popper.pop()).messages[0]
        return [
            (await popper.pop(invisibleTime=invisible_ms)).code,
            (await popper.change(message, invisible_ms)).code,
        ]

    assert simulate(case) == [29, 29]


def test_ack_stale_handle_leaves_later_pops_unacked() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 1)
        stale = (await popper.pop()).messages[0]
        await after(15)
        again = (await popper.pop()).messages[0]
        assert (await popper.ack(stale)).code == 0
        await after(15)
        assert (await popper.pop()).bodies == [again.body]

    simulate(case)


def test_ack_offsets_of_other_pops_are_ignored() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[bytes]:
        await send(cluster, 2)
        first = (await popper.pop(maxMsgNums=1)).messages[0]
        assert (await popper.ack(first, offset=1)).code == 0
        await after(15)
        return (await popper.pop()).bodies

    assert sorted(simulate(case, queues=1)) == [b"0", b"1"]


def test_ack_batch_invalid_is_refused() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        await send(cluster, 1)
        name = cluster.brokers[0].name
        some = base64.b64encode(b"\x01").decode()
        bodies = [
            b"",
            BatchAckMessageRequestBody(name, []).encode(),
            BatchAckMessageRequestBody(name, [BatchAck("g", "T", "7", bit_set=some)]).encode(),
            BatchAckMessageRequestBody(name, [BatchAck("g", "T", "0", bit_set="?")]).encode(),
            BatchAckMessageRequestBody(
                name, [BatchAck("g", "T", "0", bit_set="A" * 9_000)]
            ).encode(),
            BatchAckMessageRequestBody(name, [BatchAck("g", "T0", "0", bit_set=some)]).encode(),
            BatchAckMessageRequestBody(
                name, [BatchAck("g", "T", "0", 1 << 40, bit_set=some)]
            ).encode(),
            b"[" * 10,
            b" " * ((1 << 20) + 1),
        ]
        return [(await popper.ask(200151, body)).code for body in bodies]

    assert simulate(case) == [208, 208, 1, 1, 1, 0, 0, 1, 29]


def test_ordered_ack_message_not_popped_is_refused() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        await send(cluster, 3)
        message = (await popper.pop(order="true", maxMsgNums=1)).messages[0]
        codes = [(await popper.ack(message, offset=2)).code, (await popper.ack(message)).code]
        return [*codes, (await popper.ack(message)).code]

    assert simulate(case, queues=1) == [13, 0, 0]


def test_ack_clock_set_back_since_pop_is_accepted() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[bytes]:
        await send(cluster, 2)
        first, second = (await popper.pop()).messages
        cluster.brokers[0].clock.jump(-3_600_000)
        assert (await popper.ack(first)).code == 0
        assert (await popper.change(second, 1_000)).code == 0
        await after(3_700)
        return (await popper.pop()).bodies

    assert simulate(case, queues=1) == [b"1"]


def test_change_invisible_after_expiry_does_not_redeliver_acked_message() -> None:
    """It waited in a network that was parted; its message came again meanwhile, and was acked."""

    async def case(cluster: SimCluster, popper: Popper) -> tuple[list[bytes], int, list[bytes]]:
        await send(cluster, 1)
        stale = (await popper.pop()).messages[0]
        await after(15)
        again = await popper.pop()
        assert (await popper.ack(again.messages[0])).code == 0
        refused = (await popper.change(stale, 10_000)).code
        await after(40)
        return again.bodies, refused, (await popper.pop()).bodies

    assert simulate(case) == ([b"0"], 208, [])
