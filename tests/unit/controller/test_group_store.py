"""Changes are stored one at a time, and applied when they are durable."""

import asyncio
from collections.abc import Sequence

import pytest

from rocketpy.controller.events import AnyEvent
from rocketpy.controller.group_store import GroupStore
from rocketpy.controller.rules import ACCEPTED, Verdict
from rocketpy.errors import DiskFullError, StoreReadOnlyError
from tests.unit.controller.group_kit import NAME, applied


class GatedLog:
    """Log whose appends end when a test says so."""

    state_id = ""

    def __init__(self) -> None:
        self.stored: list[AnyEvent] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.is_closed = False

    async def load(self) -> Sequence[AnyEvent]:
        return applied(1)

    async def append(self, events: Sequence[AnyEvent]) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.stored += events

    async def close(self) -> None:
        self.is_closed = True


async def loaded() -> tuple[GroupStore, GatedLog]:
    log = GatedLog()
    store = GroupStore(log)
    await store.load()
    return store, log


def ids(store: GroupStore) -> list[int]:
    group = store.groups.get(NAME)
    assert group is not None
    return sorted(group.replicas)


async def test_change_is_applied_after_it_is_stored() -> None:
    store, log = await loaded()
    seen: list[Sequence[AnyEvent]] = []
    store.add_listener(seen.append)
    change = asyncio.ensure_future(store.change(lambda: Verdict(events=applied(2))))
    for _ in range(5):
        await asyncio.sleep(0)
    assert ids(store) == [1]
    assert seen == []
    log.gate.set()
    assert (await change).is_accepted
    assert ids(store) == [1, 2]
    assert seen == [applied(2)]


async def test_second_change_decides_on_the_result_of_the_first() -> None:
    store, log = await loaded()
    decided: list[list[int]] = []

    def decide() -> Verdict:
        decided.append(ids(store))
        return Verdict(events=applied(len(ids(store)) + 1))

    both = asyncio.gather(store.change(decide), store.change(decide))
    await asyncio.sleep(0)
    log.gate.set()
    await both
    assert decided == [[1], [1, 2]]


async def test_cancelled_caller_does_not_end_its_change() -> None:
    store, log = await loaded()
    change = asyncio.ensure_future(store.change(lambda: Verdict(events=applied(2))))
    for _ in range(5):
        await asyncio.sleep(0)
    change.cancel()
    await asyncio.gather(change, return_exceptions=True)
    log.gate.set()
    await store.close()
    assert ids(store) == [1, 2]
    assert log.is_closed


async def test_refusal_is_not_stored() -> None:
    store, log = await loaded()
    assert await store.change(lambda: ACCEPTED) is ACCEPTED
    assert log.stored == []


@pytest.mark.parametrize(
    ("error", "is_read_only"), [(DiskFullError("x"), False), (StoreReadOnlyError("x"), True)]
)
async def test_failed_append_changes_nothing(error: Exception, is_read_only: bool) -> None:
    store, log = await loaded()
    log.error = error
    log.gate.set()
    with pytest.raises(type(error)):
        await store.change(lambda: Verdict(events=applied(2)))
    assert ids(store) == [1]
    assert store.is_read_only is is_read_only
