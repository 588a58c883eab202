"""Pulls of which all but the offsets is known: the ordinary answers, and which of them are served.

That answers, offsets and counts are those of the ordinary way is compared with any pulls in
test_plain_pulls.py, and while brokers change in test_pulls_that_go_on.py and test_pull_runs.py.
"""

import asyncio
import json
import random
import struct
from typing import Any

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path import json_pull_cache as known_pulls
from rocketpy.broker.fast_path.json_pull_cache import JsonPullCache
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.unit.broker.processor import plain_pull_kit, ways
from tests.unit.broker.processor.frames import binary_frame, frame
from tests.unit.broker.processor.plain_pull_kit import (
    QUEUES,
    SUB_VERSION,
    TOPIC,
    PullOutcome,
    assert_same_pulls,
    fill,
    heartbeat,
    pull_outcome_of,
    some_pull,
)
from tests.unit.broker.processor.plain_send_kit import cuts
from tests.unit.remoting.fakes import FakeTransport

FIRST = heartbeat()


def ext_of(queue_offset: int, **fields: str) -> dict[str, str]:
    return {
        "consumerGroup": "all",
        "topic": TOPIC,
        "queueId": "1",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "4",
        "sysFlag": "1",
        "commitOffset": str(queue_offset),
        "suspendTimeoutMillis": "0",
        "subVersion": str(SUB_VERSION),
        "expressionType": "TAG",
    } | fields


def pull(number: int, queue_offset: int = 0, **fields: str) -> bytes:
    return frame(11, ext_of(queue_offset, **fields), b"", number)


def of_text(header: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(header), len(header)) + header


def text_of(number: int, ext: str) -> bytes:
    """A header with ext fields as they are given."""
    return (
        f'{{"code":11,"extFields":{ext},"flag":0,"language":"JAVA","opaque":{number},'
        '"serializeTypeCurrentRPC":"JSON","version":493}'
    ).encode()


def pulled(
    monkeypatch: pytest.MonkeyPatch,
    segments: list[list[bytes]],
    properties: dict[str, str] | None = None,
    prepare: Any = plain_pull_kit.fill,
) -> PullOutcome:
    """Return what is seen of a broker that serves known pulls, the same as without."""

    def prepared(broker: Broker) -> None:
        prepare(broker, 1)

    with ways.ordinary_pulls(monkeypatch):
        ordinary = pull_outcome_of(segments, properties, prepared)
    with ways.known_pulls(monkeypatch):
        known = pull_outcome_of(segments, properties, prepared)
    assert_same_pulls(ordinary, known)
    return known


def answers(outcome: PullOutcome) -> list[RemotingCommand]:
    return [each for data in outcome.responses for each in CommandReader().feed(data)]


def test_pulls_of_a_consumer_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = [pull(n, 3 * n) for n in range(1, 20)]
    outcome = pulled(monkeypatch, [[FIRST, *pulls[:4], b"".join(pulls[4:])]])
    assert outcome.served_bytes == sum(map(len, pulls))
    assert outcome.reads[0] == 19
    assert outcome.offsets["offsetTable"][f"{TOPIC}@all"] == {1: 57}


