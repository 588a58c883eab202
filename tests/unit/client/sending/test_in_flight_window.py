"""In-flight window: callers enter in order, and none waits while there is room."""

import asyncio

import pytest

from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.errors import ClosedError


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
