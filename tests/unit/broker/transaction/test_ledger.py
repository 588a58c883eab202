"""States of half messages."""

from rocketpy.broker.transaction.ledger import (
    MAX_OPEN_HALVES,
    Claim,
    Claimed,
    HalfLedger,
    HalfState,
)

COMMITTED, ROLLED_BACK = HalfState.COMMITTED, HalfState.ROLLED_BACK


def test_ledger_half_is_decided_once() -> None:
    ledger = HalfLedger()
    ledger.reset(10)
    assert ledger.claim(12, COMMITTED) == Claimed(Claim.YES, (12,))
    assert ledger.claim(12, COMMITTED).claim is Claim.SAME
    assert ledger.claim(12, ROLLED_BACK).claim is Claim.OTHER
    assert ledger.claim(9, COMMITTED).claim is Claim.GONE
    ledger.release((12,))
    assert ledger.claim(12, ROLLED_BACK).claim is Claim.YES


def test_ledger_op_message_before_progress_is_ignored() -> None:
    ledger = HalfLedger()
    ledger.reset(10)
    for place in (3, 10, 11, 13):
        ledger.mark_decided(place)
    assert ledger.first_open(10) == 12
    assert ledger.first_open(13) == 14
    assert ledger.claim(11, COMMITTED).claim is Claim.OTHER


def test_ledger_progress_waits_for_unsettled_half() -> None:
    ledger = HalfLedger()
    ledger.reset(0)
    ledger.claim(2, COMMITTED)
    ledger.claim(4, COMMITTED)
    assert ledger.limit_progress(9) == 2
    ledger.settle((2,))
    assert ledger.limit_progress(9) == 4
    assert ledger.limit_progress(3) == 3
    ledger.release((4,))
    assert ledger.limit_progress(9) == 9


def test_ledger_old_offset_decides_newest_copy() -> None:
    ledger = HalfLedger()
    ledger.reset(0)
    for place, to in ((0, 5), (5, 9)):
        assert ledger.start_move(place)
        ledger.record_move(place, to)
    ledger.advance_to(6)
    assert ledger.claim(0, ROLLED_BACK) == Claimed(Claim.YES, (0, 5, 9))
    assert ledger.claim(9, COMMITTED).claim is Claim.OTHER
    assert not ledger.start_move(9)


def test_ledger_failed_move_leaves_half_open() -> None:
    ledger = HalfLedger()
    ledger.reset(0)
    assert ledger.start_move(0)
    assert ledger.claim(0, COMMITTED).claim is Claim.GONE
    ledger.record_move(0, None)
    assert ledger.claim(0, COMMITTED).claim is Claim.YES


def test_ledger_moves_are_restored_from_halves() -> None:
    ledger = HalfLedger()
    ledger.reset(5)
    ledger.restore_move(0, 9)
    ledger.restore_move(0, 12)
    ledger.restore_move(12, 9)
    assert ledger.claim(0, COMMITTED).places == (0, 9)


def test_ledger_memory_is_bounded() -> None:
    ledger = HalfLedger(max_open=8, max_moves=2)
    ledger.reset(0)
    assert ledger.claim(8, COMMITTED).claim is Claim.FULL
    ledger.mark_decided(8)
    assert ledger.first_open(0) == 0
    for place in range(3):
        ledger.start_move(place)
        ledger.record_move(place, 10 + place)
    ledger.advance_to(10)
    assert ledger.claim(0, COMMITTED).claim is Claim.GONE
    assert ledger.claim(1, COMMITTED).places == (1, 11)
    assert ledger.base == 10


def test_ledger_bulk_claim_stops_at_first_ineligible_half() -> None:
    ledger = HalfLedger()
    ledger.reset(10)
    ledger.claim(13, ROLLED_BACK)
    assert ledger.start_move(15)
    ledger.record_move(15, 20)
    assert ledger.claim_run((10, 12, 13, 14), COMMITTED) == 2
    assert ledger.claim_run((14, 14), COMMITTED) == 1
    for strange in (9, 15, 20, 10 + MAX_OPEN_HALVES):
        assert ledger.claim_run((strange, 16), COMMITTED) == 0
    assert ledger.limit_progress(30) == 10
    ledger.settle_run((10, 12, 14))
    assert ledger.limit_progress(30) == 13, "the one that was claimed alone"
    assert ledger.claim(12, COMMITTED).claim is Claim.SAME
    assert ledger.claim(16, ROLLED_BACK).claim is Claim.YES
