"""Names that a broker keeps for its peers; measured from outside its process.

Suspended pulls, and everything that is kept under a name that a peer sends.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.command import RemotingCommand, encode_command
from tests.bad_input.kit import Wire, pull_header
from tests.bad_input.test_memory import MIB, Daemon
from tests.bad_input.test_memory import broker as process_of_its_own


class Served:
    """A broker with default limits, and how much memory it took at most since the start."""

    def __init__(self, process: Daemon) -> None:
        self.memory = process.memory
        self.peer = process.peer
        self.before = self.highest = self.memory()

    @property
    def grown(self) -> int:
        self.highest = max(self.highest, self.memory())
        return self.highest - self.before

    def watch(self, seconds: float) -> None:
        """Let it work, and note the highest it gets to."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            assert self.grown >= 0
            time.sleep(0.01)


@contextlib.contextmanager
def broker(store: Path) -> Iterator[Served]:
    with process_of_its_own(store) as process:
        with process.peer() as peer:
            assert peer.send(b"first").code == 0
        yield Served(process)


def held_pull(peer: Wire, body: bytes = b"", **changes: str) -> bytes:
    """A pull that waits for the second message."""
    ext = {**pull_header("Bad", 1), "sysFlag": "6", "suspendTimeoutMillis": "30000", **changes}
    return encode_command(peer.request(11, ext, body))


def bodies(response: RemotingCommand) -> list[int]:
    return [len(message.body) for message in decode_messages(response.body)]


def test_one_message_that_wakes_many_pulls_of_one_connection(tmp_path: Path) -> None:
    """The pulls are read one after the other, as the peer takes the responses."""
    with broker(tmp_path / "s") as served, served.peer() as slow, served.peer() as honest:
        slow.write(b"".join(held_pull(slow) for _ in range(300)))
        assert slow.call(7_777).code == 3, "all of them wait"
        assert honest.send(bytes(4 * MIB - 100)).code == 0
        served.watch(1.0)
        assert honest.send(b"third").code == 0
        assert served.grown < 96 * MIB
        for _ in range(300):
            assert bodies(slow.receive())[0] == 4 * MIB - 100
        assert served.grown < 96 * MIB


