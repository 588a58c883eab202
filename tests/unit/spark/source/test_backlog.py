"""Backlog of a stream for each state of its queues."""

from typing import Any

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import LastSeen, QueueRange
from rocketpy.spark.source.backlog import (
    cut_queues,
    lost_with_their_queue,
    what_waits,
    without_queue,
)
from rocketpy.spark.source.snapshot import Ends, Snapshot

Q0, Q1, Q2 = (MessageQueue("T", "a", number) for number in range(3))
B0 = MessageQueue("T", "b", 0)


def snapshot(ends: dict[MessageQueue, tuple[int, int]], **changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "retired": {},
        "brokers": {"a": {0: "x:1"}},
        "topics": frozenset({"T"}),
        "missing": frozenset(),
        "unreachable": {},
        **changes,
    }
    return Snapshot({queue: Ends(*each) for queue, each in ends.items()}, **values)


def test_backlog_has_messages_after_the_position() -> None:
    found = what_waits({Q0: 5, Q1: 7}, snapshot({Q0: (0, 9), Q1: (0, 7)}))

    assert found.sizes == {Q0: 4}
    assert (found.begins, found.ends) == ({Q0: 5}, {Q0: 9})
    assert found.position == {Q0: 5, Q1: 7}
    assert not found.lost


def test_backlog_of_a_new_queue_starts_with_the_next_batch() -> None:
    found = what_waits({Q0: 5}, snapshot({Q0: (0, 5), Q1: (3, 8)}))

    assert found.position == {Q0: 5, Q1: 3}
    assert found.sizes == {}
    assert what_waits(found.position, snapshot({Q0: (0, 5), Q1: (3, 8)})).sizes == {Q1: 5}


def test_backlog_of_expired_messages_is_lost() -> None:
    found = what_waits({Q0: 5}, snapshot({Q0: (20, 30)}))

    assert found.lost == [(QueueRange("T", "a", 0, 5, 20), "the queue begins at 20")]
    assert (found.begins, found.ends) == ({Q0: 20}, {Q0: 30})


def test_backlog_with_all_expired_moves_the_position() -> None:
    found = what_waits({Q0: 5}, snapshot({Q0: (20, 20)}))

    assert found.lost[0][0] == QueueRange("T", "a", 0, 5, 20)
    assert found.ends == {Q0: 20}
    assert found.sizes == {Q0: 0}


def test_backlog_of_a_cut_queue_resumes_with_new_messages() -> None:
    there = snapshot({Q0: (0, 6), Q1: (0, 9)})

    assert cut_queues({Q0: 50, Q1: 9}, there) == [Q0]
    for resumed, offset in (({Q0: 0}, 0), ({Q0: 4}, 4), ({}, 6)):
        found = what_waits({Q0: 50, Q1: 9}, there, resumed=resumed)
        assert found.lost[0][0] == QueueRange("T", "a", 0, 6, 50)
        assert f"resumes at {offset}" in found.lost[0][1]
        assert found.position == {Q0: offset, Q1: 9}
        assert found.sizes == {}


def test_backlog_with_an_end_excludes_later_messages_and_queues() -> None:
    there = snapshot({Q0: (0, 90), Q1: (0, 9)})
    found = what_waits({Q0: 5}, there, {Q0: 40})

    assert found.ends == {Q0: 40}
    assert found.position == {Q0: 5}
    assert what_waits({Q0: 40}, there, {Q0: 40}).ends == {}


def test_backlog_of_a_removed_queue_loses_unread_messages() -> None:
    position = {Q0: 5, Q1: 7, Q2: 9, B0: 1}
    there = snapshot({Q0: (0, 5)})
    gone = without_queue(position, there, {"a"})

    assert gone == [Q1, Q2]  # the broker of the other queue is unreachable, so it waits
    lost = lost_with_their_queue(position, gone, there.topics, {Q1: 12, Q2: 9})
    assert [each for each, _ in lost] == [QueueRange("T", "a", 1, 7, 12)]


def test_backlog_of_another_queue_resumes_with_its_new_messages() -> None:
    there, seen = snapshot({Q0: (0, 90)}), {Q0: LastSeen(49, 1_000)}

    for start, resume, position, lost in (
        (50, 0, 0, (0, 50)),  # created again
        (50, 20, 20, (20, 50)),  # lost its last messages
        (10, 20, 10, (20, 50)),  # the lost ones were not read
        (0, 0, 0, (0, 50)),
    ):
        found = what_waits({Q0: start}, there, resumed={Q0: resume}, seen=seen)
        assert found.lost[0][0] == QueueRange("T", "a", 0, *lost)
        assert "has other messages now" in found.lost[0][1]
        assert found.position == {Q0: position}
        assert found.sizes == ({} if resume < start else {Q0: 90 - start})


def test_backlog_of_a_deleted_topic_loses_unread_messages() -> None:
    position = {Q0: 5, Q1: 7}
    there = snapshot({}, topics=frozenset())
    gone = without_queue(position, there, {"a"})
    lost = lost_with_their_queue(position, gone, there.topics, {Q0: 8})

    assert [each for each, _ in lost] == [QueueRange("T", "a", 0, 5, 8)]  # the other was read
    assert all("deleted" in why for _, why in lost)


def test_backlog_of_a_slave_that_lags_waits() -> None:
    there = snapshot({Q0: (0, 6), Q1: (0, 9), Q2: (30, 40), B0: (0, 4)}, slaves=frozenset({"a"}))
    position = {Q0: 50, Q1: 7, Q2: 20, B0: 9}

    found = what_waits(position, there, resumed={B0: 4})
    assert found.lagging == [Q0, Q2], "no messages are counted as lost, and none are repeated"
    assert [gone.queue for gone, _ in found.lost] == [B0]
    assert found.position == {Q0: 50, Q1: 7, Q2: 20, B0: 4}
    assert found.ends == {Q1: 9}
    assert cut_queues(position, there) == [B0]


def test_backlog_of_a_new_queue_at_a_slave_waits_for_the_master() -> None:
    found = what_waits({Q0: 5}, snapshot({Q0: (0, 9), Q1: (3, 8)}, slaves=frozenset({"a"})))

    assert found.lagging == [Q1]
    assert found.position == {Q0: 5}
    assert found.ends == {Q0: 9}
