"""Kit of the bad-input tests: a raw peer, a cluster that must stay well, and its log."""

import contextlib
import json
import logging
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Self

from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.testing.cluster import ClusterThread

TIMEOUT_S = 60.0

HOSTILE_NAMES = {
    "parent": "../../outside",
    "absolute": "/outside",
    "slash": "a/b",
    "nul": "a\0b",
    "newline": "a\nb",
    "quote": "a'b\"c",
    "not_ascii": "主题",
    "long": "x" * 1000,
    "blank": "a b",
    "separators": "a\1b\2c",
    "dots": "..",
}

_EXPECTED_PATH = re.compile(
    r"broker-a(/(abort|checkpoint|lock|boot)"
    r"|/commitlog(/\d{20})?"
    r"|/consumequeue(/[%|a-zA-Z0-9_-]+(/\d+(/\d{20})?)?)?"
    r"|/index(/\d{17})?"
    r"|/timerwheel|/timerlog(/\d{20})?|/config/timercheck(\.tmp)?"
    r"|/config(/([a-zA-Z]+\.json|timermetrics|transactionMetrics)(\.bak|\.tmp)?)?"
    r"|/config/live\.properties"
    r"|/[a-z.]+)?"
    r"|namesrv(/(kvConfig\.json(\.bak|\.tmp)?|live\.properties))?"
)


class Wire:
    """Connection that writes arbitrary bytes."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)
        self._frames = CommandReader(64 << 20)
        self._ready: list[RemotingCommand] = []
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def name(self) -> str:
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> RemotingCommand:
        while not self._ready:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._ready = self._frames.feed(data)
            assert self._frames.error is None
        return self._ready.pop(0)

    def is_closed_by_peer(self) -> bool:
        """Read until the peer closes; any received byte is a failure."""
        try:
            data = self.socket.recv(1)
        except ConnectionResetError:
            return True
        assert data == b"", "an answer instead of a close"
        return True

    def request(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        self._opaque += 1
        command = make_request(code, dict(ext or {}), body)
        command.opaque = self._opaque
        return command

    def call(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        command = self.request(code, ext, body)
        self.write(encode_command(command))
        while True:
            response = self.receive()
            if response.is_response:
                assert response.opaque == command.opaque
                return response

    def send(self, body: bytes, topic: str = "Bad", **changes: str) -> RemotingCommand:
        return self.call(310, {**send_header(topic), **changes}, body)

    def pull(self, offset: int, topic: str = "Bad", **changes: str) -> RemotingCommand:
        return self.call(11, {**pull_header(topic, offset), **changes})

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """Return all messages of a queue."""
        found: list[bytes] = []
        while True:
            response = self.pull(len(found), topic, queueId=str(queue_id))
            if response.code != 0:
                assert response.code == 19, response.remark
                return found
            found += [message.body for message in decode_messages(response.body)]


def send_header(topic: str = "Bad", queue_id: int = 0) -> dict[str, str]:
    """Return the one-letter fields of a send."""
    return {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    }


def pull_header(topic: str = "Bad", offset: int = 0) -> dict[str, str]:
    return {
        "consumerGroup": "Readers",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    word = serialize_type << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), word) + header + body


class EventLog(logging.Handler):
    """Log events of structlog and logging, as dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[MutableMapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, dict):
            self.events.append(dict(record.msg))
        else:
            event = {"event": record.getMessage(), "log_level": record.levelname.lower()}
            self.events.append({**event, "exc_info": record.exc_info})

    def named(self, text: str, *parts: str) -> list[MutableMapping[str, Any]]:
        """Return the events whose name contains the text, and that mention all parts."""
        return [
            event
            for event in list(self.events)
            if text in event["event"] and all(part in repr(event) for part in parts)
        ]


class World:
    """Cluster with well-behaved clients, which bad input of other peers must not affect."""

    def __init__(self, root: Path, properties: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.cluster = ClusterThread(root, properties=properties)
        self.acknowledged: list[bytes] = []

    @property
    def addresses(self) -> dict[str, str]:
        return {"broker": self.cluster.broker_addresses[0], "namesrv": self.cluster.namesrv}

    def peer(self, server: str = "broker") -> Wire:
        return Wire(self.addresses[server])

    def unexpected_paths(self) -> list[str]:
        """Return files below or beside the root that do not belong there."""
        beside = [path.name for path in self.root.parent.iterdir() if path != self.root]
        below = [path.relative_to(self.root).as_posix() for path in self.root.rglob("*")]
        return beside + [path for path in below if not _EXPECTED_PATH.fullmatch(path)]

    @contextlib.contextmanager
    def staying_well(self) -> Iterator[None]:
        """Check that open connections still work, and acknowledged messages stay readable."""
        with self.peer("broker") as broker, self.peer("namesrv") as namesrv:
            self._acknowledge(broker)
            # A connection without a request is reset when the rest takes long.
            assert namesrv.call(105, {"topic": "Kept"}).code == 0
            yield
            self._acknowledge(broker)
            assert broker.bodies("Kept") == self.acknowledged
            assert namesrv.call(105, {"topic": "Kept"}).code == 0
        assert self.unexpected_paths() == []

    def _acknowledge(self, broker: Wire) -> None:
        body = b"kept %d" % len(self.acknowledged)
        response = broker.send(body, "Kept")
        assert response.code == 0, response.remark
        self.acknowledged.append(body)


@contextlib.contextmanager
def running(root: Path, properties: Mapping[str, str] | None = None) -> Iterator[World]:
    """Run a cluster in which the topics Bad and Kept and the group Readers exist."""
    world = World(root, properties)
    with world.cluster:
        for topic in ("Bad", "Kept"):
            world.cluster.create_topic(topic, 4)
        with world.peer() as peer:
            assert peer.call(11, pull_header("Bad")).code in {0, 19}
        yield world


def finished(
    *arguments: str, cwd: Path | None = None, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command that is expected to end."""
    return subprocess.run(
        [sys.executable, "-m", "rocketpy", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.getcwd(), **environ},
    )


def last_sentence(done: "subprocess.CompletedProcess[str]", exit_code: int) -> str:
    """Return the one sentence on standard error; check exit code and traceback."""
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("rocketpy: ")
    return sentence


@contextlib.contextmanager
def daemon(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a server in a separate process with a JSON log, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketpy", *arguments, "--log-format", "json"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def log_until(process: "subprocess.Popen[str]", event: str) -> list[dict[str, Any]]:
    """Read the log up to an event; the last one returned is that event."""
    assert process.stderr is not None
    seen: list[dict[str, Any]] = []
    for line in process.stderr:
        seen.append(json.loads(line))
        if seen[-1]["event"] == event:
            return seen
    raise AssertionError(f"ended before {event!r}: {seen}")
