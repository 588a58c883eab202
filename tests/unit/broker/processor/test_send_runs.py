"""Sends that come together leave what the same sends leave that come one by one."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.operation.send.bulk_send import BulkSend
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.store.append.bulk_append import PlacedRun, PutRun
from rocketpy.testing.sim_cluster import SimCluster
from tests.sampling import sample
from tests.unit.broker.processor.frames import ext_of, frame
from tests.unit.broker.processor.plain_send_kit import (
    UNIQ_KEY,
    Outcome,
    arrived,
    outcome_of,
    some_send,
    space_of,
)
from tests.unit.broker.processor.test_send_message import Kit

FIRST = frame(34, {"clientID": "x"}, b"{}", 0)
SYNC = {"flushDiskType": "SYNC_FLUSH"}
NO_INDEX = {"messageIndexEnable": "false"}
TINY = {
    "mappedFileSizeCommitLog": str(96 << 10),
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "7",
    "maxIndexNum": "23",
}


@pytest.fixture(autouse=True)
def _pure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_PURE", "1")


def sent(number: int, more: str = "", topic: str = "first", flag: int = 0, **fields: str) -> bytes:
    properties = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02WAIT\x01true\x02{more}"
    ext = ext_of(topic, number % 4, properties, **fields)
    return frame(310, ext, b"x" * 100, number, flag=flag)


def codes(data: bytes) -> list[int]:
    return [each.code for each in CommandReader().feed(data.removesuffix(b"!"))][1:]


def together_and_alone(
    frames: list[bytes],
    properties: dict[str, str] | None = None,
    prepare: Callable[[SimCluster], None] = lambda _: None,
    per_read: int = 40,
) -> tuple[Outcome, Outcome]:
    reads = [b"".join(frames[at : at + per_read]) for at in range(0, len(frames), per_read)]
    together = outcome_of([[FIRST, *reads]], properties, prepare)
    return together, outcome_of([[FIRST, *frames]], properties, prepare)


def assert_alike(together: Outcome, alone: Outcome) -> None:
    assert together.responses == alone.responses
    assert together.files == alone.files
    assert arrived(together) == arrived(alone)
    assert {each[::3] for each in together.arrivals} == {each[::3] for each in alone.arrivals}
    assert together.counts == alone.counts
    assert together.store == alone.store


@pytest.mark.parametrize(
    "properties", [{}, SYNC, TINY, TINY | SYNC, {"messageIndexEnable": "false"}]
)
@pytest.mark.parametrize("odd", [0.01, 0.1, 1.0])
def test_any_sends(odd: float, properties: dict[str, str]) -> None:
    rng = random.Random(f"{odd} {properties}")
    frames = [some_send(rng, number, odd) for number in range(400)]
    together, alone = together_and_alone(frames, properties)
    assert_alike(together, alone)
    assert len(alone.arrivals) > 200 or odd == 1.0


@pytest.mark.parametrize("more", ["", "TAGS\x01a\x02", "KEYS\x01k1 k2\x02TAGS\x01b\x02n\x01{}\x02"])
@pytest.mark.parametrize("properties", [{}, SYNC])
def test_plain_sends_are_stored_in_runs(more: str, properties: dict[str, str]) -> None:
    frames = [sent(number, more.format(number)) for number in range(160)]
    together, alone = together_and_alone(frames, properties)
    assert_alike(together, alone)
    assert codes(together.responses[0]) == [0] * 160
    assert len(together.arrivals) <= 8 + 4 * 4 < len(alone.arrivals) == 160


@pytest.mark.parametrize("seed", sample(range(3), 3))
def test_a_disk_that_fills_up(seed: int) -> None:
    rng = random.Random(seed)
    little_space = space_of(rng.randrange(4_096, 200_000))
    frames = [sent(number) for number in range(800)]
    together, alone = together_and_alone(frames, None, little_space)
    assert_alike(together, alone)
    assert together.store[2] > 50, "messages that were refused"


@pytest.mark.parametrize(
    "fields",
    [
        {"e": "9"},
        {"e": "-1"},
        {"f": "4"},
        {"h": "2147483648"},
        {"j": "9999999999"},
        {"b": "second"},
    ],
)
def test_one_that_is_not_as_the_others_costs_them_nothing(fields: dict[str, Any]) -> None:
    frames = [sent(number, **(fields if number % 30 == 13 else {})) for number in range(120)]
    together, alone = together_and_alone(frames)
    assert_alike(together, alone)
    assert codes(together.responses[0]).count(0) >= 116


def test_one_way_messages_of_a_run_are_stored_and_not_answered() -> None:
    for properties in ({}, SYNC):
        together, alone = together_and_alone(
            [sent(number, flag=2 * (number % 2)) for number in range(40)], properties
        )
        assert_alike(together, alone)
        assert codes(together.responses[0]) == [0] * 20
        assert arrived(together) == 40


@pytest.mark.parametrize("flag", [0, 2])
def test_a_topic_that_is_deleted_meanwhile_refuses_the_run(flag: int) -> None:
    kit = Kit()
    kit.send()
    kit.counted.clear()

    def put(topic: str, _born_host: bytes, run: PutRun) -> PlacedRun:
        kit.topics.delete(topic)
        kit.admission.forget(topic)
        numbers = range(len(run.bodies))
        return PlacedRun(numbers, numbers, 1_000)

    runs = BulkSend(kit.operation, put, sync_flush=False)
    processor = SendMessageProcessor(kit.operation, kit.config, runs=runs)
    channel: Any = kit.channel
    frames = CommandReader().feed(b"".join(sent(n, topic="T", flag=flag) for n in range(9)))
    count, responses = processor.process_run(channel, frames)
    assert count == 9
    refused = CommandReader().feed(b"".join(responses))
    assert [each.code for each in refused] == ([] if flag else [17] * 9)
    assert kit.counted == []


def test_large_messages_are_taken_a_few_at_a_time() -> None:
    kit = Kit()
    kit.send()
    runs: list[int] = []

    def put(_topic: str, _born_host: bytes, run: PutRun) -> PlacedRun:
        runs.append(len(run.bodies))
        numbers = range(len(run.bodies))
        return PlacedRun(numbers, numbers, 1_000)

    kit.admission.max_body_bytes = 1 << 22
    processor = SendMessageProcessor(
        kit.operation, kit.config, runs=BulkSend(kit.operation, put, sync_flush=False)
    )
    large = [request_of(number, b"x" * 100_000) for number in range(20)]
    channel: Any = kit.channel
    count, responses = processor.process_run(channel, large)
    assert (count, len(responses), runs) == (3, 3, [3])


def request_of(number: int, body: bytes) -> RemotingCommand:
    (request,) = CommandReader().feed(sent(number, topic="T"))
    request.body = body
    return request
