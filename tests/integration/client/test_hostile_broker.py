"""Name servers and brokers that lie, over TCP: errors have types, nothing is lost, all ends."""

import asyncio
import socket
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import rocketpy
from rocketpy.errors import (
    BadBodyError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    CorruptRecordError,
    NoNameServerError,
    RequestTimeoutError,
    RocketPyError,
)
from rocketpy.proto.record import compression
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from tests.integration.client.hostile import (
    MEMBERS,
    PULL,
    ROUTE,
    SEND,
    HostileBroker,
    pulled,
)
from tests.unit.client.received_cases import stored

pytestmark = pytest.mark.timeout(120)

QUEUE = rocketpy.MessageQueue("t", "b", 0)
RECORDS = [stored(b"%d" % offset, topic="t", offset=offset) for offset in range(5)]


def frame(request: RemotingCommand, header: bytes | None = None, **lies: int) -> bytes:
    """Return the frame of a response whose lengths may be lies."""
    said = b'{"code":0,"flag":1,"opaque":%d}' % request.opaque if header is None else header
    length = lies.get("length", 4 + len(said))
    return struct.pack(">iI", length, lies.get("head", len(said))) + said


FRAMES: dict[str, Callable[[RemotingCommand], bytes]] = {
    "length 0": lambda request: frame(request, length=0),
    "length below 0": lambda request: frame(request, length=-1),
    "length of 2 GiB": lambda request: frame(request, length=2**31 - 1),
    "header longer than its frame": lambda request: frame(request, head=5_000),
    "header that is no JSON": lambda request: frame(request, b"\xff\xfe"),
    "header that is a list": lambda request: frame(request, b"[]"),
    "header 100,000 deep": lambda request: frame(request, b"[" * 100_000),
    "opaque that is a text": lambda request: frame(request, b'{"flag":1,"opaque":"x"}'),
    "code beyond 32 bits": lambda request: frame(
        request, b'{"code":%d,"flag":1,"opaque":%d}' % (2**40, request.opaque)
    ),
    "zeros": lambda _: bytes(1 << 16),
}


async def until(condition: Callable[[], Any], limit_s: float = 60) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.01)


async def ended(client: rocketpy.Client, limit_s: float) -> None:
    """Close a client, within its time."""
    began = time.monotonic()
    async with asyncio.timeout(60):
        await client.close()
    assert time.monotonic() - began < limit_s


@pytest.mark.parametrize("kind", FRAMES)
async def test_frame_that_is_none_is_an_error_with_a_type_and_the_next_one_counts(
    kind: str,
) -> None:
    async with HostileBroker().running() as broker:
        client = rocketpy.connect(broker.address)
        await client.start()
        producer = client.producer()
        broker.answers[ROUTE] = FRAMES[kind]
        with pytest.raises(NoNameServerError, match="malformed frame"):
            await producer.send("t", b"x", timeout=0.05)
        del broker.answers[ROUTE]
        broker.answers[SEND] = FRAMES[kind]
        with pytest.raises(ConnectionLostError, match=f"{broker.address}.*malformed frame"):
            await producer.send("t", b"x", timeout=5, retries=0)
        del broker.answers[SEND]
        await producer.send("t", b"x")
        await ended(client, 10)


def rst(broker: HostileBroker, _: RemotingCommand) -> None:
    for writer in broker.writers:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


def half_close(broker: HostileBroker, _: RemotingCommand) -> None:
    for writer in broker.writers:
        writer.write_eof()


def cut(broker: HostileBroker, request: RemotingCommand) -> None:
    whole = broker.honest(request) or b""
    for writer in broker.writers:
        writer.write(whole[:-5])
        writer.close()


@pytest.mark.parametrize("end", [rst, half_close, cut])
async def test_lost_connection_fails_its_calls_and_is_reopened(
    end: Callable[[HostileBroker, RemotingCommand], None],
) -> None:
    async with HostileBroker().running() as broker:
        client = rocketpy.connect(broker.address)
        await client.start()
        producer = client.producer()
        await producer.send("t", b"x")
        broker.answers[SEND] = lambda request: end(broker, request)
        with pytest.raises(ConnectionLostError, match=broker.address):
            await producer.send("t", b"x", retries=0)
        del broker.answers[SEND]
        await producer.send("t", b"x")
        await ended(client, 10)


