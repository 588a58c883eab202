"""Every send ends once, as its state machine says: results, cancellations, faults of our own."""

import asyncio

import pytest

from rocketpy.client.sending.pending_send import TRANSITIONS, State
from rocketpy.errors import IllegalMessageError
from tests.unit.client.sim import Cluster, pass_time, run_sim

SEND = 310


def test_every_state_is_reached_and_only_done_is_the_end() -> None:
    assert TRANSITIONS.keys() == set(State)
    assert {state for state, after in TRANSITIONS.items() if not after} == {State.DONE}
    assert set().union(*TRANSITIONS.values()) == set(State) - {State.NEW}


def test_module_says_what_the_table_says() -> None:
    from rocketpy.client.sending import pending_send  # noqa: PLC0415

    said = {
        (words[0], words[-1])
        for line in (pending_send.__doc__ or "").splitlines()
        if (words := line.split()) and words[0] in State.__members__
    }
    assert said == {(state.name, to.name) for state, after in TRANSITIONS.items() for to in after}


def test_send_cancelled_while_it_backs_off_is_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(timeout=30)
            cluster.script[SEND] = [2]
            future = producer.send_nowait("t", b"x")
            await pass_time(0.2)
            future.cancel()
            await producer.flush()
        assert len(cluster.of_code(SEND)) == 1
        assert cluster.world.message_count("t") == 0

    run_sim(main)


def test_send_cancelled_while_its_route_is_asked_for_is_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            future = producer.send_nowait("t", b"x")
            future.cancel()
            await producer.flush()
            assert producer.in_flight == 0
        assert not cluster.of_code(SEND)

    run_sim(main)


def test_body_that_breaks_a_limit_does_not_keep_others_waiting() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=1, timeout=60)
            cluster.latency_ms = 1_000
            first = producer.send_nowait("t", b"first")
            bad = asyncio.create_task(producer.send("t", b""))
            await pass_time(0)
            ready = asyncio.create_task(producer.ready())
            await first
            with pytest.raises(IllegalMessageError):
                await bad
            async with asyncio.timeout(5):
                await ready

    run_sim(main)


def test_fault_while_the_route_is_read_reaches_every_sender() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[105] = [ZeroDivisionError("a fault of our own")] * 2
        async with cluster.client() as client:
            producer = client.producer()
            futures = [producer.send_nowait("t", b"x") for _ in range(2)]
            for future in futures:
                with pytest.raises(ZeroDivisionError):
                    await asyncio.wait_for(future, 10)
            assert producer.in_flight == 0

    run_sim(main)
