"""The numbers of back-off, pauses and shares; flow control as its own kind of failure."""

import itertools
import random

import pytest

from rocketpy.client.sending.backoff import backoff_ms, pause_ms, share_ms
from rocketpy.errors import FlowControlError
from tests.unit.client.sends import SEND, Sends, warm
from tests.unit.client.sim import Cluster, run_sim


def test_back_off_of_flow_control() -> None:
    rng = random.Random(5)
    assert {backoff_ms(1, rng) for _ in range(20)} == {1000}
    for failures, middle in ((2, 1600), (3, 2560), (4, 4096), (11, 109_951), (12, 120_000)):
        found = [backoff_ms(failures, rng) for _ in range(2000)]
        assert 0.8 * middle - 1 <= min(found) <= 0.82 * middle, failures
        assert 1.18 * middle <= max(found) <= 1.2 * middle, failures
    assert backoff_ms(10_000, rng) <= 144_000


def test_pauses_without_a_reachable_broker_are_short_for_a_second_and_then_grow() -> None:
    assert [pause_ms(n) for n in range(1, 13)] == [25, 40, 64] + 9 * [100]
    assert [pause_ms(n) for n in range(13, 19)] == [160, 256, 409, 655, 1000, 1000]
    assert pause_ms(10_000) == 1000


@pytest.mark.parametrize(
    ("left_ms", "attempts_left", "after_flow_control", "share"),
    [
        (3000, 3, False, 1000),
        (2000, 2, False, 1000),
        (1000, 1, False, 1000),
        (60_000, 3, False, 20_000),
        (450, 3, False, 200),
        (300, 3, False, 150),
        (3000, 3, True, 1500),
        (90_000, 9, False, 10_000),
        (90_000, 9, True, 20_000),
        (90_000, 2, True, 45_000),
    ],
)
def test_share_of_an_attempt(
    left_ms: int, attempts_left: int, after_flow_control: bool, share: int
) -> None:
    assert share_ms(left_ms, attempts_left, after_flow_control=after_flow_control) == share


@pytest.mark.parametrize("code", [2, 215, 530, 42900])
def test_flow_control_is_one_error_that_says_how_long(code: int) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(flow_control_retry="none")
            await warm(producer, cluster)
            cluster.script[SEND] = [code]
            with pytest.raises(FlowControlError) as caught:
                await producer.send("t", b"x")
            assert caught.value.code == code
            assert caught.value.retry_after == pytest.approx(1.0, abs=0.01)
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main)


def test_flow_control_backs_off_from_begin_to_begin_and_prefers_another_broker() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=3, timeout=30)
            await warm(producer, cluster)
            cluster.script[SEND] = [2, 530, 215]
            sends = Sends(cluster)
            await producer.send("t", b"x")
        times = [at for at, request in cluster.times if request.code == SEND]
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses[0] == pytest.approx(1000, abs=2)
        assert 1280 <= pauses[1] <= 1920
        assert 2048 <= pauses[2] <= 3072
        brokers = sends.tried_brokers
        assert all(one != other for one, other in itertools.pairwise(brokers))

    run_sim(main, brokers=2)


def test_no_pause_goes_beyond_the_time() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=9)
            await warm(producer, cluster)
            cluster.script[SEND] = [2] * 9
            sends = Sends(cluster)
            with pytest.raises(FlowControlError) as caught:
                await producer.send("t", b"x")
            assert sends.took_ms < 3000
            assert len(sends.tried) == 3
            assert 2.0 < caught.value.retry_after < 3.1
            assert len(caught.value.__notes__) == 2

    run_sim(main)


def test_broker_that_freezes_after_flow_control_has_more_patience() -> None:
    """The minimum connect timeout of 20 s is the floor of an attempt's share, up to half."""

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=9, timeout=60)
            await warm(producer, cluster)
            cluster.script[SEND] = [2, "lost"]
            sends = Sends(cluster)
            await producer.send("t", b"x")
            (_, first), (second_at, second), (third_at, third) = sends.tried
            assert (second_at, third_at) == (10, 210)
            assert first != second != third

    run_sim(main, brokers=2)
