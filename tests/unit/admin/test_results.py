"""Values that admin operations return: what they add up, and what they say of what is unknown."""

import dataclasses

import pytest

from rocketpy.admin.results import (
    BrokerStatus,
    GroupLag,
    GroupSummary,
    OffsetMove,
    QueueLag,
    QueueStatus,
    TopicStatus,
)
from rocketpy.proto.message_queue import MessageQueue

QUEUE = MessageQueue("t", "b", 0)


def status(low: int, high: int) -> QueueStatus:
    return QueueStatus(queue=QUEUE, min_offset=low, max_offset=high, last_stored_ms=0)


def lag(broker: int, consumer: int) -> QueueLag:
    return QueueLag(queue=QUEUE, broker_offset=broker, consumer_offset=consumer, last_consumed_ms=0)


def test_topic_holds_what_its_queues_hold() -> None:
    assert status(3, 10).messages == 7
    assert status(0, 0).messages == 0
    assert TopicStatus(topic="t", queues=[status(3, 10), status(0, 5)], in_tps=0.0).messages == 12
    assert TopicStatus(topic="t", queues=[], in_tps=0.0).messages == 0


@pytest.mark.parametrize(
    ("broker", "consumer", "left"), [(10, 7, 3), (10, 10, 0), (10, 0, 10), (10, -1, 10), (3, 10, 0)]
)
def test_lag_without_a_stored_offset_counts_from_the_first_message(
    broker: int, consumer: int, left: int
) -> None:
    assert lag(broker, consumer).lag == left


def test_group_lags_in_all_its_queues_together() -> None:
    assert GroupLag(group="g", queues=[lag(10, 7), lag(5, -1)], out_tps=0.0).lag == 8
    assert GroupLag(group="g", queues=[], out_tps=0.0).lag == 0


def test_queue_lag_without_owner_query_has_no_client_id() -> None:
    assert lag(1, 1).client_id == ""


def test_broker_that_did_not_answer_says_nothing_of_itself() -> None:
    silent = BrokerStatus(cluster="c", broker="b", broker_id=0, address="a:1", error="timeout")
    assert (silent.version, silent.in_tps, silent.out_tps) == ("", 0.0, 0.0)
    assert (silent.stored_today, silent.delivered_today, silent.disk_ratio) == (0, 0, -1.0)
    other = BrokerStatus(cluster="c", broker="b", broker_id=0, address="a:1")
    assert other.error == ""
    silent.runtime["key"] = "value"
    assert other.runtime == {}, "each has a table of its own"


def test_results_are_values() -> None:
    move = OffsetMove(queue=QUEUE, from_offset=1, to_offset=2)
    assert move == OffsetMove(queue=QUEUE, from_offset=1, to_offset=2)
    assert hash(move) == hash(dataclasses.replace(move))
    with pytest.raises(dataclasses.FrozenInstanceError):
        move.to_offset = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        GroupSummary("g", 1, "", "", 0, 0.0)  # type: ignore[call-arg]


def test_lag_of_a_group_beyond_the_end_is_flagged() -> None:
    assert lag(3, 10).is_beyond_end
    assert not lag(10, 10).is_beyond_end
    assert not lag(0, -1).is_beyond_end
