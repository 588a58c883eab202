"""Requests that another client answers, on either kind of cluster."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import IllegalMessageError, RequestTimeoutError, SystemFaultError
from tests.conformance.worlds import World

SEND_REPLY = 325


def test_responder_result_is_the_reply(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("quotes")

        async def quote(message: ReceivedMessage) -> dict[str, Any]:
            return {"sku": message.decode()["sku"], "price": 3, "pad": "x" * 5_000}

        async with world.client() as shop, world.client() as pricing:
            responder = pricing.responder(
                "quotes", group="pricing", handler=quote, serializer=rocketpy.json
            )
            await responder.start()
            producer = shop.producer(serializer=rocketpy.json)
            answers = await asyncio.gather(
                *[producer.request("quotes", {"sku": sku}, timeout=20) for sku in range(5)]
            )
            assert [answer.decode()["sku"] for answer in answers] == [0, 1, 2, 3, 4]
            assert answers[0].topic == "DefaultCluster_REPLY_TOPIC"
            assert answers[0].headers == {}
        assert world.message_count("DefaultCluster_REPLY_TOPIC") == 5

    run(case)


def test_without_an_answer_in_time_it_is_a_timeout_and_a_late_one_is_counted(
    run: Callable[..., Any],
) -> None:
    async def case(world: World) -> None:
        world.create_topic("quotes")
        seen: list[ReceivedMessage] = []

        async def keep(message: ReceivedMessage) -> None:
            seen.append(message)

        async with world.client() as shop, world.client() as pricing:
            consumer = pricing.consumer("quotes", group="p", handler=keep)
            await consumer.start()
            with pytest.raises(RequestTimeoutError, match="no answer came"):
                await shop.producer().request("quotes", b"?", timeout=2)
            await world.until(lambda: bool(seen))
            producer = pricing.producer()
            assert (await producer.reply(seen[0], b"late")).offset == 0
            requests = shop._running().requests
            assert (requests.unmatched, len(requests)) == (1, 0)

    run(case)


def test_reply_to_a_gone_requester_or_no_request_raises(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("quotes")
        seen: list[ReceivedMessage] = []

        async def keep(message: ReceivedMessage) -> None:
            seen.append(message)

        async with world.client() as pricing:
            consumer = pricing.consumer("quotes", group="p", handler=keep)
            await consumer.start()
            async with world.client() as shop:
                producer = shop.producer()
                with pytest.raises(RequestTimeoutError):
                    await producer.request("quotes", b"?", timeout=2)
                await producer.send("quotes", b"plain")
            await world.until(lambda: len(seen) == 2)
            seen.sort(key=lambda message: message.body)
            producer = pricing.producer()
            with pytest.raises(SystemFaultError, match="not found"):
                await producer.reply(seen[0], b"!")
            with pytest.raises(IllegalMessageError, match="asks for no answer"):
                await producer.reply(seen[1], b"!")
        assert len(world.of_code(SEND_REPLY)) == 1
        # Stored all the same, as by Apache.
        assert world.message_count("DefaultCluster_REPLY_TOPIC") == 1

    run(case)


def test_answers_are_not_stored_when_that_is_turned_off(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("quotes")

        async def yes(_: ReceivedMessage) -> bytes:
            return b"yes"

        async with world.client() as client:
            responder = client.responder("quotes", group="p", handler=yes)
            async with responder:
                answer = await client.producer().request("quotes", b"?", timeout=20)
            assert answer.body == b"yes"
        assert world.message_count("DefaultCluster_REPLY_TOPIC") == 0

    run(case, properties={"storeReplyMessageEnable": "false"})
