"""Event loop on a separate thread: callers do not hang when it ends."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.errors import ClientError, ClosedError

WAIT_S = 10.0


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def three() -> int:
    return 3


def test_results_and_errors_come_back(thread: LoopThread) -> None:
    assert thread.run(three()) == 3
    assert thread.call(lambda: 4) == 4
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)


def test_loop_thread_end_raises_closed_error_for_waiting_callers(thread: LoopThread) -> None:
    waiting = thread.submit(forever())
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            thread.run(forever())
        except ClosedError as error:
            outcome.append(error)

    other = threading.Thread(target=wait)
    other.start()
    thread.run(three())  # both have begun, or will before the end
    thread.close()
    assert waiting.cancelled()
    other.join(WAIT_S)
    assert len(outcome) == 1


def test_nothing_begins_after_the_end(thread: LoopThread) -> None:
    thread.close()
    thread.close()
    with pytest.raises(ClosedError):
        thread.run(three())
    with pytest.raises(ClosedError):
        thread.submit(three())


def test_loop_thread_ended_by_a_handler_releases_waiting_callers(thread: LoopThread) -> None:
    waiting = thread.submit(forever())

    async def leaves() -> None:
        thread.loop.stop()

    thread.submit(leaves())
    with pytest.raises(CancelledError):
        waiting.result(WAIT_S)
    with pytest.raises(ClosedError):
        thread.run(three())


def test_loop_thread_call_on_its_own_thread_raises(thread: LoopThread) -> None:
    async def asks() -> int:
        return thread.run(three())

    with pytest.raises(ClientError, match="plain `def`"):
        thread.run(asks())
    assert not thread.is_of_parent
