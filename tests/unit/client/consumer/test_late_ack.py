"""Outcomes of messages after their consumer closed."""

import asyncio
from typing import Any

import pytest

from rocketpy.errors import ClosedError
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill


def test_ack_after_the_close_raises_unless_acked_before() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            async with client.consumer(
                "t", group="g", start="earliest", auto_ack=False
            ) as consumer:
                first = await consumer.getone(timeout=60)
                second = await consumer.getone(timeout=60)
                assert first is not None
                assert second is not None
                await first.ack()
            await first.ack()
            with pytest.raises(ClosedError, match="closed before"):
                await second.ack()

    run_sim(main, queues=1)


async def settle(message: Any, how: str) -> None:
    if how == "nack with a delay":
        await message.nack(delay=30)
    else:
        await getattr(message, how)()


@pytest.mark.parametrize("auto_ack", [True, False])
@pytest.mark.parametrize("how", ["ack", "nack", "nack with a delay", "in_progress"])
@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_outcome_after_the_close_raises_for_unsettled_messages_only(
    kind: str, how: str, *, auto_ack: bool
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            make = getattr(client, kind)
            async with make("t", group="g", start="earliest", auto_ack=auto_ack) as consumer:
                settled = await consumer.getone(timeout=60)
                await settled.ack()
                unsettled = await consumer.getone(timeout=60)
            await settle(settled, how)
            with pytest.raises(ClosedError, match="consumer closed before"):
                await settle(unsettled, how)

    run_sim(main, queues=1)


def test_handler_that_ends_during_the_close_raises_nothing() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)

        async def handle(message: Any) -> None:
            try:
                await pass_time(60)
            except asyncio.CancelledError:  # the close has given up
                raise ValueError from None

        async with cluster.client() as client:
            async with client.consumer(
                "t", group="g", start="earliest", handler=handle, stop_timeout=1
            ):
                await pass_time(5)

    run_sim(main, queues=1)
