"""Start offsets of pops, and when the committed offset advances."""

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.proto.pop import INIT_MAX, INIT_MIN
from tests.unit.broker.fakes import FakeClock, MemoryFile

QUEUE = GroupQueue("T", "g", 0)


class Store:
    flushed_phy_offset = 0
    ends = 5, 20
    recent = False

    @property
    def kept_phy_offset(self) -> int:
        return self.flushed_phy_offset

    def flush_log(self) -> bool:
        self.flushed_phy_offset = 1_000
        return True

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return self.ends[0]

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return self.ends[1]

    def is_in_memory(self, _topic: str, _queue_id: int, _offset: int) -> bool:
        return self.recent


class Kit:
    def __init__(self) -> None:
        self.store = Store()
        self.offsets = ConsumerOffsets(BrokerConfig(), MemoryFile(), FakeClock())
        self.positions = PopPositions(self.offsets, self.store, self.store)

    @property
    def committed(self) -> int:
        return self.offsets.query("g", "T", 0)


def test_positions_new_group_starts_at_init_mode() -> None:
    kit = Kit()
    assert kit.positions.next_offset(QUEUE, INIT_MAX) == 19, "the last message shows that it works"
    assert kit.committed == -1
    assert kit.positions.start_offset(QUEUE, INIT_MIN) == 5
    assert kit.committed == 5
    assert kit.positions.start_offset(QUEUE, INIT_MAX) == 5, "once it has begun, it goes on"


def test_positions_young_queue_starts_at_first_message() -> None:
    kit = Kit()
    kit.store.ends, kit.store.recent = (0, 20), True
    assert kit.positions.next_offset(QUEUE, INIT_MAX) == 0


def test_positions_commit_after_check_point_is_durable() -> None:
    kit = Kit()
    kit.positions.start_offset(QUEUE, INIT_MIN)
    kit.positions.advance(QUEUE, 7, 100)
    kit.positions.advance(QUEUE, 9, 200)
    kit.positions.commit(QUEUE, 12)  # messages that no filter takes lie behind
    assert kit.positions.next_offset(QUEUE) == 12
    assert kit.committed == 5
    kit.store.flushed_phy_offset = 150
    kit.positions.step(0)
    assert (kit.committed, len(kit.positions)) == (7, 1)
    kit.store.flushed_phy_offset = 200
    kit.positions.step(0)
    assert (kit.committed, len(kit.positions)) == (12, 0), "nothing is remembered any more"


def test_positions_reset_overrides_pending_advances() -> None:
    kit = Kit()
    kit.positions.start_offset(QUEUE, INIT_MIN)
    kit.positions.advance(QUEUE, 9, 100)
    assert kit.positions.take_reset(QUEUE) is None
    kit.offsets.assign_reset("g", "T", 0, 6)
    assert kit.positions.take_reset(QUEUE) == 6
    kit.store.flushed_phy_offset = 100
    kit.positions.persist()
    assert kit.committed == kit.positions.next_offset(QUEUE) == 6


def test_positions_persist_flushes_and_commits() -> None:
    kit = Kit()
    kit.positions.start_offset(QUEUE, INIT_MIN)
    kit.positions.advance(QUEUE, 9, 100)
    kit.positions.persist()
    assert kit.committed == 9


def test_positions_pending_reset_survives_older_pops_and_restart() -> None:
    kit = Kit()
    kit.positions.start_offset(QUEUE, INIT_MIN)
    advance = kit.positions.advance(QUEUE, 9, None)
    kit.positions.advance(QUEUE, 12, 0)
    kit.offsets.assign_reset("g", "T", 0, 6)
    kit.positions.set_phy_end(advance, 0)
    kit.positions.commit(QUEUE, 14)
    kit.positions.persist()
    assert kit.committed == 6
    assert kit.offsets.query_all("g", "T") == {0: 6}, "as the file has it"
    assert kit.positions.take_reset(QUEUE) == kit.positions.next_offset(QUEUE) == 6


def test_positions_idle_step_runs_once_a_second() -> None:
    kit = Kit()
    wakes: list[int] = []
    kit.positions.use_wake(lambda: wakes.append(0))
    assert kit.positions.step(0) == 1_000
    kit.positions.start_offset(QUEUE, INIT_MIN)
    kit.positions.advance(QUEUE, 7, 100)
    kit.positions.advance(QUEUE, 9, 100)
    assert len(wakes) == 1, "the first one wakes, and those behind it do not"
    assert kit.positions.step(10) == 110
    kit.store.flushed_phy_offset = 100
    assert kit.positions.step(110) == 210
    assert kit.committed == 9
    kit.positions.advance(QUEUE, 11, 100)
    assert len(wakes) == 1, "it looks again by itself"
    assert kit.positions.step(210) == 310
    assert kit.positions.step(310) == 1_310
    kit.positions.advance(QUEUE, 12, 200)
    assert len(wakes) == 2


def test_positions_concurrent_commit_does_not_move_next_pop_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are on two threads: else what was popped, and perhaps acked, would be popped again."""
    kit = Kit()
    kit.positions.start_offset(QUEUE, INIT_MIN)
    kit.positions.advance(QUEUE, 9, 0)
    commit, query, begins = kit.offsets.commit, kit.offsets.query, []

    def pop_meanwhile(group: str, topic: str, queue_id: int, offset: int) -> bool:
        begins.append(kit.positions.start_offset(QUEUE, INIT_MIN))
        done = commit(group, topic, queue_id, offset)
        begins.append(kit.positions.start_offset(QUEUE, INIT_MIN))
        return done

    def commit_meanwhile(group: str, topic: str, queue_id: int) -> int:
        found = query(group, topic, queue_id)
        monkeypatch.setattr(kit.offsets, "query", query)
        kit.positions.commit_flushed()
        return found

    monkeypatch.setattr(kit.offsets, "commit", pop_meanwhile)
    kit.positions.commit_flushed()
    assert begins == [9, 9]
    monkeypatch.undo()
    kit.positions.advance(QUEUE, 12, 0)
    monkeypatch.setattr(kit.offsets, "query", commit_meanwhile)
    assert kit.positions.next_offset(QUEUE) == 12
    assert (kit.committed, len(kit.positions)) == (12, 0)
