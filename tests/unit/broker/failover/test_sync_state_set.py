"""Sync-state set at its master: what is waited for, and what the controller is asked for."""

from rocketpy.broker.failover.sync_state_set import CLOSED_MS, SyncStateSet


class Kit:
    """Set of master 1, with time and logs that a test moves."""

    def __init__(self, members: set[int], *, epoch_start: int = 0) -> None:
        self.now_ms = 1_000
        self.end = 100
        self.confirmed = 100
        self.logs: dict[int, int] = {}
        self.set = SyncStateSet(
            1, members, 5, epoch_start=epoch_start, not_level_ms=15_000, now_ms=self.now_ms
        )

    def wanted(self, passed_ms: int = 0) -> frozenset[int] | None:
        self.now_ms += passed_ms
        return self.set.wanted(
            self.logs, end=self.end, confirmed=self.confirmed, now_ms=self.now_ms
        )


def test_replica_that_is_level_is_wanted_and_waited_for_before_the_answer() -> None:
    kit = Kit({1})
    kit.logs = {2: 100}
    wanted = kit.wanted()
    assert wanted == frozenset({1, 2})
    assert wanted is not None
    assert kit.set.needed == frozenset()
    kit.set.ask(wanted)
    assert kit.set.needed == {2}
    assert kit.wanted() is None  # one request at a time
    kit.set.set_stored({1, 2}, 6, kit.now_ms)
    assert (kit.set.stored, kit.set.needed) == (frozenset({1, 2}), frozenset({2}))
    assert not kit.set.is_asking
    assert kit.wanted() is None


def test_replica_behind_the_confirmed_end_or_the_epoch_does_not_join() -> None:
    kit = Kit({1}, epoch_start=90)
    kit.logs = {2: 99}
    assert kit.wanted() is None
    kit.confirmed = 50
    kit.logs = {2: 89}
    assert kit.wanted() is None
    kit.logs = {2: 90}
    assert kit.wanted() == frozenset({1, 2})


def test_replica_that_leaves_is_waited_for_until_the_controller_has_stored_it() -> None:
    kit = Kit({1, 2, 3})
    kit.logs = {2: 100, 3: 100}
    assert kit.wanted() is None
    kit.logs = {2: 100}
    assert kit.wanted(CLOSED_MS) is None
    wanted = kit.wanted(1)
    assert wanted == frozenset({1, 2})
    assert wanted is not None
    kit.set.ask(wanted)
    assert kit.set.needed == {2, 3}
    kit.set.set_stored({1, 2}, 6, kit.now_ms)
    assert kit.set.needed == {2}


def test_connected_replica_that_is_not_level_leaves_after_its_time() -> None:
    kit = Kit({1, 2})
    kit.logs = {2: 100}
    kit.wanted()
    for _ in range(15):
        kit.end += 10
        assert kit.wanted(1_000) is None
    kit.end += 10
    kit.confirmed = 100
    assert kit.wanted(2_000) == frozenset({1})


def test_replica_level_with_the_previous_end_stays() -> None:
    kit = Kit({1, 2})
    for _ in range(60):
        kit.logs = {2: kit.end}  # the end of the last call
        kit.end += 10
        assert kit.wanted(1_000) is None


def test_refused_request_is_forgotten_and_older_answers_are_ignored() -> None:
    kit = Kit({1})
    kit.logs = {2: 100}
    kit.set.ask(frozenset({1, 2}))
    assert kit.set.retry() == {1, 2}
    kit.set.set_stored({1}, 5, kit.now_ms)
    assert kit.set.needed == {2}
    kit.set.failed()
    assert kit.set.needed == frozenset()
    kit.set.set_stored({1, 2}, 7, kit.now_ms)
    kit.set.set_stored({1}, 6, kit.now_ms)
    assert kit.set.stored == {1, 2}
