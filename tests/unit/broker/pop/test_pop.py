"""Pops, acks and redelivery, at the level of the wire."""

import asyncio
from typing import Any

import pytest

from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, PopResponse, after, send, simulate


def test_pop_redelivers_only_unacked_messages() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[Any]:
        await send(cluster, 4)
        first = await popper.pop()
        assert sorted(first.bodies) == [b"0", b"1", b"2", b"3"]
        for message in first.messages[:2]:
            assert (await popper.ack(message)).code == 0
        again = await popper.pop()
        assert again.code == 210, again.remark
        await after(9)
        assert (await popper.pop()).code == 210, "not before its time"
        await after(10)
        back = await popper.pop()
        assert sorted(back.bodies) == sorted(first.bodies[2:])
        return back.messages

    back = simulate(case)
    assert [message.reconsume_times for message in back] == [1, 1]
    assert {message.topic for message in back} == {"T"}
    assert all("1ST_POP_TIME" in message.properties for message in back)
    assert all(message.properties["POP_CK"].split(" ")[4] == "1" for message in back)


def test_pop_retried_message_is_redelivered_until_acked() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[list[int]]:
        await send(cluster, 2)
        times = []
        for _ in range(3):
            found = await popper.pop(pollTime=30_000)
            times.append([message.reconsume_times for message in found.messages])
            await after(16)
        found = await popper.pop()
        for message in found.messages:
            assert (await popper.ack(message)).code == 0
        await after(60)
        assert (await popper.pop()).code == 210
        return times

    assert simulate(case) == [[0, 0], [1, 1], [2, 2]]


def test_pop_suspended_pops_share_one_arriving_message() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[PopResponse]:
        other = Popper(cluster, host="10.0.9.2")
        waiting = [
            asyncio.ensure_future(each.pop(pollTime=15_000, invisibleTime=60_000))
            for each in (popper, other)
        ]
        await after(3)
        info = await popper.ask(200055, consumerGroup="g", topic="T", queueId=-1)
        assert info.ext_fields["pollingNum"] == "2"
        await send(cluster, 1)
        return await asyncio.gather(*waiting)

    responses = simulate(case)
    assert sorted(one.code for one in responses) == [0, 210]
    assert [one.bodies for one in responses if one.code == 0] == [[b"0"]]


def test_pop_batch_ack_and_change_of_invisible_time() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 6)
        found = (await popper.pop()).messages
        assert (await popper.ack_batch(found[:4])).code == 0
        sooner, later = found[4:]
        assert (await popper.change(sooner, 2_000)).code == 0
        changed = await popper.change(later, 40_000)
        assert changed.code == 0
        assert changed.ext_fields["invisibleTime"] == "40000"
        await after(8)
        assert (await popper.pop()).bodies == [sooner.body]
        await after(30)
        assert later.body not in (await popper.pop()).bodies
        await after(10)
        assert later.body in (await popper.pop(maxMsgNums=32)).bodies

    simulate(case)


def test_ordered_pop_blocks_queue_until_all_acked() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[Any]:
        await send(cluster, 5)
        first = await popper.pop(order="true", maxMsgNums=3)
        assert first.bodies == [b"0", b"1", b"2"]
        assert first.fields["reviveQid"] == "999"
        assert (await popper.pop(order="true")).code == 210
        repeated = await popper.pop(order="true", attemptId="a")
        assert repeated.code == 210
        for message in first.messages[:2]:
            assert (await popper.ack(message)).code == 0
        await after(11)
        second = await popper.pop(order="true")
        assert second.bodies == [b"2", b"3", b"4"], "from the first that is not acked"
        counts = second.fields["orderCountInfo"]
        for message in reversed(second.messages):
            assert (await popper.ack(message)).code == 0
        waiting = asyncio.ensure_future(popper.pop(order="true", pollTime=15_000))
        await after(1)
        await send(cluster, 1, first=5)
        assert (await waiting).bodies == [b"5"]
        return [first.fields["orderCountInfo"], counts]

    assert simulate(case, queues=1) == ["0 0 0", "0 qo0%2 1;0 0 0"]


def test_ordered_pop_resumes_when_queue_is_free() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        await send(cluster, 2)
        first = await popper.pop(order="true", maxMsgNums=1)
        start = popper.now_ms
        waiting = asyncio.ensure_future(popper.pop(order="true", pollTime=30_000))
        await after(1)
        await popper.change(first.messages[0], 3_000)
        found = await waiting
        return [popper.now_ms - start, *map(int, found.bodies)]

    waited, *bodies = simulate(case, queues=1)
    assert bodies == [0, 1]
    assert 4_000 <= waited <= 6_000, "what was changed counts, not the time of the pop"


def test_notification_reports_arriving_message() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[str]:
        wanted: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": -1,
            "pollTime": 5_000,
        }
        empty = await popper.ask(200054, **wanted, bornTime=popper.now_ms)
        waiting = asyncio.ensure_future(popper.ask(200054, **wanted, bornTime=popper.now_ms))
        await after(1)
        await send(cluster, 1)
        return [each.ext_fields["hasMsg"] for each in (empty, await waiting)]

    assert simulate(case) == ["false", "true"]