async def test_silence_foreign_answers_and_late_ones_end_with_the_time() -> None:
    late: list[bytes] = []

    def foreign(request: RemotingCommand) -> bytes:
        late.append(broker.honest(request) or b"")
        request.opaque ^= 0x5555
        return broker.honest(request) or b""

    async with HostileBroker().running() as broker:
        client = rocketpy.connect(broker.address)
        await client.start()
        producer = client.producer()
        for answer in (lambda _: None, foreign):
            broker.answers[SEND] = answer
            with pytest.raises(RequestTimeoutError, match=f"no answer from {broker.address}"):
                await producer.send("t", b"x", timeout=0.2, retries=0)
        del broker.answers[SEND]
        broker.send(b"".join(late) * 2)  # an answer after its time, twice
        await producer.send("t", b"x")
        await ended(client, 10)


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("", ConnectError),
        ("nonsense", ConnectError),
        ("127.0.0.1:99999999999", ConnectError),
        ("a\x00b:1", ConnectError),
        ("....:1", ConnectError),
    ],
)
async def test_addresses_that_are_none(address: str, error: type[RocketPyError]) -> None:
    async with HostileBroker().running() as broker:
        broker.answers[ROUTE] = lambda request: encode_command(
            make_response(request, body=broker.route(address or " "))
        )
        async with rocketpy.connect(broker.address) as client:
            with pytest.raises(error):
                await client.producer().send("t", b"x", timeout=0.05)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 200_000,
        b'{"queueDatas":{"a":[1]}}',
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":1e300}]}',
        b'{"queueDatas":[{"brokerName":"b","readQueueNums":2147483647,"perm":6}]}',
    ],
    ids=["none", "no text", "list", "null", "deep", "types", "number", "queues"],
)
async def test_route_that_is_none_is_an_error_with_a_type(body: bytes) -> None:
    async with HostileBroker().running() as broker:
        broker.answers[ROUTE] = lambda request: encode_command(make_response(request, body=body))
        async with rocketpy.connect(broker.address) as client:
            with pytest.raises(BadBodyError):
                await client.producer().send("t", b"x", timeout=0.3)


@pytest.mark.parametrize(
    "body",
    [
        b"".join(RECORDS)[: -len(RECORDS[4]) + 5],
        b"".join(RECORDS)[:-5],
        b"".join(RECORDS[:3]) + bytes(200),
        b"".join(RECORDS[:3]) + b"\0\0\0\0" + RECORDS[3][4:] + RECORDS[4],
        b"".join(RECORDS[:3]) + b"\xff\xff\xff\xf9" + RECORDS[3][4:] + RECORDS[4],
        b"".join(RECORDS[:3]) + b"\x7f\xff\xff\xff" + RECORDS[3][4:] + RECORDS[4],
        b"".join(RECORDS[:4]) + stored(b"4", topic="other", offset=4),
        b"".join(RECORDS[:4]) + RECORDS[0],
        b"",
    ],
    ids=[
        "five bytes of the last", "cut", "zeros", "size 0", "size below 0", "size of 2 GiB",
        "another topic", "offset that goes back", "nothing",
    ],
)  # fmt: skip
async def test_malformed_pull_response_skips_and_commits_no_message(body: bytes) -> None:
    got: list[bytes] = []
    bodies = [body, body, b"".join(RECORDS)]

    def answer(request: RemotingCommand) -> bytes | None:
        if request.ext_fields["topic"] != "t" or request.ext_fields["queueOffset"] != "0":
            return None
        return encode_command(pulled(request, 0, 5, bodies.pop(0)))

    async def handler(message: rocketpy.ReceivedMessage) -> None:
        got.append(message.body)

    async with HostileBroker().running() as broker:
        broker.answers[PULL] = answer
        client = rocketpy.connect(broker.address)
        await client.start()
        consumer = client.consumer(
            "t", group="g", start="earliest", handler=handler, pull_error_pause=0.05
        )
        await consumer.start()
        await until(lambda: not consumer.health().ok)
        failure = consumer.health().queues[QUEUE].failure
        assert BadBodyError.__name__ in failure or CorruptRecordError.__name__ in failure
        await until(lambda: len(got) == 5)
        await until(lambda: consumer.health().ok)
        await ended(client, 15)
    assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]
    assert broker.commits[-1] == 5


