"""Responses to pulls: effect of each, without skipped messages."""

from typing import Any

import pytest

from rocketpy.client.consumer.pulling import pull_loop
from rocketpy.client.consumer.pulling.pull_loop import check_topic, decode_pulled
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import (
    BadBodyError,
    ConnectionLostError,
    CorruptRecordError,
    NoPermissionError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.received_cases import stored
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim
from tests.unit.client.steps import nothing, of_topic, until

PULL, HEARTBEAT, ROUTE, STORE = 11, 34, 105, 15
QUEUE = MessageQueue("t", "broker-a", 0)


def pulls(cluster: Cluster) -> list[dict[str, str]]:
    return [r.ext_fields for r in cluster.of_code(PULL) if r.ext_fields["topic"] == "t"]


def collect(into: list[bytes]) -> Any:
    async def handler(message: ReceivedMessage) -> None:
        into.append(message.body)

    return handler


def test_filter_that_changes_holds_from_the_next_pull_on() -> None:
    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []
        async with cluster.client() as client:
            async with client.consumer(
                "t", group="c", filter="a", start="earliest", handler=collect(got)
            ) as consumer:
                cluster.put("t", b"1", properties={"TAGS": "a"})
                await until(lambda: got == [b"1"])
                consumer.subscribe("t", "b")
                await pass_time(20)  # the pull that is held was sent for the tag of before
                cluster.put("t", b"2", properties={"TAGS": "b"})
                cluster.put("t", b"3", properties={"TAGS": "a"})
                await until(lambda: len(got) == 2, 60)
        assert got == [b"1", b"2"]

    run_sim(main, queues=1)


def test_lost_connection_refreshes_routes_and_heartbeat() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: of_topic(consumer))
                await pass_time(3)
                before = len(cluster.of_code(ROUTE)), len(cluster.of_code(HEARTBEAT))
                cluster.script[PULL] = [ConnectionLostError("gone")] * 2
                await pass_time(20)
                after = len(cluster.of_code(ROUTE)), len(cluster.of_code(HEARTBEAT))
        assert after[0] > before[0]
        assert after[1] > before[1]

    run_sim(main, queues=1)


def test_broker_that_forgot_us_gets_a_heartbeat() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: of_topic(consumer))
                await pass_time(5)
                before = len(cluster.of_code(HEARTBEAT))
                cluster.script[PULL] = [24] * 2  # SUBSCRIPTION_NOT_EXIST
                await pass_time(18)
                assert len(cluster.of_code(HEARTBEAT)) > before

    run_sim(main, queues=1)


def test_flow_control_is_asked_again_soon_and_is_no_failure() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[PULL] = [215] * 5
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: of_topic(consumer))
                await pass_time(1)
                assert consumer.health().ok
                assert len(pulls(cluster)) >= 3

    run_sim(main, queues=1)


def test_slave_a_broker_suggests_is_asked_and_gets_no_offset() -> None:
    async def main(cluster: Cluster) -> None:
        def suggest(_: str, request: RemotingCommand) -> RemotingCommand:
            fields = {
                "suggestWhichBrokerId": "1",
                "nextBeginOffset": "4",
                "minOffset": "0",
                "maxOffset": "4",
            }
            return make_response(request, 20, ext_fields=fields)

        async with cluster.client() as client:
            routes = client._running().routes
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.queues("t")
                routes._brokers["broker-a"] = {0: BROKER_A, 1: "slave:10911"}
                cluster.script[PULL] = [suggest]
                await consumer.assign([QUEUE])
                await pass_time(1)
        at = [address for address, request in cluster.requests if request.code == PULL]
        assert at[:2] == [BROKER_A, "slave:10911"]
        assert pulls(cluster)[1]["commitOffset"] == "0"

    run_sim(main, queues=1)


def test_response_without_offsets_is_a_failure_that_health_shows() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[PULL] = [lambda _, request: make_response(request, 0)] * 9
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                await pass_time(1.5)
                assert not consumer.health().ok

    run_sim(main, queues=1)


def test_lasting_refusal_is_raised_by_poll() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[PULL] = [16]  # NO_PERMISSION
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                with pytest.raises(NoPermissionError) as caught:
                    await consumer.poll()
                assert not caught.value.retriable
                assert await consumer.poll(timeout=0.1) == []  # told once; it goes on trying

    run_sim(main, queues=1)


def test_messages_that_cannot_be_inflated_come_beside_those_that_can() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"good")
        cluster.put("t", b"not zlib", sys_flag=1)
        good, bad, is_whole = decode_pulled(cluster.records("t", 0, 0, 2))

        assert [ext.body for ext in good] == [b"good"]
        assert [ext.body for ext, _ in bad] == [b"not zlib"]
        assert is_whole

    run_sim(main)


def brought(code: int, offsets: tuple[int, ...], following: int) -> Any:
    """Return an answer with messages at these offsets."""
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(following)}
    fields |= {"minOffset": "0", "maxOffset": "9"}
    body = b"".join(stored(b"%d" % offset, topic="t", offset=offset) for offset in offsets)
    return lambda _, request: make_response(request, code, ext_fields=fields, body=body)