def test_pop_invalid_request_is_refused_in_apache_order() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[int]:
        asked: list[dict[str, Any]] = [
            {"topic": "T0", "bornTime": popper.now_ms - 1_000},
            {"topic": "T0", "maxMsgNums": 33},
            {"topic": "T0"},
            {"queueId": 2},
            {"consumerGroup": "not a name"},
            {"exp": "a || ", "expType": "TAG", "consumerGroup": "h"},
            {"invisibleTime": -1},
        ]
        return [(await popper.pop(**each)).code for each in asked]

    assert simulate(case)[:5] == [210, 29, 17, 29, 26]


def test_pop_after_reset_starts_at_reset_offset() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[bytes]:
        await send(cluster, 3)
        found = await popper.pop()
        for message in found.messages:
            await popper.ack(message)
        cluster.brokers[0].broker.parts.offsets.assign_reset("g", "T", 0, 1)
        return (await popper.pop()).bodies

    assert simulate(case, queues=1) == [b"1", b"2"]


def test_pop_suspended_resumes_on_reset() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> tuple[bool, list[bytes]]:
        await send(cluster, 3)
        found = await popper.pop()
        for message in found.messages:
            await popper.ack(message)
        waiting = asyncio.ensure_future(popper.pop(pollTime=15_000))
        await after(3)
        was_waiting = not waiting.done()
        cluster.brokers[0].broker.parts.offsets.assign_reset("g", "T", 0, 1)
        await after(1)
        assert waiting.done()
        return was_waiting, waiting.result().bodies

    assert simulate(case, queues=1) == (True, [b"1", b"2"])


def test_pop_sql92_filter_selects_messages() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> None:
        for number in range(6):
            await send(cluster, 1, number, headers={"n": str(number)})
        wanted = {"exp": "n BETWEEN 2 AND 3", "expType": "SQL92"}
        found = await popper.pop(**wanted)
        assert sorted(found.bodies) == [b"2", b"3"]
        wrong = await popper.pop(exp="n >", expType="SQL92")
        assert (wrong.code, "at character 4" in (wrong.remark or "")) == (23, True)
        parts = cluster.brokers[0].broker.parts
        parts.configs.update({"enablePropertyFilter": "false"})
        assert (await popper.pop(**wanted)).code == 1

    simulate(case, queues=1)


def test_pop_without_timer_is_refused() -> None:
    async def case(_cluster: SimCluster, popper: Popper) -> int:
        return (await popper.pop()).code

    assert simulate(case, timerWheelEnable="false") == 1


def test_pop_retry_topic_v2_is_used_and_named_on_request() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> str:
        await send(cluster, 1)
        await popper.pop()
        await after(15)
        message = (await popper.pop()).messages[0]
        assert cluster.message_count("%RETRY%g+T") == 1
        return message.topic

    found = simulate(case, enableRetryTopicV2="true", popResponseReturnActualRetryTopic="true")
    assert found == "%RETRY%g+T"


@pytest.mark.parametrize("order", ["false", "true"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_pop_recreated_topic_starts_at_first_message(order: str, flush: str) -> None:
    """Unacknowledged messages of the previous consumer or of the group do not matter."""

    async def case(cluster: SimCluster, popper: Popper) -> None:
        await send(cluster, 4)
        before = await popper.pop(order=order, invisibleTime=60_000)
        assert len(before.bodies) == 4
        assert (await popper.ask(215, topic="T")).code == 0
        cluster.create_topic("T", 1)
        await send(cluster, 3, 10)
        for message in before.messages:
            assert (await popper.ack(message)).code == 0, "there is nothing to ack any more"
        after_it = await popper.pop(order=order, invisibleTime=60_000)
        assert after_it.bodies == [b"10", b"11", b"12"]
        for message in after_it.messages:
            assert (await popper.ack(message)).code == 0
        await after(200)
        assert cluster.brokers[0].broker.parts.offsets.query("g", "T", 0) == 3
        assert (await popper.pop(order=order)).bodies == []

    simulate(case, queues=1, flushDiskType=flush)


def test_pop_recreated_group_starts_again() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[bytes]:
        await send(cluster, 3)
        assert len((await popper.pop(invisibleTime=60_000)).bodies) == 3
        assert (await popper.ask(207, groupName="g", cleanOffset="true")).code == 0
        return (await popper.pop()).bodies

    assert simulate(case, queues=1) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_pop_reset_with_unacked_messages_loses_none(flush: str, restarts: bool) -> None:
    """Their check points wait in memory, or in the timer, when an operator sets the offset."""

    async def case(cluster: SimCluster, popper: Popper) -> list[list[bytes]]:
        (broker,) = cluster.brokers
        await send(cluster, 4)
        first, *_ = (await popper.pop()).messages
        assert (await popper.ack(first)).code == 0
        asked: dict[str, Any] = {"group": "g", "topic": "T", "queueId": 0}
        asked |= {"timestamp": -1, "isForce": "true"}
        assert (await popper.ask(222, **asked, offset=2)).code == 0
        if restarts:
            await broker.stop()
            await broker.start()
        found = [(await popper.pop()).bodies]
        assert (await popper.ask(222, **asked, offset=4)).code == 0
        await send(cluster, 1, first=4)
        found.append((await popper.pop()).bodies)
        await after(30)
        back: list[bytes] = []
        while bodies := (await popper.pop()).bodies:
            back += bodies
        return [*found, sorted(back)]

    again, new, back = simulate(case, queues=1, flushDiskType=flush)
    assert (again, new) == ([b"2", b"3"], [b"4"])
    assert set(back) == {b"1", b"2", b"3", b"4"}, "what nobody acked comes back"
