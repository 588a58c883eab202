"""An ack after the consumer closed."""

import pytest

from rocketpy.errors import ClosedError
from tests.unit.client.sim import Cluster, run_sim
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
            with pytest.raises(ClosedError, match="closed before the ack"):
                await second.ack()

    run_sim(main, queues=1)