@pytest.mark.parametrize("seed", range(900, 906))
def test_any_pulls_in_any_cuts(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    segments = []
    for odd in (0.0, 0.05, 0.3, 1.0):
        frames = [some_pull(rng, number, odd) for number in range(60)]
        frames += [pull(number, rng.randrange(60)) for number in range(60, 120)]
        rng.shuffle(frames)
        segments += [[FIRST, *cuts(rng, b"".join(frames))], [FIRST, *frames]]
    outcome = pulled(monkeypatch, segments)
    assert outcome.served_bytes > 10_000


ODD_TEXTS = {
    "a name twice": '{"queueOffset":"0","queueOffset":"5",%s}',
    "a name within another field": '{"a":{"queueOffset":"3"},"queue\\u004fffset":"5",%s}',
    "a name within a name": '{"x\\"queueOffset":"3","queue\\u004fffset":"5",%s}',
    "a name within a value": '{"a":"\\"opaque\\":7,","queueOffset":"5",%s}',
    "number instead of text": '{"queueOffset":5,%s}',
    "zeros before it": '{"queueOffset":"0005",%s}',
    "a sign": '{"queueOffset":"+5",%s}',
    "behind zero": '{"queueOffset":"-5",%s}',
    "no digits": '{"queueOffset":"",%s}',
    "a fraction": '{"queueOffset":"5.0",%s}',
    "18 digits": '{"queueOffset":"999999999999999999",%s}',
    "19 digits": '{"queueOffset":"9999999999999999999",%s}',
    "blanks": '{"queueOffset" : "5",%s}',
    "none": "{%s}",
}


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_odd_headers_are_read_as_ever(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ext = ext_of(0)
    del ext["queueOffset"]
    others = json.dumps(ext, separators=(",", ":"))[1:-1]
    usual = [pull(n, n) for n in range(50, 53)]
    odd = [of_text(text_of(n, ODD_TEXTS[name] % others)) for n in (1, 2, 3, 12)]
    pulled(monkeypatch, [[FIRST, usual[0], odd[0], usual[1], *odd[1:], usual[2]]])


@pytest.mark.parametrize("opaque", ["-5", "007", "0", "1234567890", "12.0", "12e0", '"12"', "null"])
def test_odd_numbers_of_requests(monkeypatch: pytest.MonkeyPatch, opaque: str) -> None:
    ext = json.dumps(ext_of(3), separators=(",", ":"))
    header = text_of(17, ext)
    odd = of_text(header.replace(b'"opaque":17', b'"opaque":' + opaque.encode()))
    usual = of_text(header)
    pulled(monkeypatch, [[FIRST, usual, odd], [FIRST, odd, usual], [FIRST, usual + odd]])


def test_what_two_texts_do_not_say_alike_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first queue offset is that of another field, of the same value by chance."""
    ext = ext_of(0)
    del ext["queueOffset"]
    others = json.dumps(ext, separators=(",", ":"))[1:-1]
    hidden = '{"a":{"queueOffset":"%d"},"queue\\u004fffset":"5",%s}'
    frames = [of_text(text_of(n, hidden % (n, others))) for n in (5, 6, 7)]
    outcome = pulled(monkeypatch, [[FIRST, *frames]])
    assert outcome.served_bytes == 0
    assert {each.ext_fields["nextBeginOffset"] for each in answers(outcome) if each.body} == {"9"}


def test_a_number_with_a_fraction_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is a whole number to who reads a double depends on the digits before it."""
    whole = pull(123_456_789)[8:]
    fractions = [
        of_text(whole.replace(b":123456789,", b":%d.0000000001," % n)) for n in (123_456_789, 5)
    ]
    segments = [[FIRST, pull(6), fractions[0], pull(7)], [FIRST, fractions[1], pull(8)]]
    outcome = pulled(monkeypatch, segments)
    assert outcome.served_bytes == len(pull(6)) + len(pull(7))
    assert outcome.responses[1].endswith(b"!"), "the connection was closed"


@pytest.mark.parametrize(
    "other",
    [
        pull(1, subscription="red", sysFlag="5"),
        pull(1, topic="no-topic"),
        frame(11, ext_of(0), b"body", 1),
        frame(11, ext_of(0), b"", 1, flag=2),
        binary_frame(11, ext_of(0), b"", 1),
        pull(1, subscription="x" * 1_100, sysFlag="5"),
    ],
    ids=["tags", "no topic", "a body", "one-way", "binary", "long"],
)
def test_what_goes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch, other: bytes) -> None:
    outcome = pulled(monkeypatch, [[FIRST, other, pull(2, 0), other, pull(3, 4), other]])
    assert outcome.served_bytes == len(pull(2, 0)) + len(pull(3, 4))


def test_what_is_not_to_be_served_is_not_looked_at_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []
    read = JsonPullCache._read

    def counted(self: JsonPullCache, *asked: Any) -> int:
        looked.append(1)
        return read(self, *asked)

    monkeypatch.setattr(JsonPullCache, "_read", counted)
    pulls = [pull(n, 0, subscription="red", sysFlag="5") for n in range(1, 100)]
    assert pulled(monkeypatch, [[FIRST, *pulls]]).served_bytes == 0
    assert len(looked) == 3


def test_so_many_are_known_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pulls, "_MOST_KNOWN", 10)
    monkeypatch.setattr(known_pulls, "_MOST_MISSED", 30)
    made: list[JsonPullCache] = []
    init = JsonPullCache.__init__

    def noted(self: JsonPullCache, *given: Any) -> None:
        init(self, *given)
        made.append(self)

    monkeypatch.setattr(JsonPullCache, "__init__", noted)
    pulls = [pull(n, 0, maxMsgNums=str(n)) for n in range(1, 25)] * 4
    outcome = pulled(monkeypatch, [[FIRST, *pulls]])
    one = len(pull(1, 0))
    # Ten of them each time, and ten others once enough of the rest have come.
    assert 30 * one < outcome.served_bytes < 60 * one
    assert max(len(each._known) for each in made) <= 10


