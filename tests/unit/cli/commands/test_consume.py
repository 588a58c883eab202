"""`rocketpy consume`: format of messages, and wrong options."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator

import pytest

from rocketpy.cli.commands import consume
from rocketpy.cli.commands.consume import _Reader
from rocketpy.cli.main import command
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.terminal.error_exit import run_command


def printed(capsys: pytest.CaptureFixture[str], form: str, template: str | None = None) -> str:
    stored = MessageExt(topic="t", queue_id=3, queue_offset=7, body=b"a\x07b")
    stored.properties = {"KEYS": "k1 k2", "TAGS": "paid"}
    message = ReceivedMessage(stored, MessageQueue("t", "broker-a", 3))
    _Reader("unused:1", "t", form, template)._print(message)
    return capsys.readouterr().out


def test_line_for_people_bodies_and_what_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(capsys, "table") == "broker-a:3+7  paid  [k1,k2]  a\\x07b\n"
    assert printed(capsys, "body") == "a\x07b\n"
    assert printed(capsys, "body", "{offset}\t{keys} {tag}") == "7\tk1,k2 paid\n"
    assert '"offset":7' in printed(capsys, "json").replace(" ", "")


async def for_ever() -> None:
    await asyncio.Event().wait()


async def at_once() -> None: ...


@pytest.fixture
def hang_ups() -> Iterator[list[int]]:
    """SIGHUP that the command left to others; it may be ignored, where tests run with nohup."""
    found: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--end"], "--end needs --no-group"),
        (["--no-group", "--group", "g"], "--no-group cannot be combined with"),
        (["--no-group", "--sql", "a > 1"], "--no-group cannot be combined with"),
        (["--format", "{body.__class__}"], "unknown field {body.__class__}"),
        (["--format", "{bode}"], "known are topic, broker,"),
        (["--format", "{"], "--format"),
        (["--body-only", "--format", "{body}"], "only one of --body-only, --format and -o json"),
        (["--body-only", "-o", "json"], "only one of --body-only, --format and -o json"),
        (["--filter", "a", "--sql", "TAGS = 'a'"], "give --filter or --sql"),
    ],
)
def test_options_that_contradict_are_usage_errors(
    wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["consume", "t", *wrong])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


async def test_reader_that_leaves_during_the_close_does_not_interrupt_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`head` has its lines: writing fails first, and the check for a reader fires later."""
    closing, has_left = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def messages() -> AsyncGenerator[ReceivedMessage, None]:
        try:
            yield ReceivedMessage(MessageExt(topic="t", body=b"x"), MessageQueue("t", "b", 0))
        finally:
            closing.set()
            await has_left.wait()
            for _ in range(3):
                await asyncio.sleep(0)
            ended.append("offsets stored")

    async def until_reader_is_gone() -> None:
        await closing.wait()
        has_left.set()

    async def until_read() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(consume, "until_reader_is_gone", until_reader_is_gone)
    monkeypatch.setattr(consume, "until_read", until_read)
    with pytest.raises(BrokenPipeError):
        await _Reader("unused:1", ["t"], "body", None).read(messages(), None, None)
    assert ended == ["offsets stored"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_ends_the_read_and_closes_the_messages(
    number: signal.Signals,
    hang_ups: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended: list[str] = []

    async def messages() -> AsyncGenerator[ReceivedMessage, None]:
        try:
            yield ReceivedMessage(MessageExt(topic="t", body=b"x"), MessageQueue("t", "b", 0))
            os.kill(os.getpid(), number)
            for _ in range(100):  # the loop reads signals in a turn
                await asyncio.sleep(0)
            ended.append("continued")
        finally:
            ended.append("offsets stored")

    monkeypatch.setattr(consume, "until_reader_is_gone", for_ever)
    monkeypatch.setattr(consume, "until_read", at_once)
    assert await _Reader("unused:1", ["t"], "body", None).read(messages(), None, None) == 1
    assert ended == ["offsets stored"]
    assert not hang_ups


async def test_signal_during_the_close_does_not_interrupt_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[str] = []

    async def messages() -> AsyncGenerator[ReceivedMessage, None]:
        try:
            yield ReceivedMessage(MessageExt(topic="t", body=b"x"), MessageQueue("t", "b", 0))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
                for _ in range(100):  # the loop reads signals in a turn
                    await asyncio.sleep(0)
            ended.append("offsets stored")

    monkeypatch.setattr(consume, "until_reader_is_gone", for_ever)
    monkeypatch.setattr(consume, "until_read", at_once)
    assert await _Reader("unused:1", ["t"], "body", None).read(messages(), 1, None) == 1
    assert ended == ["offsets stored"]
