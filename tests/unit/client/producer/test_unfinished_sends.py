"""Sends without a result at the end of a program."""

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any

import pytest

from rocketpy.client.producer.unfinished_sends import UnfinishedSends
from rocketpy.client.sending.result import SendStats
from rocketpy.errors import ClosedError


class Sender:
    """Producer with sends in flight; a flush ends some of them."""

    def __init__(self, in_flight: int, *, stored: int = 0, failed: int = 0) -> None:
        self.in_flight = in_flight
        self.has_flushed = False
        self._stored = stored
        self._failed = failed
        self._failed_so_far = 5

    @property
    def stats(self) -> SendStats:
        return SendStats(0, self.in_flight, 0, self._failed_so_far, 0, 0)

    async def flush(self) -> None:
        if not self.has_flushed:
            self.in_flight -= self._stored + self._failed
            self._failed_so_far += self._failed
        self.has_flushed = True


def run_now(coroutine: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    with pytest.raises(StopIteration):
        coroutine.send(None)
    done.set_result(None)
    return done


def refuse(coroutine: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
    coroutine.close()
    raise ClosedError("the thread has ended")


@pytest.mark.parametrize(
    ("sender", "words"),
    [
        (Sender(500, stored=500), ""),
        (Sender(0), ""),
        (Sender(500, stored=498), "unfinished=2 failed=0"),
        (Sender(500, failed=500), "unfinished=0 failed=500"),
    ],
)
def test_blocking_sends_are_flushed_and_the_rest_is_reported_once(
    sender: Sender, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    sends = UnfinishedSends()
    sends.complete(sender, run_now)
    sends.flush()
    assert sender.has_flushed
    sends.report()
    assert len(caplog.records) == bool(words)
    assert words in caplog.text


def test_sends_whose_loop_has_ended_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    sends = UnfinishedSends()
    lost, done = Sender(3), Sender(0)
    loop = asyncio.new_event_loop()
    for sender in (lost, done):
        sends.watch(sender, loop)
    loop.close()
    sends.report()
    assert "unfinished=3" in caplog.text
    assert not lost.has_flushed


def test_producer_whose_client_was_closed_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    sends = UnfinishedSends()
    sender = Sender(0)
    sends.complete(sender, refuse)
    sends.flush()
    sends.report()
    assert not caplog.records


def test_closed_producer_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    sends = UnfinishedSends()
    sender = Sender(3)
    sends.complete(sender, run_now)
    sends.closed(sender)
    sends.flush()
    sends.report()
    assert not sender.has_flushed
    assert not caplog.records


def test_producers_of_a_parent_process_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    sends = UnfinishedSends()
    sender = Sender(3)
    sends.complete(sender, refuse)
    sends.forget()
    sends.report()
    assert not caplog.records