def test_one_message_that_wakes_a_pull_of_many_connections(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, contextlib.ExitStack() as stack:
        honest = stack.enter_context(served.peer())
        peers = [stack.enter_context(served.peer()) for _ in range(200)]
        for peer in peers:
            peer.write(held_pull(peer))
            assert peer.call(7_777).code == 3
        assert honest.send(bytes(4 * MIB - 100)).code == 0
        served.watch(1.0)
        assert honest.send(b"third").code == 0
        assert served.grown < 640 * MIB
        for peer in peers:
            assert bodies(peer.receive())[0] == 4 * MIB - 100


def test_suspended_pull_does_not_keep_its_body(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, served.peer() as peer:
        for _ in range(60):
            peer.write(held_pull(peer, bytes(15 * MIB)))
            assert peer.call(7_777).code == 3
        assert served.memory() - served.before < 64 * MIB
        assert served.grown < 128 * MIB


def test_types_of_expressions_that_are_not_there_are_not_kept(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, served.peer() as peer:
        subscription = {"topic": "Bad", "subString": "a", "tagsSet": ["a"], "codeSet": [97]}
        for number in range(60):
            kind = str(number).ljust(900_000, "x")
            beat = heartbeat("c", f"G{number}", [{**subscription, "expressionType": kind}])
            assert peer.call(34, {}, beat).code == 0
        assert peer.call(34, {}, heartbeat("c", "Readers", [subscription])).code == 0
        for number in range(40):
            kind = str(number).ljust(4 * MIB, "x")
            ext = {**pull_header("Bad", 0), "consumerGroup": "Readers", "expressionType": kind}
            found = peer.call(11, {**ext, "sysFlag": "0"})  # remembered
            assert found.code == 20, found.remark
            held = {**ext, "sysFlag": "2", "queueOffset": "1", "suspendTimeoutMillis": "30000"}
            peer.write(encode_command(peer.request(11, held)))
        assert peer.call(7_777).code == 3
        assert served.memory() - served.before < 64 * MIB


@pytest.mark.long
def test_suspended_pulls_with_long_lists_of_tags(tmp_path: Path) -> None:
    """Subscribe with so many different filters that together they exceed the limit."""
    with broker(tmp_path / "s") as served, served.peer() as peer, served.peer() as honest:
        for number in range(2_500):
            tags = "||".join(f"{number}x{index}" for index in range(1_500))
            peer.write(held_pull(peer, subscription=tags))
        last = peer.request(7_777)
        peer.write(encode_command(last))
        while peer.receive().opaque != last.opaque:  # those there was no room for are answered
            assert served.grown < 256 * MIB
        assert honest.send(b"second", i="TAGS\1none\2").code == 0
        served.watch(0.5)
        assert honest.pull(1).code == 0
        assert served.grown < 256 * MIB


@pytest.mark.long
def test_long_expressions_are_refused_and_not_kept(tmp_path: Path) -> None:
    expressions = {
        "one": lambda number: f"{number}" + "x" * (7 * MIB),
        "many": lambda number: "||".join(f"{number}{index}" for index in range(500_000)),
    }
    with broker(tmp_path / "s") as served, served.peer() as peer:
        for make in expressions.values():
            for number in range(30):
                response = peer.pull(0, subscription=make(number))
                assert (response.code, "expression has" in (response.remark or "")) == (23, True)
        assert served.memory() - served.before < 64 * MIB
        assert peer.pull(0, subscription="*").code == 0


def heartbeat(client_id: str, group: str, subscriptions: list[dict[str, Any]]) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    return orjson.dumps({"clientID": client_id, "consumerDataSet": [consumer]})


def test_subscriptions_of_heartbeats_have_a_bound_in_all(tmp_path: Path) -> None:
    """The client with the most subscriptions is disconnected; small clients continue."""
    tags = [f"{number}" for number in range(60_000)]
    subscription = {"topic": "Bad", "subString": "a", "tagsSet": tags, "subVersion": 1}
    with broker(tmp_path / "s") as served, contextlib.ExitStack() as stack:
        honest = stack.enter_context(served.peer())
        assert honest.call(34, {}, heartbeat("honest", "Readers", [])).code == 0
        peers = [stack.enter_context(served.peer()) for _ in range(20)]
        for number, peer in enumerate(peers):
            for part in range(3):
                body = heartbeat(f"c{number}", f"g{number}x{part}", [subscription])
                with contextlib.suppress(EOFError, ConnectionError):
                    peer.call(34, {}, body)
        assert honest.call(34, {}, heartbeat("honest", "Readers", [])).code == 0
        assert served.grown < 256 * MIB
        assert honest.call(38, {"consumerGroup": "Readers"}).code == 0


def test_locks_of_made_up_groups_and_queues_are_not_kept(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, served.peer() as peer:
        for number in range(30):
            queues = [
                {"topic": f"T{number}x{index}", "brokerName": "b", "queueId": index}
                for index in range(15_000)
            ]
            body = {"consumerGroup": f"g{number}", "clientId": "c", "mqSet": queues}
            response = peer.call(41, {}, orjson.dumps(body))
            assert orjson.loads(response.body) == {"lockOKMQSet": []}
            too_long = peer.call(41, {}, orjson.dumps({**body, "clientId": "c" * MIB}))
            assert too_long.code == 29
        assert served.memory() - served.before < 64 * MIB


def test_offsets_of_queues_that_are_not_there_are_not_kept(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, served.peer() as peer:
        assert peer.pull(0).code == 0, "the group exists"
        header = {"topic": "Bad", "consumerGroup": "Readers", "commitOffset": "7"}
        for start in range(0, 100_000, 1_000):
            frames = (
                encode_command(peer.request(15, {**header, "queueId": str(4 + start + number)}))
                for number in range(1_000)
            )
            peer.write(b"".join(frames))
            assert all(peer.receive().code == 0 for _ in range(1_000))
        assert orjson.loads(peer.call(43).body)["offsetTable"] == {}
        assert served.memory() - served.before < 16 * MIB
