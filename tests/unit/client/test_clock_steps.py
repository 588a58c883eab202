"""A wall clock that is set, forwards or backwards, breaks nothing."""

import random

import pytest

from rocketpy.client.cluster.message_ids import MsgIds
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.runtime.clock import Clock
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, of_topic, until

HOUR_MS = 3_600_000


class SetClock(Clock):
    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.run_ms = 5_000

    def time_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.run_ms


@pytest.mark.parametrize("step_ms", [10 * 60_000, -10 * 60_000, 24 * HOUR_MS])
def test_queue_is_kept_and_its_messages_are_handled_once(step_ms: int) -> None:
    async def main(cluster: Cluster) -> None:
        handled: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            await pass_time(30)
            handled.append(message.body)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handler) as c:
                fill(cluster, 3)
                await until(lambda: c.health().queues and of_topic(c))
                await pass_time(5)
                cluster.clock.jump(step_ms)
                await pass_time(120)
                pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
        assert sorted(handled) == [b"0", b"1", b"2"]
        assert not cluster.sent_back  # nothing looked as if it took hours
        offsets = [request.ext_fields["queueOffset"] for request in pulls]
        assert offsets.count("0") == 1  # it was never begun afresh

    run_sim(main, queues=1)


def test_time_spent_is_never_negative() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)

        async def handler(message: ReceivedMessage) -> None:
            await pass_time(2)
            cluster.clock.jump(-HOUR_MS)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handler) as c:
                await until(lambda: c.stats.report("t").consume_ok_tps > 0)
                assert c.stats.report("t").consume_rt == 2000

    run_sim(main, queues=1)


def test_newer_subscription_wins_although_the_clock_went_back() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", filter="a", start="earliest") as consumer:
                cluster.clock.jump(-HOUR_MS)
                consumer.subscribe("t", "b")
                versions = [entry.sub_version for entry in consumer._subscriptions.values()]
                await pass_time(2)
        assert versions[0] > versions[1]  # t was subscribed to after the retry topic

    run_sim(main, queues=1)


def test_message_ids_never_come_again() -> None:
    clock = SetClock()
    ids = MsgIds("10.0.0.1", 1, clock, random.Random(1))
    first = {ids.next() for _ in range(0x10000)}
    clock.run_ms += 50  # meanwhile the wall clock was set back by as much

    again = {ids.next() for _ in range(100)}

    assert len(first) == 0x10000
    assert not first & again
