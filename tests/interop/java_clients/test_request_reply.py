"""Requests and answers between official Java clients and ours, over our broker."""

import asyncio

import rocketpy
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, wait_for


def test_java_asks_and_java_answers(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    # Who asks must not have sent to the topic: the Java client tells brokers who it is only when it
    # learns the route for a request.
    producer = java.producer()
    java.send(java.producer(), topic, body="first")
    consumer = java.push(group, topic, answerer=producer)
    java.receive(consumer, 1)
    response = java.do("send", name=producer, topic=topic, mode="request", body="price")
    assert response["errors"] == []
    (answer,) = response["sent"]
    assert answer["body"] == "price-0!"
    wait_for(lambda: servers.stored("DefaultCluster_REPLY_TOPIC") >= 1)
    java.stop(consumer)


def test_java_asks_and_python_answers_and_the_other_way_round(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    # Who asks must not have sent to the topic: the Java client tells brokers who it is only when it
    # learns the route for a request.
    producer = java.producer()
    java.send(java.producer(), topic, body="first")

    async def main() -> None:
        def ask() -> dict[str, object]:
            return java.do("send", name=producer, topic=topic, mode="request", body="price")

        async with rocketpy.connect(servers.namesrv) as client:
            async with client.responder(topic, group=group, handler=lambda m: m.body + b"?"):
                response = await asyncio.to_thread(ask)
            assert response["errors"] == []
            assert [one["body"] for one in response["sent"]] == ["price-0?"]  # type: ignore[attr-defined]
            consumer = java.push(group, topic, answerer=producer)
            answer = await client.producer().request(topic, b"quote", timeout=30)
            assert answer.body == b"quote!"
            java.stop(consumer)

    asyncio.run(main())
