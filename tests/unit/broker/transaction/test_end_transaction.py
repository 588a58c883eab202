"""Commit and rollback of half messages."""

import pytest

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.record.message_id import encode_message_id
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.transaction.kit import COMMIT, HALF_PROPERTIES, INTERVAL_MS, ROLLBACK, Kit


def test_commit_stores_message_before_op_message() -> None:
    kit = Kit()
    half = kit.half(b"body")
    assert kit.end(half) == [None]
    (message,) = kit.messages("T", 2)
    assert message.body == b"body"
    assert message.sys_flag & 0xC == TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == half.phy_offset
    assert "REAL_TOPIC" not in message.properties
    kit.ops.flush()
    assert kit.ops_on_disk() == [[0]]


def test_rollback_stores_only_op_message() -> None:
    kit = Kit()
    assert kit.end(kit.half(), ROLLBACK) == [None]
    kit.ops.flush()
    assert kit.committed() == []
    assert kit.ops_on_disk() == [[0]]


def test_end_undecided_changes_nothing() -> None:
    kit = Kit()
    half = kit.half()
    for decision in (0, 4, 99):
        assert kit.end(half, decision) == []
    assert kit.end(half) == [None]


def test_commit_sync_flush_is_answered_after_flush() -> None:
    kit = Kit(flush="SYNC_FLUSH")
    half = kit.half()
    said = kit.end(half)
    kit.ops.flush()
    assert said == []
    kit.flush()
    assert said == [None]
    kit.ops.flush()
    kit.flush()
    assert kit.committed() == [b"x"]
    assert kit.ops_on_disk() == [[0]]


def test_commit_slow_flush_is_reported_and_recorded_later() -> None:
    kit = Kit(flush="SYNC_FLUSH")
    half = kit.half()
    said = kit.end(half)
    kit.clock.advance(60_000)
    kit.stores.step(kit.store, "FlushDeadlineService")
    assert [one.code for one in said if one is not None] == [10]
    assert kit.ledger.limit_progress(9) == half.queue_offset
    kit.flush()
    assert kit.ledger.limit_progress(9) == 9
    kit.ops.flush()
    kit.flush()
    assert kit.ops_on_disk() == [[0]]


def test_commit_without_replicas_is_reported_and_recorded() -> None:
    kit = Kit(flush="SYNC_FLUSH", role="SYNC_MASTER")
    half = kit.half()
    kit.store.replicas.require()
    said = kit.end(half)
    kit.flush()
    kit.store.replicas.give_up()
    assert [one.code for one in said if one is not None] == [10]
    assert kit.ledger.limit_progress(9) == 9
    kit.store.replicas.release(kit.store.max_phy_offset)
    assert kit.committed() == [b"x"]


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_end_answering_check_of_an_unconfirmed_half_is_accepted(decision: int) -> None:
    kit = Kit(flush="SYNC_FLUSH", role="SYNC_MASTER")
    kit.half()
    kit.store.replicas.require()
    kit.clock.advance(INTERVAL_MS)
    kit.check.step(kit.clock.monotonic_ms())
    kit.flush()
    # The slave is away: the check waits no longer for it, and consumers do not see the half yet.
    kit.store.replicas.give_up()
    (asked,) = kit.asked
    assert kit.store.look_message(asked.phy_offset) is None
    said = kit.end(asked, decision, is_from_check=True)
    kit.flush()
    kit.store.replicas.give_up()
    refusals = [one.code for one in said if one is not None]
    assert refusals == ([10] if decision == COMMIT else []), "stored, not on enough slaves"
    kit.store.replicas.release(kit.store.max_phy_offset)
    assert kit.committed() == ([b"x"] if decision == COMMIT else [])


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"group": "other"}, "The producer group wrong"),
        ({"half_offset": 5}, "The transaction state table offset wrong"),
        ({"phy_offset": 7}, "Find prepared transaction message failed"),
        ({"phy_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"phy_offset": -1}, "Find prepared transaction message failed"),
    ],
)
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_end_mismatched_half_changes_nothing(
    decision: int, change: dict[str, object], remark: str
) -> None:
    kit = Kit()
    half = kit.half()
    assert kit.end(half, decision, **change) == [Refusal(1, remark)]  # type: ignore[arg-type]
    assert kit.end(half, COMMIT) == [None]
    assert kit.committed() == [b"x"]


def test_commit_of_ordinary_message_is_refused() -> None:
    kit = Kit()
    result = kit.store.put_message(
        PutMessage("T", 0, b"x", b"PGROUP\x01p\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02")
    )
    plain = kit.record(result)
    assert kit.end(plain) == [Refusal(1, "Find prepared transaction message failed")]
    assert kit.committed(3) == []
    result = kit.store.put_message(PutMessage(TRANS_HALF_TOPIC, 0, b"x", b"PGROUP\x01p\x02"))
    assert kit.end(kit.record(result)) == [Refusal(1, "Find prepared transaction message failed")]


def test_end_second_decision_is_refused() -> None:
    kit = Kit()
    committed, dropped = kit.half(b"c"), kit.half(b"d")
    assert kit.end(committed) == kit.end(committed) == [None]
    (refused,) = kit.end(committed, ROLLBACK)
    assert refused is not None
    assert refused.code == 1
    assert kit.end(dropped, ROLLBACK) == kit.end(dropped, ROLLBACK) == [None]
    (refused,) = kit.end(dropped, COMMIT)
    assert refused is not None
    assert kit.committed() == [b"c"]


def test_commit_not_stored_can_be_retried() -> None:
    kit = Kit()
    half = kit.half()
    for status, code in (
        (PutMessageStatus.SERVICE_NOT_AVAILABLE, 14),
        (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, 13),
        (PutMessageStatus.OS_PAGE_CACHE_BUSY, 1),
    ):
        kit.status = status
        assert [one.code for one in kit.end(half) if one is not None] == [code]
    kit.status = None
    kit.refuse_delay = Refusal(13, "timer message illegal")
    assert kit.end(half) == [kit.refuse_delay]
    kit.refuse_delay = None
    assert kit.end(half) == [None]
    assert kit.committed() == [b"x"]


def test_commit_to_deleted_topic_is_refused() -> None:
    kit = Kit()
    half = kit.half()
    kit.topics.delete("T")
    (refused,) = kit.end(half)
    assert refused is not None
    assert refused.code == 17


def test_end_full_op_messages_is_refused() -> None:
    kit = Kit()
    half = kit.half()
    kit.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.ops.add(range(20_000))
    (refused,) = kit.end(half, ROLLBACK)
    assert refused is not None
    assert refused.code == 14


def test_end_after_immunity_time_requires_check() -> None:
    kit = Kit()
    half = kit.half(properties={**HALF_PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": "10"})
    kit.clock.advance(10_001)
    (refused,) = kit.end(half)
    assert refused is not None
    assert refused.code == 604
    assert kit.end(half, is_from_check=True) == [None]


def test_resume_check_returns_abandoned_half_to_check_back() -> None:
    kit = Kit()
    half = kit.half()
    assert kit.ends.resume_check(encode_message_id("10.0.0.2:10911", half.phy_offset)) is None
    halves = kit.messages(TRANS_HALF_TOPIC)
    assert halves[1].properties["TRANSACTION_CHECK_TIMES"] == "0"
    for bad in ("", "zz", encode_message_id("10.0.0.2:10911", half.phy_offset + 1)):
        refused = kit.ends.resume_check(bad)
        assert refused is not None
        assert refused.code == 1
    kit.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert kit.ends.resume_check(encode_message_id("10.0.0.2:10911", half.phy_offset)) == Refusal(
        1, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
    )
