"""Sign of life of a broker whose name and id another broker wants."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.namesrv.holder_check import ANSWER_TIMEOUT_MS, HolderCheck
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel


class FakeChannel(Channel):
    """Channel whose peer gives one answer, or fails."""

    __slots__ = ("aborted", "answer", "asked", "release")

    def __init__(self, answer: int | Exception) -> None:
        self.answer = answer
        self.release = asyncio.Event()
        self.release.set()
        self.remote_address = "10.0.0.1:5"
        self.asked: list[tuple[RemotingCommand, int]] = []
        self.aborted: list[str] = []

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append((command, timeout_ms))
        await self.release.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return make_response(command, self.answer)

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", [0, 3, ConnectionLostError("closed")], ids=repr)
async def test_holder_that_answers_or_has_left_is_not_closed(
    answer: int | Exception, events: list[Any]
) -> None:
    check, holder = HolderCheck(), FakeChannel(answer)
    check.start()
    check.begin(holder)
    await turns()
    [(command, timeout_ms)] = holder.asked
    assert (command.code, timeout_ms) == (904, ANSWER_TIMEOUT_MS)
    assert holder.aborted == []
    assert [each for each in events if each["log_level"] != "debug"] == []
    await check.stop()


async def test_holder_without_an_answer_is_closed_with_a_warning(events: list[Any]) -> None:
    check, holder = HolderCheck(), FakeChannel(RequestTimeoutError("late"))
    check.start()
    check.begin(holder)
    await turns()
    assert len(holder.aborted) == 1
    assert [(each["log_level"], each["peer"]) for each in events] == [("warning", "10.0.0.1:5")]
    await check.stop()


async def test_holder_is_asked_once_at_a_time_and_not_after_the_stop() -> None:
    check, holder = HolderCheck(), FakeChannel(0)
    check.begin(holder)
    await turns()
    assert holder.asked == [], "not started"
    check.start()
    holder.release.clear()
    for _ in range(3):
        check.begin(holder)
        await turns()
    assert len(holder.asked) == 1
    holder.release.set()
    await turns()
    check.begin(holder)
    await turns()
    assert len(holder.asked) == 2
    holder.release.clear()
    check.begin(holder)
    await turns()
    await check.stop()
    check.begin(holder)
    await turns()
    assert len(holder.asked) == 3
