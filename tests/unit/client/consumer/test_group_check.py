"""A group that does not exist is named, by every kind of consumer, until it is created."""

from typing import Any

import pytest

from rocketpy.client.consumer.rebalance import check_group_exists
from rocketpy.errors import SubscriptionGroupNotExistError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

PULL = 11
STRICT = {"autoCreateSubscriptionGroup": "false"}
QUEUE = MessageQueue("t", "broker-a", 0)


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_consumer_reports_a_missing_group_and_recovers_when_it_exists(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        async with cluster.client() as client:
            make: Any = getattr(client, kind)
            async with make("t", group="unknown", start="earliest", start_timeout=5) as consumer:
                assert not client.health().ok
                [why] = consumer.health().failures.values()
                assert "SubscriptionGroupNotExistError" in why
                assert "unknown" in why
                assert any(
                    record.levelname == "WARNING" and "SubscriptionGroupNotExist" in record.message
                    for record in caplog.records
                )
                groups = cluster.world.brokers[0].broker.parts.groups
                groups.put(SubscriptionGroupConfig(group_name="unknown"))
                assert (await consumer.getone(12)).body == b"0"
                await until(lambda: bool(client.health().ok), 12)

    run_sim(main, properties=STRICT)


@pytest.mark.parametrize(
    "answer", [None, 1, 24, "lost"], ids=["a group that is made", "failure", "no member", "lost"]
)
def test_group_check_ignores_answers_about_other_things(answer: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.producer().send("t", b"x")
            instance = client._running()
            cluster.script[PULL] = [answer]
            await check_group_exists(instance, "g", QUEUE)
            cluster.down.add(BROKER_A)
            await check_group_exists(instance, "g", QUEUE)
            await check_group_exists(instance, "g", MessageQueue("t", "broker-z", 0))

    run_sim(main)


def test_error_has_the_words_of_the_broker() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.producer().send("t", b"x")
            await pass_time(1)
            with pytest.raises(SubscriptionGroupNotExistError, match=r"\[nobody\] does not exist"):
                await check_group_exists(client._running(), "nobody", QUEUE)

    run_sim(main, properties=STRICT)