async def test_broker_whose_queue_never_moves_is_asked_some_times_a_second() -> None:
    await asyncio.gather(*map(_ask_in_vain, (0, 19, 20, 21)))


async def _ask_in_vain(code: int) -> None:
    def answer(request: RemotingCommand) -> bytes | None:
        if request.ext_fields["topic"] != "t":
            return None
        return encode_command(pulled(request, code, request.ext_fields["queueOffset"]))

    async with HostileBroker().running() as broker:
        broker.answers[PULL] = answer
        client = rocketpy.connect(broker.address)
        await client.start()
        async with client.pull_consumer(group="g", start="earliest") as consumer:
            await consumer.assign([QUEUE])
            began, before = time.monotonic(), broker.asked[PULL]
            await until(lambda: broker.asked[PULL] > before + 1)
            await asyncio.sleep(1)  # the time in which it could be asked thousands of times
            elapsed_s = time.monotonic() - began
            assert broker.asked[PULL] - before <= 10 * elapsed_s + 10
        await ended(client, 15)


async def test_bodies_that_inflate_to_more_than_a_gigabyte_together_are_taken_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    original = compression.inflate

    def counted(*arguments: Any) -> bytes:
        body = original(*arguments)
        sizes.append(len(body))
        return body

    monkeypatch.setattr("rocketpy.proto.record.message.inflate", counted)
    flag = with_compression(0, CompressionType.ZLIB)
    body = zlib.compress(bytes(20 << 20), 9)

    def answer(request: RemotingCommand) -> bytes | None:
        at = int(request.ext_fields["queueOffset"])
        if request.ext_fields["topic"] != "t" or at >= 60:
            return None
        records = (stored(body, topic="t", offset=each, sys_flag=flag) for each in range(at, 60))
        return encode_command(pulled(request, 0, 60, b"".join(records)))

    async with HostileBroker().running() as broker:
        broker.answers[PULL] = answer
        async with rocketpy.connect(broker.address) as client:
            async with client.pull_consumer(
                group="g", start="earliest", max_cached_bytes=1
            ) as consumer:
                await consumer.assign([QUEUE])
                for offset in range(3):
                    (message,) = await consumer.poll(max_messages=1, timeout=60)
                    assert (message.offset, len(message.body)) == (offset, 20 << 20)
                assert len(sizes) <= 5


async def test_client_survives_thousands_of_requests_of_a_broker() -> None:
    held = asyncio.Event()
    begun = 0

    async def handler(message: rocketpy.ReceivedMessage) -> None:
        nonlocal begun
        begun += 1
        await held.wait()

    def requests() -> bytes:
        wrong = {"consumerGroup": "g", "group": "g", "topic": "t", "timestamp": "x"}
        return b"".join(
            [
                encode_command(make_request(40, {"consumerGroup": "g"}, oneway=True)),
                encode_command(make_request(309, {"consumerGroup": "g"}, RECORDS[0])),
                *(
                    encode_command(make_request(code, wrong, b"\xff" * 50))
                    for code in (39, 40, 220, 221, 307, 309, 326, 9_999)
                ),
            ]
        )

    async with HostileBroker().running() as broker:
        client = rocketpy.connect(broker.address)
        await client.start()
        consumer = client.consumer("t", group="g", handler=handler, stop_timeout=1)
        await consumer.start()
        tasks = len(asyncio.all_tasks())
        before = broker.asked[MEMBERS]
        broker.send(requests() * 500)
        await until(lambda: len(broker.responses) >= 500 * 8 - 16)
        assert begun == 16
        assert len(asyncio.all_tasks()) < tasks + 100
        assert broker.asked[MEMBERS] - before < 500
        await client.producer().send("t", b"x")
        await ended(client, 20)


async def test_close_ends_without_answers_of_brokers() -> None:
    async with HostileBroker().running() as broker:
        client = rocketpy.connect(broker.address, api_timeout=0.3)
        await client.start()
        consumer = client.consumer("t", group="g", stop_timeout=1)
        await consumer.start()
        producer = client.producer(timeout=0.3)
        await producer.send("t", b"x")
        broker.answers = dict.fromkeys(range(2_000), lambda _: None)
        sending = producer.send_nowait("t", b"x")
        await ended(client, 20)
        with pytest.raises(ClientError):
            await sending
