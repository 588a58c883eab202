"""The official Java client under flow control of a RocketPy broker.

A broker refuses the first sends with the code of the case; another one is well. The client knows
codes only, so what it does here is what it does with Apache's broker.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

import rocketpy.admin
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for

SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2}
BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"


class Gate:
    """Rejects configured requests and counts them."""

    def __init__(self) -> None:
        self.code = 0
        self.refused: Counter[int] = Counter()
        self.codes: set[int] = set()

    def __call__(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        if not self.code or request.code not in self.codes:
            return None
        self.refused[request.code] += 1
        return make_response(request, self.code, BUSY)

    def close(self, code: int, requests: set[RequestCode]) -> None:
        self.refused.clear()
        self.codes = {int(one) for one in requests}
        self.code = code


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def two(jdk: None, gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("two"), brokers=2, guards={0: gate}) as found:
        yield found


@pytest.fixture
def busy_topic(two: Servers, topic: str) -> str:
    async def create() -> None:
        async with rocketpy.admin.connect(two.namesrv) as admin:
            await admin.create_topic(topic, queues=2)

    asyncio.run(create())
    return topic


@pytest.mark.parametrize(
    ("code", "retried_by"),
    [
        (2, {"5.4.0"}),  # SYSTEM_BUSY: 4.9 gives up
        (215, set[str]()),  # FLOW_CONTROL: nobody tries again
        (1, {"4.9.8", "5.4.0"}),
        (14, {"4.9.8", "5.4.0"}),
        (16, {"4.9.8", "5.4.0"}),
    ],
)
def test_send_to_a_busy_broker_goes_to_the_other_one_or_fails(
    java: JavaClient, two: Servers, gate: Gate, busy_topic: str, code: int, retried_by: set[str]
) -> None:
    producer = java.producer(namesrv=two.namesrv)
    gate.close(code, SENDS)
    try:
        response = java.do("send", name=producer, topic=busy_topic, count=6)
    finally:
        gate.code = 0
    refused = gate.refused[RequestCode.SEND_MESSAGE_V2]
    assert refused >= 1
    assert len(response["sent"]) + len(response["errors"]) == 6
    assert {one["broker"] for one in response["sent"]} == {"broker-b"}
    if java.version in retried_by:
        assert response["errors"] == []
    else:
        assert [one["code"] for one in response["errors"]] == [code] * refused
        assert all(BUSY in one["text"] for one in response["errors"])
    assert two.stored(busy_topic) == len(response["sent"])
    java.send(producer, busy_topic, count=4, body="later")
    java.stop(producer)


@pytest.mark.parametrize("code", [2, 215])
def test_consumer_waits_and_pulls_again(
    java: JavaClient, two: Servers, gate: Gate, busy_topic: str, group: str, code: int
) -> None:
    producer = java.producer(namesrv=two.namesrv)
    java.send(producer, busy_topic, count=8)
    gate.close(code, {RequestCode.PULL_MESSAGE})
    try:
        consumer = java.push(group, busy_topic, namesrv=two.namesrv)
        wait_for(lambda: gate.refused[RequestCode.PULL_MESSAGE] >= 4)
    finally:
        gate.code = 0
    assert bodies(java.receive(consumer, 8)) == [f"body-{number}" for number in range(8)]
    java.stop(consumer)
    java.stop(producer)
