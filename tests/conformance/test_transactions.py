"""Transactions: committed ones are consumed, rolled-back ones never, producers are asked."""

from collections.abc import Callable
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import HalfNotStoredError
from tests.conformance.worlds import World

SEND_V2 = 310
END = 37
QUICK_CHECKS = {"transactionCheckInterval": "500", "transactionTimeOut": "100"}


def test_commit_is_consumed_and_a_rollback_is_not(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[ReceivedMessage]:
        world.create_topic("t", queues=1)
        received: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            received.append(message)

        async with world.client() as client:
            consumer = client.consumer("t", group="c", handler=handle, start="earliest")
            await consumer.start()
            producer = client.producer(group="p")
            async with producer.transaction("t", b"kept", tag="a", keys=["k"]) as kept:
                assert world.message_count("t") == 0
            with pytest.raises(KeyError):
                async with producer.transaction("t", b"dropped"):
                    raise KeyError
            async with producer.transaction("t", b"dropped too") as dropped:
                await dropped.rollback()
            await producer.send("t", b"last")
            await world.until(lambda: len(received) >= 2)
            assert received[0].id == kept.id
            assert kept.is_confirmed
            assert dropped.is_confirmed
        return received

    received = run(case)
    assert [message.body for message in received] == [b"kept", b"last"]
    assert received[0].tag == "a"
    assert received[0].keys == ["k"]
    assert received[0].headers == {}


def test_producer_of_the_group_is_asked_about_what_is_not_decided(
    run: Callable[..., Any],
) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t", queues=1)
        received: list[bytes] = []
        asked: dict[bytes, int] = {}

        async def handle(message: ReceivedMessage) -> None:
            received.append(message.body)

        async def check(message: ReceivedMessage) -> rocketpy.TxState:
            assert message.topic == "t"
            asked[message.body] = asked.get(message.body, 0) + 1
            if message.body == b"rollback":
                return rocketpy.TxState.ROLLBACK
            if asked[message.body] == 1:
                return rocketpy.TxState.UNKNOWN
            return rocketpy.TxState.COMMIT

        async with world.client() as client:
            consumer = client.consumer("t", group="c", handler=handle, start="earliest")
            await consumer.start()
            producer = client.producer(group="p", tx_checker=check)
            for body in (b"commit", b"rollback"):
                async with producer.transaction("t", body) as tx:
                    tx.unknown()
            await world.until(lambda: bool(received) and b"rollback" in asked)
        assert asked == {b"commit": 2, b"rollback": 1}
        return received

    assert run(case, properties=QUICK_CHECKS) == [b"commit"]


def test_half_message_that_may_be_stored_is_not_sent_again(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        world.script[SEND_V2] = ["lost"]
        ran = False
        async with world.client() as client:
            producer = client.producer(group="p")
            with pytest.raises(HalfNotStoredError):
                async with producer.transaction("t", b"x", timeout=0.2):
                    ran = True
        assert not ran
        assert len(world.of_code(SEND_V2)) == 1
        assert not world.of_code(END)

    run(case)
