"""Requests and answers, from the client's side."""

import asyncio
import zlib
from typing import Any

import pytest

from rocketpy.client.cluster.pending_replies import PendingRequests
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import plain
from rocketpy.client.producer.request_reply import Answers, answer_of, reply_place
from rocketpy.errors import (
    BadBodyError,
    ConfigError,
    ConnectError,
    IllegalMessageError,
    MessageIllegalError,
    RequestTimeoutError,
    SystemFaultError,
    TooManyInFlightError,
)
from rocketpy.proto.headers.send import ReplyMessageRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import properties_text
from tests.unit.broker.fakes import FakeClock
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim

HEARTBEAT, SEND = 34, 310


def _answer(correlation_id: str, sys_flag: int = 0) -> ReplyMessageRequestHeader:
    return ReplyMessageRequestHeader(
        producer_group="p",
        topic="C_REPLY_TOPIC",
        default_topic="",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=7,
        properties=properties_text({"CORRELATION_ID": correlation_id, "a": "1"}),
        born_host="10.0.0.1:5",
        store_host="10.0.0.2:6",
        store_timestamp=2,
    )


def _message(**properties: str) -> ReceivedMessage:
    ext = MessageExt(topic="t", body=b"?", properties=properties)
    return ReceivedMessage(ext, MessageQueue("t", "b", 0))


async def test_answer_finds_its_request_once() -> None:
    requests = PendingRequests("me")
    properties, future = requests.open(3_000)
    assert properties["REPLY_TO_CLIENT"] == "me"
    assert properties["TTL"] == "3000"
    header = _answer(properties["CORRELATION_ID"])
    requests.answered(header, b"yes")
    requests.answered(header, b"again")
    got = await answer_of(future, 1, "t", plain)
    assert (got.body, got.topic, got.headers, got.ext.flag) == (
        b"yes",
        "C_REPLY_TOPIC",
        {"a": "1"},
        7,
    )
    await asyncio.sleep(0)
    assert (requests.unmatched, len(requests)) == (1, 0)


async def test_compressed_answers_are_inflated_and_damaged_ones_leave_the_request_waiting() -> None:
    requests = PendingRequests("me")
    properties, future = requests.open(3_000)
    header = _answer(properties["CORRELATION_ID"], sys_flag=0x301)
    with pytest.raises(BadBodyError):
        requests.answered(header, b"no zlib")
    requests.answered(header, zlib.compress(b"yes" * 99))
    assert (await future).body == b"yes" * 99


async def test_requests_that_wait_are_bounded_and_forgotten() -> None:
    requests = PendingRequests("me", max_requests=2)
    futures = [requests.open(1)[1] for _ in range(2)]
    with pytest.raises(TooManyInFlightError):
        requests.open(1)
    with pytest.raises(RequestTimeoutError):
        await answer_of(futures[0], 0, "t", plain)
    futures[1].cancel()
    await asyncio.sleep(0)
    assert len(requests) == 0


def test_reply_goes_to_the_brokers_reply_topic() -> None:
    asked = {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "CLUSTER": "C", "TTL": "9", "x": "y"}
    assert reply_place(_message(**asked)) == (
        "C_REPLY_TOPIC",
        {"MSG_TYPE": "reply", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "TTL": "9"},
    )
    for missing in ("CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"):
        with pytest.raises(IllegalMessageError, match="asks for no answer"):
            reply_place(_message(**{name: asked[name] for name in asked if name != missing}))


async def test_reply_without_requester_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []

    async def reply(_: ReceivedMessage, body: Any) -> None:
        sent.append(body)
        if body == b"late":
            raise SystemFaultError(1, "not found")

    answer = Answers(reply, reply, FakeClock())
    for body in (b"yes", b"late"):
        await answer(_message(), body)
    assert sent == [b"yes", b"late"]
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_brokers_know_us_before_the_request_goes_out() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            for _ in range(2):
                with pytest.raises(RequestTimeoutError):
                    await producer.request("t", b"?", timeout=0.5)
        codes = [request.code for _, request in cluster.requests]
        assert codes.index(HEARTBEAT) < codes.index(SEND)
        beats = [address for address, request in cluster.requests if request.code == HEARTBEAT]
        assert len(set(beats)) == 2
        assert len(cluster.of_code(SEND)) == 2

    run_sim(main, brokers=2)


def test_request_waits_for_its_brokers_as_a_send_does() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:

            async def answer(message: Any) -> bytes:
                return b"yes"

            async with other.responder("t", group="r", handler=answer):
                producer = client.producer()
                await producer.send("t", b"the route is known")
                cluster.down.add(BROKER_A)
                with pytest.raises(ConnectError):
                    await producer.request("t", b"?", timeout=2)
                asyncio.get_running_loop().call_later(3, cluster.down.clear)
                assert (await producer.request("t", b"?", timeout=10)).body == b"yes"

    run_sim(main, queues=1)


def test_request_sends_a_heartbeat_to_a_broker_that_restarted_meanwhile() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:

            async def answer(message: Any) -> bytes:
                return b"yes"

            async with other.responder("t", group="r", handler=answer):
                producer = client.producer()
                await producer.request("t", b"?", timeout=10)  # it is known
                await pass_time(5)
                cluster.script[SEND] = [ConnectError("started anew")] * 3
                cluster.requests.clear()
                assert (await producer.request("t", b"?", timeout=10)).body == b"yes"
                codes = [request.code for _, request in cluster.requests]
                assert HEARTBEAT in codes[codes.index(SEND) :]

    run_sim(main, queues=1)


def test_request_that_is_not_stored_fails_as_a_send() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [13]
        async with cluster.client() as client:
            producer = client.producer()
            with pytest.raises(MessageIllegalError):
                await producer.request("t", b"?", timeout=2)
            await asyncio.sleep(0)
            assert len(client._running().requests) == 0
            with pytest.raises(ConfigError, match="handler"):
                client.responder("t", group="r")

    run_sim(main)
