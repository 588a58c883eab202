"""Who made a topic may look for its route at once."""

from pathlib import Path

import rocketpy
from rocketpy.testing.cluster import LocalCluster


async def test_name_servers_know_a_new_topic_when_its_first_send_is_answered(
    tmp_path: Path,
) -> None:
    async with (
        LocalCluster(tmp_path) as cluster,
        rocketpy.connect(cluster.namesrv) as client,
        client.pull_consumer(group="g") as consumer,
    ):
        producer = client.producer()
        for number in range(10):
            await producer.send(f"new{number}", b"x")
            assert len(await consumer.queues(f"new{number}")) == 4
            assert cluster.message_count(f"new{number}") == 1
