"""Guarantees of pop consumers, on simulated and real clusters."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy import PopConsumer, PoppedMessage, Retry, ToDLQ
from rocketpy.errors import ClientError, ClosedError, ConfigError
from tests.conformance.worlds import World

ACK, CHANGE = 200051, 200053


async def send(world: World, bodies: range, **options: Any) -> None:
    async with world.client() as client:
        producer = client.producer()
        for number in bodies:
            await producer.send("t", b"%d" % number, **options)


def bodies(numbers: range) -> set[bytes]:
    return {b"%d" % number for number in numbers}


def test_members_share_the_messages_of_one_queue(run: Callable[..., Any]) -> None:
    async def case(world: World) -> tuple[Counter[bytes], set[str]]:
        world.create_topic("t", queues=1)
        got: Counter[bytes] = Counter()
        members: set[str] = set()

        def handler(member: str) -> Any:
            async def handle(message: PoppedMessage) -> None:
                got[message.body] += 1
                members.add(member)
                await asyncio.sleep(0.01)

            return handle

        async with world.client() as one, world.client() as two:
            options: dict[str, Any] = {
                "group": "pop",
                "start": "earliest",
                "pop_batch": 1,
                "max_in_hand": 1,
            }
            async with (
                one.pop_consumer("t", handler=handler("one"), **options) as first,
                two.pop_consumer("t", handler=handler("two"), **options) as second,
            ):
                await world.until(lambda: len(first.assignment) == len(second.assignment) == 1)
                await send(world, range(40))
                await world.until(lambda: len(got) == 40)
                await world.until(lambda: first.in_hand == second.in_hand == 0)
        return got, members

    got, members = run(case)
    assert set(got) == bodies(range(40))
    assert set(got.values()) == {1}
    assert members == {"one", "two"}


def test_iterating_acks_what_was_handed_out(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t")
        await send(world, range(10))
        seen = []
        async with (
            world.client() as client,
            client.pop_consumer("t", group="pop", start="earliest") as consumer,
        ):
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == 10:
                    await message.ack()
                    break
            await world.until(lambda: len(world.of_code(ACK)) == 10)
            assert consumer.health().ok
        return seen

    assert set(run(case)) == bodies(range(10))


def test_failed_message_is_redelivered_then_dead_letter(run_simulated: Any) -> None:
    async def case(world: World) -> tuple[list[int], int]:
        world.create_topic("t", queues=1)
        tries: list[int] = []

        async def fail(message: PoppedMessage) -> None:
            tries.append(message.retries)
            raise Retry(delay_level=0)

        async with world.client() as client:
            options: dict[str, Any] = {"group": "pop", "start": "earliest", "max_retries": 2}
            async with client.pop_consumer("t", handler=fail, **options) as consumer:
                await send(world, range(1))
                await world.until(lambda: world.message_count("%DLQ%pop") == 1, 600)
                await asyncio.sleep(60)
                assert consumer.in_hand == 0
        return tries, world.message_count("%DLQ%pop")

    assert run_simulated(case) == ([0, 1, 2], 1)


def test_handler_may_send_a_message_to_the_dead_letters_at_once(run_simulated: Any) -> None:
    async def case(world: World) -> int:
        world.create_topic("t", queues=1)
        tries: list[int] = []

        async def fail(message: PoppedMessage) -> None:
            tries.append(message.retries)
            raise ToDLQ("never")

        async with (
            world.client() as client,
            client.pop_consumer("t", group="pop", start="earliest", handler=fail),
        ):
            await send(world, range(1))
            await world.until(lambda: world.message_count("%DLQ%pop") == 1)
            await asyncio.sleep(90)
        return len(tries)

    assert run_simulated(case) == 1


def test_message_whose_handler_is_slow_is_handled_once_when_it_is_renewed(
    run_simulated: Any,
) -> None:
    async def case(world: World) -> list[int]:
        world.create_topic("t", queues=1)
        handled: list[int] = []

        async def slow(message: PoppedMessage) -> None:
            handled.append(message.retries)
            await asyncio.sleep(40)

        async with world.client() as client:
            options: dict[str, Any] = {"group": "pop", "start": "earliest", "invisible_time": 10}
            async with client.pop_consumer("t", handler=slow, renew=True, **options) as consumer:
                await send(world, range(1))
                await world.until(lambda: bool(handled))
                await world.until(lambda: consumer.in_hand == 0)
                await asyncio.sleep(60)
        return handled

    assert run_simulated(case) == [0]


def test_message_is_kept_or_given_back_for_as_long_as_wished(run_simulated: Any) -> None:
    async def case(world: World) -> list[tuple[int, int]]:
        world.create_topic("t", queues=1)
        await send(world, range(1))
        seen = []
        started_ms = world.clock.time_ms()
        async with (
            world.client() as client,
            client.pop_consumer("t", group="pop", start="earliest", invisible_time=10) as consumer,
        ):
            async for message in consumer:
                seen.append((message.retries, (world.clock.time_ms() - started_ms) // 1000))
                if len(seen) == 1:
                    await message.change_invisible(30)
                    await message.nack(delay=60)
                elif len(seen) == 2:
                    break
        return seen

    (first, _), (second, seconds) = run_simulated(case)
    assert (first, second) == (0, 1)
    assert 60 <= seconds <= 75


def test_delay_levels_mean_what_they_mean_elsewhere(run_simulated: Any) -> None:
    async def case(world: World) -> list[int]:
        world.create_topic("t", queues=1)
        await send(world, range(1))
        came_s: list[int] = []

        async def handle(message: PoppedMessage) -> None:
            came_s.append(world.clock.monotonic_ms() // 1000)
            if len(came_s) == 1:
                raise Retry(5)  # a minute
            if len(came_s) == 2:
                await message.nack(7)  # three

        async with world.client() as client:
            options: dict[str, Any] = {"group": "pop", "start": "earliest", "handler": handle}
            async with client.pop_consumer("t", **options):
                await world.until(lambda: len(came_s) == 3, 600)
        return [after - before for before, after in itertools.pairwise(came_s)]

    first, second = run_simulated(case)
    assert 60 <= first < 70
    assert 180 <= second < 190


def test_in_order_each_queue_is_handled_in_order_also_after_a_failure(
    run_simulated: Any,
) -> None:
    async def case(world: World) -> list[int]:
        world.create_topic("t", queues=1)
        done: list[int] = []
        failed: list[int] = []

        async def handle(message: PoppedMessage) -> None:
            number = int(message.body)
            if number == 2 and not failed:
                failed.append(number)
                raise ValueError("not yet")
            done.append(number)

        async with world.client() as client:
            options: dict[str, Any] = {
                "group": "pop",
                "start": "earliest",
                "pop_batch": 1,
                "concurrency": 1,
            }
            async with client.pop_consumer("t", handler=handle, ordered=True, **options):
                await send(world, range(5))
                await world.until(lambda: len(done) >= 5, 300)
        return done

    assert run_simulated(case) == [0, 1, 2, 3, 4]


def test_ordered_pop_handles_each_queue_in_order_and_stops_it_at_a_failure(
    run_simulated: Any,
) -> None:
    async def case(world: World) -> tuple[dict[int, list[int]], int, set[int]]:
        world.create_topic("t", queues=2)
        calls: dict[int, list[int]] = {0: [], 1: []}
        running: Counter[int] = Counter()
        most = 0
        retries: set[int] = set()

        async def handle(message: PoppedMessage) -> None:
            nonlocal most
            queue = message.queue.queue_id
            calls[queue].append(message.offset)
            running[queue] += 1
            most = max(most, running[queue])
            await asyncio.sleep((7 - message.offset) * 0.1)
            running[queue] -= 1
            if message.offset == 1 and message.retries < 2:
                raise ValueError("not yet")
            if message.offset > 1:
                retries.add(message.retries)

        async with world.client() as client:
            await send(world, range(12))
            options: dict[str, Any] = {"group": "pop", "start": "earliest", "ordered": True}
            backoff: Any = {"retry_backoff": lambda _: 1}
            async with client.pop_consumer("t", handler=handle, **options, **backoff) as consumer:
                await world.until(lambda: all(5 in each for each in calls.values()), 30)
                await world.until(lambda: consumer.in_hand == 0)
        return calls, most, retries

    calls, most, retries = run_simulated(case)
    expected = [0, 1, 1, 1, 2, 3, 4, 5]
    assert (calls, most, retries) == ({0: expected, 1: expected}, 1, {0})


def test_filter_takes_only_what_it_names(run: Callable[..., Any]) -> None:
    async def case(world: World) -> set[bytes]:
        world.create_topic("t")
        got: set[bytes] = set()

        async def handle(message: PoppedMessage) -> None:
            got.add(message.body)

        async with (
            world.client() as client,
            client.pop_consumer("t", group="pop", start="earliest", filter="b", handler=handle),
        ):
            await send(world, range(4), tag="a")
            await send(world, range(4, 8), tag="b")
            await world.until(lambda: len(got) == 4)
        return got

    assert run(case) == bodies(range(4, 8))


def test_ack_is_tried_again_while_the_message_is_ours(run_simulated: Any) -> None:
    async def case(world: World) -> int:
        world.create_topic("t", queues=1)
        world.script[ACK] = ["lost", "lost"]
        got = []

        async def handle(message: PoppedMessage) -> None:
            got.append(message.body)

        async with (
            world.client() as client,
            client.pop_consumer(
                "t", group="pop", start="earliest", invisible_time=30, handler=handle
            ) as consumer,
        ):
            await send(world, range(1))
            await world.until(lambda: bool(got))
            await asyncio.sleep(20)
            assert consumer.in_hand == 0
            await asyncio.sleep(60)
        assert len(got) == 1
        return len(world.of_code(ACK))

    assert run_simulated(case) == 3


def test_message_whose_time_is_over_is_not_settled_any_more(run_simulated: Any) -> None:
    async def case(world: World) -> tuple[int, int]:
        world.create_topic("t", queues=1)
        await send(world, range(1))
        async with (
            world.client() as client,
            client.pop_consumer("t", group="pop", start="earliest", invisible_time=5) as consumer,
        ):
            messages = aiter(consumer)
            first = await anext(messages)
            await asyncio.sleep(6)
            await first.ack()
            await first.nack()
            second = await anext(messages)
            await second.ack()
            await second.ack()
            await world.until(lambda: consumer.in_hand == 0)
        return second.retries, len(world.of_code(ACK)) + len(world.of_code(CHANGE))

    assert run_simulated(case) == (1, 1)


def test_popping_continues_after_a_broker_restart(run: Callable[..., Any]) -> None:
    async def case(world: World) -> set[bytes]:
        world.create_topic("t")
        got: set[bytes] = set()

        async def handle(message: PoppedMessage) -> None:
            got.add(message.body)

        async with (
            world.client() as client,
            client.pop_consumer("t", group="pop", start="earliest", handler=handle),
        ):
            await send(world, range(4))
            await world.until(lambda: len(got) == 4)
            await world.restart_broker()
            await send(world, range(4, 8))
            await world.until(lambda: len(got) == 8)
        return got

    assert run(case) == bodies(range(8))


@pytest.mark.parametrize(
    "wrong",
    [
        {"pop_batch": 33},
        {"pop_batch": 0},
        {"invisible_time": 1e9},
        {"start": 5},
        {"max_in_hand": 0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(run_simulated: Any, wrong: Any) -> None:
    async def case(world: World) -> None:
        async with world.client() as client:
            with pytest.raises(ConfigError):
                client.pop_consumer("t", group="pop", **wrong)

    run_simulated(case)


def test_start_twice_or_after_close_raises(run_simulated: Any) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        async with world.client() as client:
            consumer: PopConsumer = client.pop_consumer("t", group="pop")
            with pytest.raises(ClosedError):
                await anext(aiter(consumer))
            await consumer.start()
            await consumer.start()
            with pytest.raises(ClientError, match="already"):
                await client.pop_consumer("t", group="pop").start()
            await consumer.close()
            await consumer.wait_closed()
            with pytest.raises(ClosedError):
                await consumer.start()

    run_simulated(case)
