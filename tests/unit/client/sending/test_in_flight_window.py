"""In-flight window: callers enter in order, and none waits while there is room."""

import asyncio

import pytest

from rocketpy.client.sending.in_flight_window import STALL_S, InFlightWindow
from rocketpy.errors import ClosedError, NotSentError
from rocketpy.testing.sim_loop import SimLoop
from tests.unit.client.sim import pass_time


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def waiters(
    window: InFlightWindow, names: str, into: list[str]
) -> dict[str, asyncio.Task[None]]:
    async def wait(name: str) -> None:
        await window.wait_for_space()
        window.enter(1)
        into.append(name)

    tasks = {name: asyncio.create_task(wait(name)) for name in names}
    await turn()
    return tasks


async def test_room_is_given_in_the_order_of_asking() -> None:
    window = InFlightWindow(1, 100)
    window.enter(1)
    entered: list[str] = []
    await waiters(window, "abc", entered)

    for count in range(1, 4):
        window.leave(1)
        await turn()
        assert len(entered) == count

    assert entered == ["a", "b", "c"]
    assert window.messages == 1


async def test_large_send_that_leaves_lets_everybody_in_that_fits() -> None:
    window = InFlightWindow(100, 10)
    window.enter(10)
    entered: list[str] = []
    await waiters(window, "abc", entered)

    window.leave(10)
    await turn()

    assert entered == ["a", "b", "c"]


async def test_woken_caller_that_never_sends_does_not_block_the_next() -> None:
    window = InFlightWindow(1, 100)
    window.enter(1)

    async def gives_up() -> None:
        await window.wait_for_space()  # and then its body breaks a limit

    first = asyncio.create_task(gives_up())
    await turn()
    entered: list[str] = []
    await waiters(window, "b", entered)

    window.leave(1)
    await turn()

    assert first.done()
    assert entered == ["b"]


async def test_turn_is_not_lost_when_its_owner_is_cancelled() -> None:
    window = InFlightWindow(1, 100)
    window.enter(1)
    entered: list[str] = []
    tasks = await waiters(window, "ab", entered)

    window.leave(1)
    tasks["a"].cancel()
    await turn()

    assert entered == ["b"]


async def test_woken_caller_without_room_stays_first_in_line() -> None:
    window = InFlightWindow(1, 100)
    window.enter(1)
    entered: list[str] = []
    await waiters(window, "ab", entered)

    window.leave(1)
    window.enter(1)  # somebody who does not wait was quicker
    await turn()
    assert entered == []
    window.leave(1)
    await turn()

    assert entered == ["a"]


async def test_later_caller_does_not_overtake_one_whose_turn_has_come() -> None:
    window = InFlightWindow(1, 100)
    window.enter(1)
    entered: list[str] = []
    await waiters(window, "a", entered)

    window.leave(1)
    assert not window.has_space, "the room is reserved"
    assert not window.is_free
    await waiters(window, "b", entered)

    assert entered == ["a"]


async def test_cancelled_callers_leave_the_line() -> None:
    window = InFlightWindow(1, 100)
    window.enter(1)
    entered: list[str] = []
    tasks = await waiters(window, "abc", entered)
    assert window.waiting == 3

    tasks["b"].cancel()
    await turn()
    assert window.waiting == 2
    window.leave(1)
    await turn()
    window.leave(1)
    await turn()

    assert entered == ["a", "c"]
    assert window.messages == 1


async def test_large_bodies_in_flight_wake_no_more_callers_than_fit() -> None:
    window = InFlightWindow(1000, 100)
    for _ in range(2):
        window.enter(50)
    woken: list[int] = []

    async def send(number: int) -> None:
        await window.wait_for_space()
        woken.append(number)
        window.enter(50)

    tasks = [asyncio.create_task(send(number)) for number in range(10)]
    await turn()
    window.leave(50)
    await turn()

    assert woken == [0]
    assert window.waiting == 9
    for _ in range(9):
        window.leave(50)
        await turn()
    assert woken == list(range(10))
    assert all(task.done() for task in tasks)


async def test_callers_returned_by_a_large_body_keep_their_order() -> None:
    window = InFlightWindow(10, 10)
    window.enter(10)
    entered: list[str] = []

    async def send(name: str, size_bytes: int) -> None:
        await window.wait_for_space()
        window.enter(size_bytes)
        entered.append(name)

    tasks = [asyncio.create_task(send(name, 100)) for name in "abcd"]
    await turn()
    window.leave(10)  # nothing is known of the sizes: all four are woken, one fits
    await turn()
    assert entered == ["a"]
    for _ in range(3):
        window.leave(100)
        await turn()

    assert entered == ["a", "b", "c", "d"]
    assert all(task.done() for task in tasks)


async def test_closed_window_fails_the_callers_in_line_as_not_sent() -> None:
    window = InFlightWindow(1, 10)
    window.enter(1)
    waiting = asyncio.create_task(window.wait_for_space())
    await turn()
    closing = asyncio.create_task(window.close())
    await turn()

    with pytest.raises(NotSentError, match="nothing was sent") as caught:
        await waiting
    assert not caught.value.retriable
    assert not closing.done()
    window.leave(1)
    await closing


async def test_window_closed_between_turn_and_entry_ends_its_close() -> None:
    window = InFlightWindow(1, 10)
    window.enter(1)
    waiting = asyncio.create_task(window.wait_for_space())
    await turn()
    closing = asyncio.create_task(window.close())
    window.leave(1)  # the caller gets its turn, and the window is closed before it runs

    with pytest.raises(NotSentError):
        await waiting
    await asyncio.wait_for(closing, 1)


def test_callers_fail_when_nothing_is_stored_for_a_minute() -> None:
    loop = SimLoop(1)  # type: ignore[abstract]
    window = InFlightWindow(1, 10)

    async def main() -> None:
        window.enter(1)
        began_s = loop.time()
        waiting = asyncio.ensure_future(window.wait_for_space())
        await pass_time(50)
        window.leave(1)  # progress: it gets its turn, and enters
        await waiting
        window.enter(1)
        stuck = asyncio.ensure_future(window.wait_for_space())
        for _ in range(3):  # each fails, so that none is stored
            await pass_time(20)
            window.failed += 1
            window.leave(1)
            window.enter(1)
        with pytest.raises(NotSentError, match=f"waited {STALL_S} s"):
            await stuck
        assert 110 <= loop.time() - began_s <= 180

    loop.run_until_complete(main())


async def test_bytes_count_and_the_last_one_in_may_go_over() -> None:
    window = InFlightWindow(100, 10)
    window.enter(9)
    assert window.has_space
    window.enter(1000)
    assert not window.has_space
    window.leave(1000)
    assert window.has_space


async def test_flush_waits_for_sends_started_meanwhile() -> None:
    window = InFlightWindow(10, 10)
    window.enter(1)
    flushed = asyncio.create_task(window.flush())
    await turn()
    window.enter(1)
    window.leave(1)
    await turn()
    assert not flushed.done()

    window.leave(1)
    await turn()

    assert flushed.done()


async def test_closed_window_refuses_sends() -> None:
    window = InFlightWindow(10, 10)
    await window.close()

    with pytest.raises(ClosedError):
        window.enter(1)