def test_a_header_with_other_numbers_is_not_remembered() -> None:
    channel: Any = None

    class Runs:
        def now_ms(self) -> int:
            return 0

    known = JsonPullCache(Runs(), 1 << 20)  # type: ignore[arg-type]
    for number in range(50):
        text = b'{"code":11,"x":%d' % number + b',"opaque":1' * 40 + b"}"
        assert known(channel, of_text(text)) == (0, b"")
    assert not known._known


def test_one_call_serves_so_many_pulls_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = [pull(n, n % 50) for n in range(1, 200)]
    outcome = pulled(monkeypatch, [[FIRST, b"".join(pulls)]])
    assert 60 * len(pulls[9]) < outcome.served_bytes < 70 * len(pulls[9])
    monkeypatch.setattr(known_pulls, "_MOST_BYTES", 2_000)
    outcome = pulled(monkeypatch, [[FIRST, b"".join(pulls)]])
    assert outcome.served_bytes < 50 * len(pulls[9])


def test_a_frame_beyond_the_limit_is_not_served() -> None:
    class Runs:
        def now_ms(self) -> int:
            return 0

    channel: Any = None
    data = pull(1)
    assert JsonPullCache(Runs(), len(data) - 1)(channel, data) == (0, b"")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):  # within it, what it says is looked at
        JsonPullCache(Runs(), len(data))(channel, data)  # type: ignore[arg-type]


def test_another_call_meanwhile_serves_nothing() -> None:
    class Busy:
        def now_ms(self) -> int:
            assert handler(channel, pull(1)) == (0, b"")
            assert handler.answer(channel, 0, 1, 0) is None
            raise ZeroDivisionError

    channel: Any = None
    handler = JsonPullCache(Busy(), 1 << 20)  # type: ignore[arg-type]
    for _ in range(2):  # and is free again after an error
        with pytest.raises(ZeroDivisionError):
            handler(channel, pull(1))


def test_a_disk_that_fails_is_told_of_by_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(broker: Broker, seed: int) -> None:
        fill(broker, seed)

        def fails(*_: object) -> None:
            raise OSError(5, "Input/output error")

        store: Any = broker.parts.store
        store.reader._ahead.window = fails

    outcome = pulled(monkeypatch, [[FIRST, pull(1), pull(2, 1)]], None, prepare)
    assert outcome.served_bytes == 0
    assert b"Input/output error" in outcome.responses[0]


def test_a_pull_that_waited_is_answered_where_it_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: list[bytes | None] = []
    answer = JsonPullCache.answer

    def noted(self: JsonPullCache, *asked: Any) -> bytes | None:
        answered.append(answer(self, *asked))
        return answered[-1]

    monkeypatch.setattr(JsonPullCache, "answer", noted)

    async def scenario(cluster: SimCluster) -> list[RemotingCommand]:
        for topic in (TOPIC, plain_pull_kit.SPARSE):
            cluster.create_topic(topic, QUEUES)
        broker = cluster.brokers[0].broker
        fill(broker, 1)
        end = broker.parts.store.max_offset(TOPIC, 1)
        server: Any = broker._servers[0]
        connection = server._selectors[0].new_connection("10.0.0.7")
        transport = FakeTransport()
        connection.connection_made(transport)
        connection.data_received(FIRST)
        waits = {"sysFlag": "3", "suspendTimeoutMillis": "15000"}
        connection.data_received(pull(7, end, **waits))
        transport.writes.clear()
        while broker.parts.store.max_offset(TOPIC, 1) == end:
            fill(broker, 2, 5)
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.1)
        return CommandReader().feed(b"".join(transport.writes))

    with ways.known_pulls(monkeypatch):
        responses = run_simulation(scenario)
    # The heartbeat is answered meanwhile: its groups are on disk.
    [response] = [each for each in responses if each.is_response and each.opaque == 7]
    assert response.code == 0
    assert response.body
    assert len(answered) == 1
    assert answered[0]
