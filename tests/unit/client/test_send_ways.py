"""Every way to send is tried again but one; a call has its own time; a repeat keeps its id."""

import asyncio
from typing import Any

import pytest

from rocketpy.errors import RequestTimeoutError, ServiceNotAvailableError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sends import SEND, Sends, first_on, freeze, warm
from tests.unit.client.sim import Cluster, pass_time, run_sim

BATCH = 320


@pytest.mark.parametrize("failure", [14, "lost", "cut"])
def test_sync_async_and_batch_sends_are_tried_again_and_one_way_is_not(failure: Any) -> None:
    async def main(cluster: Cluster) -> None:
        def cut(address: str, _: Any) -> None:
            broker = next(e for e in cluster.world.brokers if e.address == address)
            for end in cluster.world.network.ends_of(broker.host):
                end.peer.cut()

        step = cut if failure == "cut" else failure
        async with cluster.client() as client:
            producer = client.producer()
            for code, send in (
                (SEND, lambda: producer.send("t", b"sync")),
                (SEND, lambda: producer.send_nowait("t", b"async")),
                (BATCH, lambda: producer.send_batch("t", [b"1", b"2"])),
            ):
                await warm(producer, cluster)  # what is cut must be there: whichever broker is next
                cluster.script[code] = [step]
                await send()
                assert len(cluster.of_code(code)) == 2
            await warm(producer, cluster)
            cluster.script[SEND] = [step]
            producer.send_oneway("t", b"one-way")
            await pass_time(5)
            assert len(cluster.of_code(SEND)) == 1

    run_sim(main, brokers=2)


def test_but_for_flow_control_a_retry_is_immediate() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=5)
            await warm(producer, cluster)
            cluster.script[SEND] = [1, 14, 16, 17, 204]
            sends = Sends(cluster)
            await producer.send("t", b"x")
            assert [at for at, _ in sends.tried] == [0] * 6

    run_sim(main)


def test_call_has_its_own_time_and_retries() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            cluster.script[SEND] = ["lost"]
            sends = Sends(cluster)
            with pytest.raises(RequestTimeoutError):
                await producer.send("t", b"x", timeout=0.7)
            assert sends.took_ms == pytest.approx(700, abs=2)
            cluster.script[SEND] = [14] * 9
            sends = Sends(cluster)
            with pytest.raises(ServiceNotAvailableError):
                await producer.send("t", b"x", retries=6)
            assert len(sends.tried) == 7

    run_sim(main)


def test_number_of_attempts_is_three_by_default() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            cluster.script[SEND] = [14] * 9
            with pytest.raises(ServiceNotAvailableError):
                await producer.send("t", b"x")
        assert len(cluster.of_code(SEND)) == 3

    run_sim(main)


def test_repeat_may_be_stored_twice_under_one_id() -> None:
    async def main(cluster: Cluster) -> None:
        ids = []

        async def handle(message: Any) -> None:
            ids.append(message.id)

        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            freeze(cluster, 0)
            sent = await producer.send("t", b"x")
            cluster.world.network.heal()
            async with client.consumer("t", group="g", start="earliest", handler=handle):
                await pass_time(60)
        assert ids.count(sent.msg_id) == 2
        assert len(ids) == 10

    run_sim(main, brokers=2)


@pytest.mark.parametrize("fails", [0, 1, 2, 3])
def test_after_one_of_two_masters_fails_the_other_is_tried(fails: int) -> None:
    """Two masters with four queues each, whichever queue of master a it begins with."""

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            route = producer._started.route("t")  # type: ignore[union-attr]
            route._turn = route.queues.index(MessageQueue("t", "broker-a", fails)) - 1
            cluster.world.brokers[0].kill()
            sends = Sends(cluster)
            result = await producer.send("t", b"x")
            assert result.queue.broker_name == "broker-b"
            assert sends.tried_brokers == ["broker-a", "broker-b"]
            await cluster.world.brokers[0].start()

    run_sim(main, brokers=2)


def test_new_topic_gets_four_queues_on_each_broker() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            results = await asyncio.gather(*[producer.send_nowait("new", b"x") for _ in range(16)])
            assert len({result.queue for result in results}) == 8
            await pass_time(1)
            for each in cluster.world.brokers:
                config = each.broker.parts.topics.get("new")
                assert config is not None
                assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)

    run_sim(main, brokers=2, queues=8)
