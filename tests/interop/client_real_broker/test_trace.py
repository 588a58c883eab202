"""Our client's message trace at the real broker, read back with the official encoder's eyes."""

import asyncio
import base64

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.trace import (
    TRACE_TOPIC,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    decode_traces,
)
from tests.interop.oracle.jar import ask, word

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


async def test_sends_and_handlers_are_traced_as_official_clients_do(namesrv: str) -> None:
    texts: list[str] = []
    records: list[TraceRecord] = []
    keys: set[str] = set()
    tries: list[int] = []
    have_all = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        tries.append(message.retries)
        if not message.retries:
            raise rocketpy.Retry(delay_level=1)

    async def read(message: ReceivedMessage) -> None:
        text = message.body.decode()
        texts.append(text)
        keys.update(message.keys)
        records.extend(decode_traces(text))
        if len(records) >= 5:  # they are in several queues, so the first ones may come last
            have_all.set()

    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(group="traced", trace=True, timeout=30)
        sent = await producer.send("traced", b"one", tag="A", keys="k1")
        consumer = client.consumer(
            "traced", group="traced_readers", handler=handler, start="earliest", trace=True
        )
        reader = client.consumer(TRACE_TOPIC, group="trace_readers", handler=read, start="earliest")
        async with consumer, reader, asyncio.timeout(120):
            await have_all.wait()
    assert tries == [0, 1]
    (pub,) = [each for each in records if isinstance(each, SendTrace)]
    assert (pub.group, pub.topic, pub.tag, pub.keys) == ("traced", "traced", "A", "k1")
    assert (pub.msg_id, pub.offset_msg_id) == (sent.msg_id, sent.offset_msg_id)
    assert (pub.body_bytes, pub.success) == (3, True)
    begins = [each for each in records if isinstance(each, ConsumeBeginTrace)]
    begins.sort(key=lambda each: each.time_ms)
    ends = {each.request_id: each for each in records if isinstance(each, ConsumeEndTrace)}
    assert [(each.retries, ends[each.request_id].success) for each in begins] == [
        (0, False),
        (1, True),
    ]
    assert {each.msg_id for each in records} == {sent.msg_id}
    assert {sent.msg_id, "k1"} <= keys, "a trace is looked up by them"
    (answer,) = await asyncio.to_thread(ask, [f"trace {word(''.join(texts))}"])
    assert base64.b64decode(answer).decode() == "".join(texts), "as Apache's class writes them"
