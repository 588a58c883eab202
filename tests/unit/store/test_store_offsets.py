"""Offsets of a store and the callbacks of their waiters."""

from rocketpy.store.store_offsets import StoreOffsets


class Waiting:
    def __init__(self, *, asks_flush: bool) -> None:
        self.offsets = StoreOffsets(asks_flush=asks_flush)
        self.responses: list[tuple[str, bool]] = []
        self.visible: list[int] = []
        self.asked = 0
        self.offsets.on_visible = self.visible.append
        self.offsets.on_wait = self._ask

    def _ask(self) -> None:
        self.asked += 1

    def wait(self, name: str, phy_end: int, deadline_ms: int = 1_000) -> None:
        self.offsets.wait_for(phy_end, deadline_ms, lambda ok: self.responses.append((name, ok)))


def test_without_flush_all_that_is_appended_is_visible() -> None:
    waiting = Waiting(asks_flush=False)
    waiting.offsets.appended = 100
    assert (waiting.offsets.visible, waiting.offsets.dirty_bytes) == (100, 100)
    waiting.wait("a", 100)
    assert (waiting.responses, waiting.asked) == ([("a", True)], 0)


def test_with_flush_only_what_is_on_disk_is_visible() -> None:
    waiting = Waiting(asks_flush=True)
    waiting.offsets.appended = 100
    waiting.wait("a", 60)
    waiting.wait("b", 100)
    assert (waiting.offsets.visible, waiting.responses, waiting.asked) == (0, [], 2)
    waiting.offsets.flush_reached(60)
    assert (waiting.visible, waiting.responses) == ([60], [("a", True)])
    waiting.offsets.flush_reached(100)
    assert waiting.responses[1:] == [("b", True)]


def test_replicas_bound_what_is_visible_when_there_are_any() -> None:
    waiting = Waiting(asks_flush=True)
    waiting.offsets.wait_for_replicas()
    waiting.offsets.appended = 100
    waiting.offsets.confirm_reached(40)
    waiting.wait("a", 80)
    waiting.offsets.flush_reached(100)
    assert (waiting.offsets.visible, waiting.responses) == (40, [])
    waiting.offsets.confirm_reached(80)
    assert (waiting.offsets.visible, waiting.responses) == (80, [("a", True)])


def test_waiter_past_deadline_or_failed_disk_gets_false() -> None:
    waiting = Waiting(asks_flush=True)
    waiting.offsets.appended = 100
    waiting.wait("early", 100, deadline_ms=10)
    waiting.wait("late", 100, deadline_ms=20)
    waiting.offsets.expire(10)
    assert waiting.responses == [("early", False)]
    waiting.offsets.fail()
    waiting.wait("after", 100)
    assert waiting.responses[1:] == [("late", False), ("after", False)]


def test_flushed_never_goes_back() -> None:
    waiting = Waiting(asks_flush=True)
    waiting.offsets.appended = 100
    waiting.offsets.flush_reached(100)
    waiting.offsets.flush_reached(50)
    assert waiting.offsets.flushed == 100


def test_start_sets_the_whole_row() -> None:
    offsets = StoreOffsets(asks_flush=True)
    offsets.restart(500, 7)
    row = (offsets.appended, offsets.flushed, offsets.visible, offsets.dispatched)
    assert row == (500, 500, 500, 500)
    assert (offsets.appended_ms, offsets.dispatched_ms) == (7, 7)
