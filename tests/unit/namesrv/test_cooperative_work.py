import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from rocketpy.namesrv.cooperative_work import LongWork
from rocketpy.runtime.service import Steps


class FakeChannel:
    is_open = True


def steps(log: list[str], name: str, count: int) -> Steps[str]:
    for number in range(count):
        log.append(f"{name}{number}")
        yield
    return name


def channel() -> Any:
    return FakeChannel()


async def later(outcome: str | Awaitable[str | None]) -> str | None:
    assert not isinstance(outcome, str)
    return await outcome


async def test_long_work_yields_to_the_loop_between_steps() -> None:
    log: list[str] = []
    work = asyncio.ensure_future(later(LongWork().do(channel(), steps(log, "a", 3), is_long=True)))
    while not work.done():
        log.append(".")
        await asyncio.sleep(0)
    assert work.result() == "a"
    assert [each for each in log if each != "."] == ["a0", "a1", "a2"]
    assert "a0.a1.a2" in "".join(log)


async def test_long_work_is_overtaken_only_by_other_connections() -> None:
    log: list[str] = []
    line, one, other = LongWork(), channel(), channel()
    first = asyncio.ensure_future(later(line.do(one, steps(log, "a", 2), is_long=True)))
    second = asyncio.ensure_future(later(line.do(other, steps(log, "b", 2), is_long=True)))
    third = asyncio.ensure_future(later(line.do(one, steps(log, "c", 1))))
    assert line.do(channel(), steps(log, "d", 1)) == "d"
    assert [await each for each in (first, second, third)] == ["a", "b", "c"]
    assert log == ["d0", "a0", "a1", "b0", "b1", "c0"]
    assert line.do(one, steps(log, "e", 1)) == "e", "nothing waits any more"


async def test_long_work_of_a_closed_connection_is_dropped() -> None:
    log: list[str] = []
    one = channel()
    work = asyncio.ensure_future(later(LongWork().do(one, steps(log, "a", 9), is_long=True)))
    await asyncio.sleep(0)
    one.is_open = False
    assert await work is None
    assert log == ["a0"]


async def test_long_work_failure_does_not_block_others() -> None:
    def failing() -> Steps[str]:
        yield
        raise ValueError("wrong")

    line, one = LongWork(), channel()
    work = asyncio.ensure_future(later(line.do(one, failing(), is_long=True)))
    with pytest.raises(ValueError, match="wrong"):
        await work
    assert line.do(one, steps([], "a", 1)) == "a"


def test_long_work_without_a_loop_runs_immediately() -> None:
    assert LongWork().do(channel(), steps([], "a", 9), is_long=True) == "a"
