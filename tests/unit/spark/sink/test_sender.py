"""Sending in a simulated cluster: every row is acknowledged, or the task fails."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from rocketpy.client.config import ProducerConfig
from rocketpy.client.sending.outgoing_message import Outgoing, id_properties
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import BrokerError
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.spark.options import parse_options
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.sink.rows import BadRow, SinkRow
from rocketpy.spark.sink.sender import Sender
from tests.unit.client.sim import NAMESRV, Cluster, pass_time, run_sim

SEND = 310


def row(number: int, body: bytes = b"", *, key: str | None = None) -> SinkRow:
    msg_id = f"{number:032X}"
    message = Outgoing(body or b"%d" % number, id_properties(msg_id), 0, 0, msg_id)
    return SinkRow(number, "t", message, key)


def dead(bad: BadRow, topic: str) -> SinkRow:
    message = Outgoing(bad.reason.encode(), id_properties(f"{bad.number:032X}"), 0, 0, "D")
    return SinkRow(bad.number, topic, message)


@asynccontextmanager
async def sending(cluster: Cluster, **options: str) -> AsyncIterator[Sender]:
    """Yield a sender with a client; without options each row is a request."""
    given = {"nameservers": NAMESRV, "batch.maxBytes": "0", **options}
    async with cluster.client() as client:
        instance = client._instance
        assert instance is not None
        made: Any = SimpleNamespace(
            instance=instance, transport=SendTransport(instance, "g", ProducerConfig())
        )
        reader: Any = SimpleNamespace(dead=dead)
        yield Sender(made, parse_options(given, SinkOptions), reader)


async def send_all(sender: Sender, numbers: Iterable[int]) -> None:
    await sender.send([row(number) for number in numbers])
    await sender.finish()


def rows_stored(sender: Sender) -> int:
    return sum(each.rows for each in sender.stored)


@pytest.mark.parametrize("options", [{}, {"inflight": "1"}, {"batch.maxBytes": "4k"}], ids=str)
def test_finish_waits_until_every_row_is_acknowledged(options: dict[str, str]) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.latency_ms = 5
        async with sending(cluster, **options) as sender:
            for first in range(0, 600, 300):
                await sender.send([row(number) for number in range(first, first + 300)])
            await sender.finish()
        assert rows_stored(sender) == cluster.world.message_count("t") == 600

    run_sim(main)


def test_send_limits_requests_in_flight() -> None:
    async def main(cluster: Cluster) -> None:
        async with sending(cluster, inflight="7") as sender:
            await sender.send([row(0)])
            await sender.settle()
            cluster.latency_ms = 1_000
            running = asyncio.create_task(sender.send([row(number) for number in range(1, 21)]))
            await pass_time(0.5)
            assert len(cluster.of_code(SEND)) == 1 + 7
            assert not running.done()
            await running
            await sender.finish()
        assert rows_stored(sender) == 21

    run_sim(main)


def test_send_checks_outcomes_behind_a_slow_request() -> None:
    """The first response is late; outcomes behind it are checked meanwhile."""

    async def main(cluster: Cluster) -> None:
        async with sending(cluster, inflight="4", sendTimeoutMs="60s") as sender:
            cluster.script[SEND] = ["lost"]
            await sender.send([row(number) for number in range(500)])
            assert len(sender._sent) <= 2 * 4 + 64
            assert rows_stored(sender) > 400
            await sender.settle()

    run_sim(main)


def test_send_rejected_row_fails_and_is_named() -> None:
    async def main(cluster: Cluster) -> None:
        async with sending(cluster, inflight="2") as sender:
            await send_all(sender, range(5))
            cluster.script[SEND] = [ResponseCode.MESSAGE_ILLEGAL]
            with pytest.raises(BrokerError) as caught:
                await send_all(sender, range(5, 50))
            assert "row 5 of the partition" in " ".join(caught.value.__notes__)
            await sender.settle()
            assert len(cluster.of_code(SEND)) < 20, "it ends soon after the failure"

    run_sim(main)


def test_send_rejected_row_goes_to_the_dead_letter_topic() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("dead")
        async with sending(cluster, onError="dlq", dlqTopic="dead") as sender:
            cluster.script[SEND] = [ResponseCode.MESSAGE_ILLEGAL]
            await sender.send([row(0)])
            await sender.finish()
        assert sender.dead_rows == 1
        assert cluster.world.message_count("dead") == 1
        assert cluster.world.message_count("t") == 0

    run_sim(main)


def test_send_rejected_batch_is_sent_row_by_row() -> None:
    async def main(cluster: Cluster) -> None:
        async with sending(cluster, **{"batch.maxBytes": "4k"}) as sender:
            cluster.script[320] = [ResponseCode.MESSAGE_ILLEGAL]
            await sender.send([row(number) for number in range(3)])
            await sender.finish()
        assert rows_stored(sender) == cluster.world.message_count("t") == 3

    run_sim(main)


def test_send_rows_with_a_key_keeps_their_order() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("t")
        cluster.latency_ms = 20
        async with sending(cluster) as sender:
            await sender.send([row(number, key="k") for number in range(30)])
            await sender.finish()
        bodies = [request.body for request in cluster.of_code(SEND)]
        assert bodies == [b"%d" % number for number in range(30)]
        (stored,) = sender.stored
        assert (stored.rows, stored.last - stored.first) == (30, 29)

    run_sim(main)
