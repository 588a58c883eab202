"""A member of a group that pops: what it asks to pop, and what it leaves behind."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.errors import ClientError, ClosedError, ConfigError
from rocketpy.proto.bodies.lock import (
    MessageQueueAssignment,
    QueryAssignmentResponseBody,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

POP, ACK, CHANGE, ASSIGNMENT = 200050, 200051, 200053, 400
WHOLE = MessageQueue("t", "broker-a", -1)


async def nothing(_message: PoppedMessage) -> None:
    return None


def test_group_without_a_mode_pops_whole_brokers() -> None:
    async def main(cluster: Cluster) -> list[MessageQueue]:
        async with cluster.client() as client:
            async with client.pop_consumer("t", group="g", handler=nothing) as consumer:
                return consumer.assignment

    assert run_sim(main, brokers=2) == [WHOLE, MessageQueue("t", "broker-b", -1)]


FIRST, SECOND = (MessageQueue("t", "broker-a", number) for number in range(2))


def assign(cluster: Cluster, *rounds: set[MessageQueue]) -> None:
    """Have the broker assign these queues, round by round; the last ones from then on."""
    left = list(rounds)

    def step(_: str, request: RemotingCommand) -> RemotingCommand:
        queues = left[0] if len(left) == 1 else left.pop(0)
        listed = [MessageQueueAssignment(queue, "POP") for queue in sorted(queues)]
        return make_response(request, body=QueryAssignmentResponseBody(listed).encode())

    cluster.script[ASSIGNMENT] = [step] * 100


def test_queues_that_the_broker_assigns_are_popped_and_given_up_when_it_says_so() -> None:
    async def main(cluster: Cluster) -> None:
        assign(cluster, {FIRST, SECOND})
        async with cluster.client() as client:
            async with client.pop_consumer("t", group="g", handler=nothing) as consumer:
                assert consumer.assignment == [FIRST, SECOND]
                assign(cluster, {SECOND})
                await pass_time(25)
                assert consumer.assignment == [SECOND]

    run_sim(main)


def test_start_does_not_wait_for_a_queue_that_is_given_up_meanwhile() -> None:
    async def main(cluster: Cluster) -> None:
        assign(cluster, {FIRST, SECOND}, {SECOND})
        cluster.script[POP] = ["lost"]
        async with cluster.client() as client:
            began_ms = cluster.elapsed_ms
            async with client.pop_consumer(
                "t", group="g", handler=nothing, rebalance_interval=1
            ) as consumer:
                assert cluster.elapsed_ms - began_ms < 4_000
                assert consumer.assignment == [SECOND]

    run_sim(main)


def test_assignment_that_cannot_be_learnt_changes_nothing_and_is_shown() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pop_consumer("t", group="g", handler=nothing) as consumer:
                assert consumer.health().ok
                cluster.script[ASSIGNMENT] = [1] * 100
                await pass_time(25)
                assert consumer.assignment == [WHOLE]
                assert "assignment g" in consumer.health().failures
                cluster.script[ASSIGNMENT].clear()
                await pass_time(25)
                assert consumer.health().ok

    run_sim(main)


def test_message_sent_after_the_start_is_received() -> None:
    async def main(cluster: Cluster) -> list[bytes]:
        fill(cluster, 3)
        cluster.store().flush_log()
        got: list[bytes] = []

        async def handler(message: PoppedMessage) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            async with client.pop_consumer(
                "t", group="g", start="earliest", handler=handler
            ) as consumer:
                cluster.put("t", b"after")
                await until(lambda: len(got) == 4)
                await until(lambda: consumer.in_hand == 0)
                assert len(cluster.of_code(ACK)) == 4
        return got

    assert sorted(run_sim(main, queues=1)) == [b"0", b"1", b"2", b"after"]


def test_stop_leaves_the_group_and_what_was_popped_comes_back() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            consumer = client.pop_consumer("t", group="g", start="earliest", invisible_time=10)
            await consumer.start()
            await until(lambda: consumer.in_hand == 4)
            assert cluster.members("g") == [client.client_id]
            await consumer.close()
            assert (consumer.in_hand, consumer.assignment) == (0, [])
            assert cluster.members("g") == []
            await consumer.close()
            with pytest.raises(ClosedError):
                await consumer.start()
            again = client.pop_consumer("t", group="g", start="earliest")
            async with again:
                await until(lambda: again.in_hand == 4)

    run_sim(main, queues=1)


def offsets_changed_to(cluster: Cluster, invisible_ms: str) -> list[int]:
    return [
        int(request.ext_fields["offset"])
        for request in cluster.of_code(CHANGE)
        if request.ext_fields["invisibleTime"] == invisible_ms
    ]


@pytest.mark.parametrize("how", ["close", "stop"])
@pytest.mark.parametrize("kind", ["handler", "loop"])
def test_close_nacks_unhandled_messages_for_the_next_member(kind: str, how: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        handled: list[bytes] = []

        async def handle(message: Any) -> None:
            await pass_time(2)
            handled.append(message.body)

        options: dict[str, Any] = {"group": "g", "start": "earliest", "invisible_time": 600}
        async with cluster.client() as client, cluster.client() as other:
            own: dict[str, Any] = {"handler": handle, "concurrency": 1} if kind == "handler" else {}
            consumer = client.pop_consumer("t", **options, **own)
            await consumer.start()
            await until(lambda: consumer.in_hand == 40)
            if kind == "loop":
                async for message in consumer:
                    await message.ack()
                    handled.append(message.body)
                    break
            began_ms = cluster.elapsed_ms
            if how == "stop":
                consumer.stop()
                await until(lambda: consumer.in_hand == (kind == "handler"), 1)
            await consumer.close()
            assert cluster.elapsed_ms - began_ms < 3_000
            assert handled == [b"0"]
            async with other.pop_consumer("t", **options) as second:
                rest = await second.getmany(100, timeout=10)
                while len(rest) < 39:
                    rest += await second.getmany(100, timeout=10)
                assert sorted(int(each.body) for each in rest) == list(range(1, 40))
                # Some came to the pop that waited when the first member left, and went on.
                assert {each.retries for each in rest} <= {1, 2}
                assert cluster.elapsed_ms - began_ms < 15_000

    run_sim(main, queues=1)


def test_message_of_a_cancelled_handler_is_nacked() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)

        async def cancelled(message: Any) -> None:
            await asyncio.Event().wait()

        async with cluster.client() as client:
            async with client.pop_consumer(
                "t", group="g", start="earliest", handler=cancelled, stop_timeout=2
            ) as consumer:
                await until(lambda: consumer.in_hand == 2)
            assert sorted(offsets_changed_to(cluster, "0")) == [0, 1]

    run_sim(main, queues=1)


def test_giving_back_takes_no_longer_than_a_close_may() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            consumer = client.pop_consumer("t", group="g", start="earliest", stop_timeout=2)
            await consumer.start()
            await until(lambda: consumer.in_hand == 4)
            cluster.script[CHANGE] = ["lost"] * 4
            began_ms = cluster.elapsed_ms
            await consumer.close()
            assert cluster.elapsed_ms - began_ms <= 3_100
            assert consumer.in_hand == 0

    run_sim(main, queues=1)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("outcome", ["acked", "failed"])
def test_close_with_finished_handlers_and_a_frozen_broker_takes_five_seconds(
    outcome: str, ordered: bool
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        handled: list[bytes] = []

        async def handle(message: Any) -> None:
            handled.append(message.body)
            if outcome == "failed":
                raise ValueError("not yet")

        client = cluster.client()
        await client.start()
        for code in (ACK, CHANGE):
            cluster.script[code] = ["lost"] * 1_000
        consumer = client.pop_consumer(
            "t", group="g", start="earliest", handler=handle, ordered=ordered
        )
        await consumer.start()
        await until(lambda: len(handled) >= 1)
        await pass_time(1)
        began_ms = cluster.elapsed_ms
        await client.close()
        assert cluster.elapsed_ms - began_ms <= 5_000
        assert consumer.in_hand == 0

    run_sim(main, queues=1)


def test_close_with_unfinished_acks_of_a_loop_takes_five_seconds() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        client = cluster.client()
        await client.start()
        cluster.script[ACK] = ["lost"] * 1_000
        consumer = client.pop_consumer("t", group="g", start="earliest")
        await consumer.start()
        await consumer.getone()
        service: Any = consumer._service
        service.done_soon(service.take_more(2))
        await pass_time(1)
        began_ms = cluster.elapsed_ms
        await client.close()
        assert cluster.elapsed_ms - began_ms <= 5_000

    run_sim(main, queues=1)


def test_close_acks_every_message_of_a_handled_batch() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        handled: list[bytes] = []

        async def handle(messages: Any) -> None:
            handled.extend(each.body for each in messages)

        async with cluster.client() as client:
            consumer = client.pop_consumer(
                "t", group="g", start="earliest", handler=handle, batch=32
            )
            await consumer.start()
            await until(lambda: len(handled) == 8)
            await consumer.close()
        assert len({each.ext_fields["offset"] for each in cluster.of_code(ACK)}) == 8
        assert offsets_changed_to(cluster, "0") == []

    run_sim(main, queues=1)


def test_messages_behind_running_handlers_are_renewed() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 30)
        handled: list[tuple[int, int]] = []

        async def handle(message: Any) -> None:
            await pass_time(1)
            handled.append((int(message.body), message.retries))

        async with cluster.client() as client:
            async with client.pop_consumer(
                "t", group="g", start="earliest", invisible_time=4, concurrency=1, handler=handle
            ):
                await until(lambda: len(handled) == 30, 60)
                await pass_time(20)
        assert handled == [(number, 0) for number in range(30)]
        assert len(cluster.of_code(ACK)) == 30

    run_sim(main, queues=1)


def test_messages_behind_a_hanging_handler_go_to_another_member() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        options: dict[str, Any] = {"group": "g", "start": "earliest", "invisible_time": 10}

        async def hangs(message: Any) -> None:
            await asyncio.Event().wait()

        async with cluster.client() as client, cluster.client() as other:
            async with client.pop_consumer(
                "t", concurrency=1, handler=hangs, stop_timeout=0, **options
            ) as consumer:
                await until(lambda: consumer.in_hand == 8)
                async with other.pop_consumer("t", **options) as second:
                    got: set[bytes] = set()
                    # Expired messages go to either member, so it may take several rounds.
                    async with asyncio.timeout(600):
                        while len(got) < 8:
                            got |= {each.body for each in await second.getmany(8, timeout=5)}

    run_sim(main, queues=1)


def test_iterating_acks_a_message_when_the_next_is_asked_for() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        seen: list[bytes] = []
        async with cluster.client() as client:
            async with client.pop_consumer("t", group="g", start="earliest") as consumer:
                async for message in consumer:
                    assert len(cluster.of_code(ACK)) == len(seen)
                    seen.append(message.body)
                    if len(seen) == 3:
                        break
        assert sorted(seen) == [b"0", b"1", b"2"]
        assert len(cluster.of_code(ACK)) == 2, "the loop was left with the last one in hand"

    run_sim(main, queues=1)


def test_iterating_with_a_handler_or_before_the_start_raises() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for options in ({}, {"handler": nothing}):
                consumer = client.pop_consumer("t", group="g", **options)  # type: ignore[arg-type]
                if options:
                    await consumer.start()
                with pytest.raises(ClosedError, match="to iterate"):
                    async for _ in consumer:
                        pass
                await consumer.close()

    run_sim(main)


def test_another_topic_is_popped_soon_after_it_is_subscribed() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("u", 1)
        async with cluster.client() as client:
            async with client.pop_consumer("t", group="g", handler=nothing) as consumer:
                consumer.subscribe("u", "a || b")
                await until(lambda: len(consumer.assignment) == 2, 5)
                await until(lambda: "a || b" in [r.ext_fields["exp"] for r in cluster.of_code(POP)])

    run_sim(main)


def test_group_has_one_consumer_of_a_client() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pop_consumer("t", group="g", handler=nothing):
                with pytest.raises(ClientError, match="already has"):
                    await client.pop_consumer("t", group="g").start()

    run_sim(main)


def test_unacknowledged_messages_stay_below_the_limit() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 20)
        async with cluster.client() as client:
            async with client.pop_consumer(
                "t", group="g", start="earliest", pop_batch=4, max_in_hand=8
            ) as consumer:
                await pass_time(5)
                assert consumer.in_hand == 8
                await anext(aiter(consumer))
                assert consumer.stats.report("t").pull_tps > 0

    run_sim(main, queues=1)


@pytest.mark.parametrize(
    "options",
    [
        {"pop_batch": 0}, {"pop_batch": 33}, {"invisible_time": 0},
        {"invisible_time": 3 * 86_400 + 1},
        {"start": "newest"}, {"max_in_hand": 0}, {"concurrency": 0}, {"group": "no blank"},
    ],
    ids=str,
)  # fmt: skip
def test_value_that_cannot_be_used_is_refused_and_named(options: dict[str, object]) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError) as refused:
                client.pop_consumer("t", **options)  # type: ignore[arg-type]
            assert refused.value.key in options

    run_sim(main)


@pytest.mark.parametrize("how", ["close", "stop"])
def test_messages_of_a_held_pop_after_close_go_to_the_next_member(
    how: str,
) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:
            consumer = client.pop_consumer("t", group="g", start="earliest", invisible_time=600)
            await consumer.start()
            await pass_time(1)  # a pop waits at the broker
            if how == "close":
                await consumer.close()
                assert cluster.members("g") == []
            else:
                consumer.stop()
            fill(cluster, 4)
            async with other.pop_consumer("t", group="g", invisible_time=600) as second:
                got = {received.body for _ in range(4) if (received := await second.getone(8))}
                assert got == {b"0", b"1", b"2", b"3"}
                await pass_time(1)
                assert consumer.in_hand == 0
                cluster.requests.clear()
                await pass_time(60)
                assert len(cluster.of_code(POP)) < 6, "only one member pops"
            if how == "stop":
                await consumer.close()

    run_sim(main, queues=1)


def test_pop_of_a_queue_that_is_given_up_still_brings_its_messages() -> None:
    async def main(cluster: Cluster) -> None:
        assign(cluster, {FIRST, SECOND})
        async with cluster.client() as client:
            async with client.pop_consumer(
                "t", group="g", invisible_time=600, rebalance_interval=1, pop_wait=25
            ) as consumer:
                await pass_time(1)
                assign(cluster, {SECOND})
                await until(lambda: consumer.assignment == [SECOND])
                cluster.put("t", b"late", FIRST.queue_id)
                received = await consumer.getone(8)
                assert received is not None
                assert received.body == b"late"

    run_sim(main)


def test_client_that_closes_waits_for_no_pop_of_a_consumer_that_left() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        await client.start()
        async with client.pop_consumer("t", group="g", pop_wait=100):
            await pass_time(1)
        began_ms = cluster.elapsed_ms
        await client.close()
        assert cluster.elapsed_ms - began_ms < 2_000

    run_sim(main)
