"""Op messages: the record of decided halves on disk."""

import random

import pytest

from rocketpy.broker.transaction.ledger import Claim, HalfState
from rocketpy.broker.transaction.op_messages import MAX_PENDING_OPS, parse_op_body
from rocketpy.proto.topic_names import TRANS_OP_HALF_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.transaction.kit import HALF_PROPERTIES, Kit


@pytest.mark.parametrize(
    ("body", "halves"), [(b"0,1,3,", [0, 1, 3]), (b"17", [17]), (b"", []), (b"x,-1,5,", [5])]
)
def test_parse_op_body_accepts_both_formats(body: bytes, halves: list[int]) -> None:
    assert parse_op_body(body) == halves


def test_op_messages_batch_halves_in_apache_format() -> None:
    kit = Kit()
    kit.ops.add([0])
    kit.ops.add([1, 12])
    assert kit.ops_on_disk() == []
    kit.ops.step(0)
    (message,) = kit.messages(TRANS_OP_HALF_TOPIC)
    assert message.body == b"0,1,12,"
    assert message.properties == {"TAGS": "d", "WAIT": "true"}
    assert (message.sys_flag, message.queue_id) == (0, 0)


def test_op_messages_full_batch_is_written_at_once() -> None:
    kit = Kit(transaction_op_msg_max_size=6)
    kit.ops.add([1, 2])
    assert kit.ops_on_disk() == []
    kit.ops.add([3, 4])
    assert kit.ops_on_disk() == [[1, 2, 3]]
    kit.ops.flush()
    assert kit.ops_on_disk() == [[1, 2, 3], [4]]


def test_op_messages_room_shrinks_until_full() -> None:
    kit = Kit(transaction_op_msg_max_size=7)
    assert kit.ops.room_bytes == 7
    kit.ops.add([1, 12])
    assert kit.ops.room_bytes == 2
    kit.ops.add([3])
    assert kit.ops_on_disk() == [[1, 12, 3]]
    assert kit.ops.room_bytes == 7


def test_op_messages_failed_put_keeps_halves_pending() -> None:
    kit = Kit(transaction_op_msg_max_size=1)
    kit.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.ops.add([1, 2])
    kit.ops.step(0)
    assert not kit.ops.is_full
    kit.ops.add(range(MAX_PENDING_OPS))
    assert kit.ops.is_full
    kit.status = None
    kit.ops.step(0)
    assert kit.ops_on_disk()[:2] == [[1], [2]]
    assert not kit.ops.is_full


def test_op_messages_are_passed_in_order() -> None:
    kit = Kit()
    for halves in ([0, 5], [1], [9]):
        kit.ops.add(halves)
        kit.ops.flush()
    assert kit.ops.first_needed(5) == 0
    assert kit.ops.first_needed(6) == 2
    assert kit.ops.first_needed(10) == 3


def test_op_messages_load_marks_halves_and_skips_unknown_tags() -> None:
    kit = Kit()
    kit.store.put_message(PutMessage(TRANS_OP_HALF_TOPIC, 0, b"7", b"TAGS\x01q\x02"))
    kit.store.put_message(PutMessage(TRANS_OP_HALF_TOPIC, 0, b"4", b"TAGS\x01d\x02"))
    kit.ops.add([5, 6])
    kit.restart()
    kit.ops.load(0, kit.ledger, 100)
    for place, claim in ((4, Claim.OTHER), (5, Claim.YES), (7, Claim.YES)):
        assert kit.ledger.claim(place, HalfState.COMMITTED).claim is claim


def _stopped_with_a_decided_half() -> Kit:
    """A commit is on disk, and no op message can be stored when the broker stops."""
    kit = Kit(transaction_op_batch_interval=3_000)
    half = kit.half(b"committed")
    kit.half(b"open", {**HALF_PROPERTIES, "UNIQ_KEY": "U2"})
    assert kit.end(half) == [None]
    kit.flush()
    kit.status = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    kit.check.persist()
    assert kit.ops_on_disk() == []
    return kit


def test_op_messages_stop_with_failed_puts_commits_nothing_twice() -> None:
    kit = _stopped_with_a_decided_half()
    for _ in range(2):  # another stop with nothing stored keeps it
        kit.restart()
        kit.check.persist()
    kit.restart()
    kit.status = None
    assert [each.body for each in kit.round()] == [b"open"]
    kit.ops.step(0)
    assert kit.ops_on_disk() == [[0]]
    assert kit.committed() == [b"committed"]
    kit.check.persist()
    assert kit.ops_file.value == {"halves": []}
    kit.restart()
    assert [each.body for each in kit.round()] == [b"open"]


def test_op_messages_file_survives_kill() -> None:
    kit = _stopped_with_a_decided_half()
    for _ in range(3):
        kit.restart(saved=False)
    kit.status = None
    assert [each.body for each in kit.round()] == [b"open"]


def test_op_messages_stop_with_failed_flush_keeps_durable_halves() -> None:
    """The state of the others on disk is unknown: their producers are asked, and none is lost."""
    kit = Kit(transaction_op_batch_interval=3_000)
    halves = [
        kit.half(b"%d" % number, {**HALF_PROPERTIES, "UNIQ_KEY": f"U{number}"})
        for number in range(3)
    ]
    kit.end(halves[0])
    kit.store.flush_log()
    kit.end(halves[1])
    kit.stores.files.fail_flushes("commitlog")
    kit.store.flush_log()  # the store is read-only from here on
    kit.check.persist()
    assert kit.ops_file.value == {"halves": [0]}
    kit.stores.files.on_flush = None
    kit.restart()
    assert kit.committed() == [b"0", b"1"]  # no power was lost
    assert [each.body for each in kit.round()] == [b"1", b"2"]
    kit.check.persist()
    assert kit.ops_on_disk() == [[0]]


def test_op_messages_power_cut_after_failed_flush_loses_no_commit() -> None:
    kit = Kit(transaction_op_batch_interval=3_000)
    kept, lost = kit.half(b"kept"), kit.half(b"lost", {**HALF_PROPERTIES, "UNIQ_KEY": "U2"})
    kit.end(kept)
    kit.store.flush_log()
    kit.end(lost)
    kit.stores.files.fail_flushes("commitlog")
    kit.store.flush_log()
    kit.check.persist()
    kit.stores.files.on_flush = None
    kit.stores.files.power_cut(random.Random(1))
    kit.stores.files.start_process()
    kit.start()
    assert kit.committed()[:1] == [b"kept"]
    assert [each.body for each in kit.round()] == [b"lost"]


@pytest.mark.parametrize("halves", [[7], [-1], ["x"], [0, 7], {}, None])
def test_op_messages_file_of_other_store_is_discarded(halves: object) -> None:
    kit = Kit()
    kit.half(b"open")
    kit.ops_file.value = {"halves": halves}
    kit.restart()
    assert [each.body for each in kit.round()] == [b"open"]
    kit.check.persist()
    assert kit.ops_on_disk() == []


def test_op_messages_without_transactions_writes_no_file() -> None:
    kit = Kit()
    kit.check.persist()
    assert kit.ops_file.saves == 0
