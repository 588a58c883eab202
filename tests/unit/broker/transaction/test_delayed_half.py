"""Half messages that ask for a later delivery, from send to consumer, at the level of the wire.

Apache 5.4.0 lets the half message itself wait, under the name of the half topic: its commit is
answered with success and never delivered. Here it waits from its commit on.
"""

from typing import Any

import pytest

from rocketpy.proto.record.message import MessageExt, decode_messages
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, after, simulate

COMMIT, ROLLBACK = 8, 12
HALF = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "U"}


async def send_half(popper: Popper, properties: dict[str, str]) -> RemotingCommand:
    return await popper.ask(
        10,
        b"half",
        producerGroup="p",
        topic="T",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=1,
        sysFlag=4,
        bornTimestamp=popper.now_ms,
        flag=0,
        properties=encode_properties({**HALF, **properties}).decode(),
    )


async def end(popper: Popper, sent: RemotingCommand, decision: int = COMMIT) -> int:
    response = await popper.ask(
        37,
        producerGroup="p",
        tranStateTableOffset=sent.ext_fields["queueOffset"],
        commitLogOffset=decode_message_id(sent.ext_fields["msgId"]).phy_offset,
        commitOrRollback=decision,
        msgId="U",
        fromTransactionCheck="false",
    )
    return response.code


async def delivered(popper: Popper, topic: str = "T", queue_id: int = 1) -> list[MessageExt]:
    response = await popper.ask(
        11,
        consumerGroup="c",
        topic=topic,
        queueId=queue_id,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription="*",
        subVersion=0,
    )
    return decode_messages(response.body) if response.code == 0 else []


@pytest.mark.parametrize(
    ("properties", "wait_s"),
    [({"DELAY": "3"}, 10), ({"TIMER_DELAY_SEC": "20"}, 20), ({"TIMER_DELAY_MS": "20000"}, 20)],
)
def test_delayed_half_delay_starts_at_commit(properties: dict[str, str], wait_s: int) -> None:
    async def case(_cluster: SimCluster, popper: Popper) -> list[MessageExt]:
        sent = await send_half(popper, properties)
        assert sent.code == 0
        assert "recallHandle" not in sent.ext_fields, "nothing waits yet that could be recalled"
        await after(30)
        assert await delivered(popper) == [], "nothing is delivered before the commit"
        assert await end(popper, sent) == 0
        await after(wait_s - 2)
        assert await delivered(popper) == []
        await after(4)
        return await delivered(popper)

    [message] = simulate(case, transactionTimeOut="600000")
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"half")
    assert message.sys_flag & COMMIT
    assert message.properties["UNIQ_KEY"] == "U"
    assert message.properties["REAL_TOPIC"] == "T", "as of every delayed message"


def test_delayed_half_delivery_time_is_kept_or_immediate_if_past() -> None:
    async def case(_cluster: SimCluster, popper: Popper) -> None:
        moment = popper.now_ms + 60_000
        sent = await send_half(popper, {"TIMER_DELIVER_MS": str(moment)})
        late = await send_half(popper, {"TIMER_DELIVER_MS": str(moment), "UNIQ_KEY": "late"})
        assert await end(popper, sent) == 0
        await after(55)
        assert await delivered(popper) == []
        await after(7)
        [first] = await delivered(popper)
        assert first.store_timestamp_ms >= moment
        assert await end(popper, late) == 0
        assert [one.properties["UNIQ_KEY"] for one in await delivered(popper)] == ["U", "late"]

    simulate(case, transactionTimeOut="600000")


def test_delayed_half_rolled_back_is_not_delivered() -> None:
    async def case(_cluster: SimCluster, popper: Popper) -> None:
        sent = await send_half(popper, {"TIMER_DELAY_SEC": "3"})
        assert await end(popper, sent, ROLLBACK) == 0
        await after(30)
        assert await delivered(popper) == []
        assert await delivered(popper, "rmq_sys_wheel_timer", 0) == []

    simulate(case)


@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        ({"DELAY": "soon"}, 1, "DELAY is not a decimal integer"),
        ({"TIMER_DELAY_SEC": "soon"}, 13, "timer message illegal"),
        ({"TIMER_DELAY_SEC": "864000"}, 13, "timer message illegal"),
    ],
)
def test_delayed_half_invalid_delay_is_refused_on_send(
    properties: dict[str, str], code: int, remark: str
) -> None:
    async def case(_cluster: SimCluster, popper: Popper) -> Any:
        return await send_half(popper, properties)

    refused = simulate(case)
    assert refused.code == code
    assert remark in refused.remark
