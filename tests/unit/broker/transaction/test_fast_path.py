"""Interface of transactions for the compiled path of sends."""

import pytest

from rocketpy.broker.transaction.fast_path import BulkTransactions
from rocketpy.broker.transaction.ledger import Claim, HalfState
from tests.unit.broker.transaction.kit import COMMIT, Kit


def runs_of(kit: Kit) -> BulkTransactions:
    return BulkTransactions(kit.halves, kit.ledger, kit.ops, kit.counts, kit.topics, kit.config)


def test_commits_are_written_down_and_passed() -> None:
    kit = Kit()
    halves = [kit.half() for _ in range(3)]
    runs = runs_of(kit)
    assert runs.claim([0, 1, 1, 2]) == 2
    assert kit.ledger.limit_progress(3) == 0
    runs.committed([0, 1])
    assert kit.ledger.limit_progress(3) == 3
    kit.ops.flush()
    assert kit.ops_on_disk() == [[0, 1]]
    assert kit.end(halves[0]) == [None], "it was decided in this way before"
    assert kit.committed() == []


def test_claim_not_stored_can_be_committed_again() -> None:
    kit = Kit()
    half = kit.half()
    runs = runs_of(kit)
    assert runs.claim([0]) == 1
    assert kit.ledger.claim(0, HalfState.COMMITTED).claim is Claim.SAME
    runs.release([0])
    assert kit.end(half, COMMIT) == [None]
    assert kit.committed() == [b"x"]


def test_halves_are_taken_while_they_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()
    assert runs_of(kit).takes_halves
    kit.configure(reject_transaction_message=True)
    assert not runs_of(kit).takes_halves
    kit.configure(reject_transaction_message=False)
    monkeypatch.setattr(kit.topics, "get", lambda _: None)
    assert not runs_of(kit).takes_halves, "their topic is not there"


def test_no_ends_are_taken_that_have_a_pool() -> None:
    kit = Kit(transaction_op_msg_max_size=100)
    assert runs_of(kit).op_room_bytes == 100
    kit = Kit(transaction_op_msg_max_size=100, end_transaction_thread_pool_nums=2)
    assert runs_of(kit).op_room_bytes == 0


def test_open_transactions_are_counted_by_topic() -> None:
    kit = Kit()
    runs = runs_of(kit)
    runs.count("T", 3)
    runs.count("T", -2)
    assert runs.counts.of("T") == 1
