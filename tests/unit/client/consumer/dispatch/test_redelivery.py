"""Requests of a redelivery, and its fallback when the broker fails."""

import zlib
from typing import Any

import pytest

from rocketpy.client.consumer.dispatch.redelivery import Redelivery
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.errors import BrokerError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import parse_properties
from tests.unit.client.sim import Cluster, run_sim


async def ask(
    cluster: Cluster,
    level: int = 0,
    *,
    max_retries: int = -1,
    delay_s: float | None = None,
    **stored: Any,
) -> dict[str, str]:
    """Give one message back; returns the ext fields of the request."""
    offset = cluster.put("t", b"body", properties={"KEYS": "k", "TRAN_MSG": "true"})
    ext = decode_message(cluster.record("t", 0, offset))
    for name, value in stored.items():
        setattr(ext, name, value)
    async with cluster.client() as client:
        instance = client._instance
        assert instance is not None
        await instance.routes.refresh("t")
        redelivery = Redelivery(instance, "c", max_retries)
        message = ReceivedMessage(ext, MessageQueue("t", "broker-a", 0))
        await redelivery.request(message, Rejection(level, delay_s, "ValueError", "no\x01 such"))
    return cluster.of_code(36)[-1].ext_fields


def test_broker_that_has_it_is_asked_first() -> None:
    async def main(cluster: Cluster) -> None:
        sent = await ask(cluster, 5)
        assert sent["group"] == "c"
        assert (sent["originTopic"], sent["originMsgId"]) == ("t", "U0-0")
        assert (sent["delayLevel"], sent["maxReconsumeTimes"]) == ("5", "16")
        assert sent["offset"] == "0"
        sent = await ask(cluster, max_retries=0, topic="%RETRY%c")
        assert sent["originTopic"] == "%RETRY%c", "the topic it lies in"
        assert sent["maxReconsumeTimes"] == "0"

    run_sim(main, queues=1)


def test_when_the_broker_fails_a_copy_goes_to_the_retry_topic() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[36] = [1]
        cluster.script[310] = [1, 1, 1]
        with pytest.raises(BrokerError):
            await ask(cluster, 0, reconsume_times=2)
        request = cluster.of_code(310)[0]
        header = request.ext_fields
        assert (request.body, header["b"]) == (b"body", "%RETRY%c")
        assert (header["j"], header["l"]) == ("3", "16")
        properties = parse_properties(header["i"])
        assert properties["RETRY_TOPIC"] == "t"
        assert len(properties["ORIGIN_MESSAGE_ID"]) == 32
        assert (properties["UNIQ_KEY"], properties["KEYS"]) == ("U0-0", "k")
        assert properties["DELAY"] == "5", "level 3 and one more for each try"
        assert "TRAN_MSG" not in properties

    run_sim(main, queues=1, topics=("t", "%RETRY%c"))


@pytest.mark.parametrize(("tries", "level"), [(16, 0), (0, -1)])
def test_copy_after_the_last_try_or_for_the_dead_letters_becomes_one(
    tries: int, level: int
) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[36] = [1]
        await ask(cluster, level, reconsume_times=tries)
        copy = decode_message(cluster.record("%DLQ%c", 0, 0))
        assert (copy.body, copy.reconsume_times) == (b"body", tries + 1)
        assert copy.properties["RETRY_TOPIC"] == "t"

    run_sim(main, queues=1, topics=("t", "%RETRY%c"))


def test_big_bodies_are_compressed_again_and_bad_ones_stay_as_they_are() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[36] = [1, 1]
        await ask(cluster, -1, body=b"x" * 5_000)
        big = cluster.of_code(310)[-1]
        assert zlib.decompress(big.body) == b"x" * 5_000
        assert int(big.ext_fields["f"]) & 1
        await ask(cluster, -1, body=b"no zlib", sys_flag=1 | 8)
        assert cluster.of_code(310)[-1].body == b"no zlib"
        assert cluster.of_code(310)[-1].ext_fields["f"] == "1", "a send is in no transaction"

    run_sim(main, queues=1, topics=("t", "%RETRY%c"))


def test_send_back_that_fails_everywhere_raises() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.supports_send_back = False
        with pytest.raises(BrokerError):
            await ask(cluster)

    run_sim(main, queues=1, topics=("t", "%RETRY%c"))


def test_redelivery_knows_where_it_came_from() -> None:
    first = MessageExt("t", offset_msg_id="A")
    again = MessageExt(
        "%RETRY%c",
        offset_msg_id="B",
        reconsume_times=2,
        properties={"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "A"},
    )
    queue = MessageQueue("%RETRY%c", "b", 0)
    for ext, retries in ((first, 0), (again, 2)):
        message = ReceivedMessage(ext, queue)
        assert (message.topic, message.origin_id, message.retries) == ("t", "A", retries)


@pytest.mark.parametrize(
    ("delay_s", "level"), [(0, 1), (1, 1), (1.001, 2), (45, 5), (600, 14), (7_200, 18), (9e9, 18)]
)
def test_delay_is_rounded_up_to_the_next_level(delay_s: float, level: int) -> None:
    async def main(cluster: Cluster) -> None:
        sent = await ask(cluster, delay_s=delay_s)
        assert sent["delayLevel"] == str(level)

    run_sim(main, queues=1)


@pytest.mark.parametrize(("level", "tries"), [(-1, 0), (0, 16), (3, 16)])
def test_cause_goes_with_what_becomes_a_dead_letter(level: int, tries: int) -> None:
    async def main(cluster: Cluster) -> None:
        sent = await ask(cluster, level, reconsume_times=tries)
        assert sent["dlqException"] == "ValueError"
        assert int(sent["dlqTime"]) <= cluster.clock.time_ms()
        assert sent["dlqMember"].startswith("10.0.0.1@")
        assert not [name for name in await ask(cluster, 0) if name.startswith("dlq")]

    run_sim(main, queues=1)


def test_copy_that_becomes_a_dead_letter_has_its_cause_as_properties() -> None:
    async def main(cluster: Cluster) -> None:
        for level, causes in ((-1, 4), (0, 0)):
            cluster.script[36] = [1]
            cluster.script[310] = [1, 1, 1]
            with pytest.raises(BrokerError):
                await ask(cluster, level)
            properties = parse_properties(cluster.of_code(310)[-1].ext_fields["i"])
            assert len([name for name in properties if name.startswith("DLQ_")]) == causes
            assert properties.get("DLQ_REASON") == ("no such" if causes else None)

    run_sim(main, queues=1)
