"""Recognition of queues that were created again or lost messages."""

import pytest

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import LastSeen
from rocketpy.spark.source.queue_identity import is_other, is_shown_by_ends, seen_after
from rocketpy.spark.source.snapshot import Ends, Snapshot

Q0, Q1 = (MessageQueue("T", "a", number) for number in range(2))


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        (Ends(0, 50, 1_000), False),  # unchanged
        (Ends(0, 50, 1_001), True),  # another last message
        (Ends(0, 50, 0), None),  # its last message has expired
        (Ends(0, 90, 2_000), None),  # with later messages: ask for message 49
        (Ends(0, 40, 900), False),  # a slave that lags behind
        (Ends(0, 40, 1_001), True),  # fewer messages, stored later
    ],
)
def test_is_shown_by_ends_compares_the_last_message(ends: Ends, shown: bool | None) -> None:
    assert is_shown_by_ends(LastSeen(49, 1_000), ends) is shown


def test_is_shown_by_ends_with_times_of_brokers_needs_an_earlier_message() -> None:
    assert is_shown_by_ends(LastSeen(-1, 1_000), Ends(0, 50, 1_000)) is False
    assert is_shown_by_ends(LastSeen(-1, 1_000), Ends(0, 50, 1_001)) is None
    assert is_other(LastSeen(-1, 1_000), 1_001)
    assert not is_other(LastSeen(-1, 1_000), 999)
    assert is_other(LastSeen(49, 1_000), 999)


def test_seen_after_keeps_the_latest_message_unless_the_queue_is_another() -> None:
    there = Snapshot({Q0: Ends(0, 40, 900), Q1: Ends(0, 0)}, {}, {}, frozenset(), frozenset(), {})
    seen = {Q0: LastSeen(49, 1_000), Q1: LastSeen(9, 800)}

    assert seen_after(seen, there, ()) == seen
    assert seen_after(seen, there, {Q0, Q1}) == {Q0: LastSeen(39, 900)}
    assert seen_after({}, there, ()) == {Q0: LastSeen(39, 900)}