@pytest.mark.parametrize("decoder", ["compiled", "pure"])
@pytest.mark.parametrize(
    ("code", "offsets", "following"),
    [
        (0, (0, 1, 1, 2), 3),
        (0, (2, 0, 1), 3),
        (0, (-1, 0), 1),
        (0, (0, 1), 0),
        (0, (0, 1), 1),
        (0, ((1 << 63) - 1,), (1 << 63) - 1),
        (0, (), -1),
        (19, (), -1),
    ],
    ids=str,
)
def test_messages_that_are_no_row_are_refused_whole_and_asked_for_again(
    code: int,
    offsets: tuple[int, ...],
    following: int,
    decoder: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if decoder == "pure":
        monkeypatch.setattr(pull_loop, "decode_compiled", lambda *_, **__: None)

    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []
        cluster.script[PULL] = [brought(code, offsets, following), brought(0, (0, 1, 4), 5)]
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                with pytest.raises(BadBodyError):
                    got += [message.body for message in await consumer.poll()]
                await pass_time(0.5)
                assert not consumer.health().ok
                got += [message.body for message in await consumer.poll()]
                assert consumer.health().ok
        assert got == [b"0", b"1", b"4"]

    run_sim(main, queues=1)


def test_pull_response_that_continues_before_its_messages_repeats_none() -> None:
    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []
        answers = [brought(0, (0, 1, 2), 3), brought(0, (1, 2, 3), 4), brought(0, (3,), 1)]

        def step(address: str, request: RemotingCommand) -> RemotingCommand | None:
            cluster.script[PULL].append(step)
            if request.ext_fields["topic"] != "t":
                return None
            answer = answers.pop(0) if answers else brought(19, (), 3)
            response: RemotingCommand = answer(address, request)
            return response

        cluster.script[PULL].append(step)
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=collect(got)):
                await until(lambda: not answers)
        assert got == [b"0", b"1", b"2"]
        assert cluster.offsets["c", "broker-a", "t", 0] == 3

    run_sim(main, queues=1)


def altered(kind: str) -> bytes:
    """Return records at the offsets 0 to 4 of which something is wrong."""
    records = [stored(b"%d" % offset, topic="t", offset=offset) for offset in range(5)]
    whole = b"".join(records)
    if kind == "cut":
        return whole[: -len(records[4]) + 5]
    if kind == "zeros":
        return b"".join(records[:3]) + bytes(len(records[3]) + len(records[4]))
    if kind == "another topic":
        return b"".join([*records[:4], stored(b"4", topic="other", offset=4)])
    return b""


@pytest.mark.parametrize("decoder", ["compiled", "pure"])
@pytest.mark.parametrize("kind", ["cut", "zeros", "another topic", "nothing"])
def test_pull_response_with_a_damaged_body_skips_no_message(
    kind: str, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if decoder == "pure":
        monkeypatch.setattr(pull_loop, "decode_compiled", lambda *_, **__: None)
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "5"}
    fields |= {"minOffset": "0", "maxOffset": "5"}

    def wrong(_: str, request: RemotingCommand) -> RemotingCommand:
        return make_response(request, 0, ext_fields=fields, body=altered(kind))

    async def main(cluster: Cluster) -> None:
        cluster.script[PULL] = [wrong, brought(0, (0, 1, 2, 3, 4), 5)]
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                with pytest.raises((BadBodyError, CorruptRecordError)):
                    await consumer.poll()
                assert not consumer.health().ok
                got = [message.body for message in await consumer.poll()]
                assert consumer.health().ok
        assert got == [b"0", b"1", b"2", b"3", b"4"]

    run_sim(main, queues=1)


def test_messages_of_any_topic_lie_in_a_light_queue() -> None:
    check_topic("%LMQ%t", "other")
    with pytest.raises(BadBodyError, match="of topic t returned a message of topic other"):
        check_topic("t", "other")


def test_huge_inflated_response_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_loop, "MOST_BODY_BYTES", 2_500)
    bodies = [b"%d" % number * 1_000 for number in range(8)]

    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []
        for body in bodies:
            cluster.put("t", deflate(body), sys_flag=with_compression(0, CompressionType.ZLIB))
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=collect(got)):
                await until(lambda: len(got) == len(bodies))
        assert sorted(got) == bodies
        assert {pull["queueOffset"] for pull in pulls(cluster)} >= {"0", "3", "6", "8"}
        assert cluster.offsets["c", "broker-a", "t", 0] == len(bodies)

    run_sim(main, queues=1)


@pytest.mark.parametrize("code", [19, 20])
def test_broker_that_holds_no_pull_is_not_asked_as_fast_as_it_answers(code: int) -> None:
    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []

        def at_once(_: str, request: RemotingCommand) -> RemotingCommand:
            cluster.script[PULL].append(at_once)
            fields = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "0"}
            fields |= {"nextBeginOffset": request.ext_fields["queueOffset"]}
            return make_response(request, code, ext_fields=fields)

        cluster.script[PULL] = [at_once]
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                await pass_time(20)
                assert 20 <= len(pulls(cluster)) <= 30
                assert consumer.health().ok
                cluster.put("t", b"0")
                cluster.script[PULL].clear()
                got += [message.body for message in await consumer.poll()]
                assert got == [b"0"]
                await consumer.poll(timeout=0.5)
                assert 20 <= len(pulls(cluster)) <= 31, "the broker holds it"

    run_sim(main, queues=1)


def test_broker_that_moves_a_queue_again_and_again_does_not_set_the_pace() -> None:
    async def main(cluster: Cluster) -> None:
        def move(_: str, request: RemotingCommand) -> RemotingCommand:
            cluster.script[PULL].append(move)
            fields = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "9"}
            fields |= {"nextBeginOffset": "3" if request.ext_fields["queueOffset"] == "0" else "0"}
            return make_response(request, 21, ext_fields=fields)

        cluster.script[PULL] = [move]
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                await pass_time(0.5)
                assert [pull["queueOffset"] for pull in pulls(cluster)] == ["0", "3"]
                await pass_time(10)
                assert 9 <= len(pulls(cluster)) <= 13

    run_sim(main, queues=1)
