"""Which half messages are decided."""

from rocketpy.broker.transaction.ledger import (
    MAX_OPEN_HALVES,
    Claim,
    Claimed,
    HalfLedger,
    HalfState,
)

COMMITTED, ROLLED_BACK = HalfState.COMMITTED, HalfState.ROLLED_BACK


def test_a_half_is_decided_once() -> None:
    ledger = HalfLedger()
    ledger.reset(10)
    assert ledger.claim(12, COMMITTED) == Claimed(Claim.YES, (12,))
    assert ledger.claim(12, COMMITTED).claim is Claim.SAME
    assert ledger.claim(12, ROLLED_BACK).claim is Claim.OTHER
    assert ledger.claim(9, COMMITTED).claim is Claim.GONE
    ledger.release((12,))
    assert ledger.claim(12, ROLLED_BACK).claim is Claim.YES


def test_what_an_op_message_says_counts_from_the_progress_on() -> None:
    ledger = HalfLedger()
    ledger.reset(10)
    for place in (3, 10, 11, 13):
        ledger.decided(place)
    assert ledger.first_open(10) == 12
    assert ledger.first_open(13) == 14
    assert ledger.claim(11, COMMITTED).claim is Claim.OTHER


def test_the_progress_waits_for_what_is_in_hand() -> None:
    ledger = HalfLedger()
    ledger.reset(0)
    ledger.claim(2, COMMITTED)
    ledger.claim(4, COMMITTED)
    assert ledger.passable(9) == 2
    ledger.settle((2,))
    assert ledger.passable(9) == 4
    assert ledger.passable(3) == 3
    ledger.release((4,))
    assert ledger.passable(9) == 9


def test_an_end_that_names_an_old_place_decides_the_newest() -> None:
    ledger = HalfLedger()
    ledger.reset(0)
    for place, to in ((0, 5), (5, 9)):
        assert ledger.begin_move(place)
        ledger.moved(place, to)
    ledger.pass_to(6)
    assert ledger.claim(0, ROLLED_BACK) == Claimed(Claim.YES, (0, 5, 9))
    assert ledger.claim(9, COMMITTED).claim is Claim.OTHER
    assert not ledger.begin_move(9)


def test_a_move_that_did_not_succeed_leaves_the_half_open() -> None:
    ledger = HalfLedger()
    ledger.reset(0)
    assert ledger.begin_move(0)
    assert ledger.claim(0, COMMITTED).claim is Claim.GONE
    ledger.moved(0, None)
    assert ledger.claim(0, COMMITTED).claim is Claim.YES


def test_moves_before_a_restart_are_learned_from_the_halves() -> None:
    ledger = HalfLedger()
    ledger.reset(5)
    ledger.learn_move(0, 9)
    ledger.learn_move(0, 12)
    ledger.learn_move(12, 9)
    assert ledger.claim(0, COMMITTED).places == (0, 9)


def test_memory_is_bounded() -> None:
    ledger = HalfLedger(max_open=8, max_moves=2)
    ledger.reset(0)
    assert ledger.claim(8, COMMITTED).claim is Claim.FULL
    ledger.decided(8)
    assert ledger.first_open(0) == 0
    for place in range(3):
        ledger.begin_move(place)
        ledger.moved(place, 10 + place)
    ledger.pass_to(10)
    assert ledger.claim(0, COMMITTED).claim is Claim.GONE
    assert ledger.claim(1, COMMITTED).places == (1, 11)
    assert ledger.base == 10


def test_a_run_is_claimed_up_to_the_first_half_that_is_not_as_usual() -> None:
    ledger = HalfLedger()
    ledger.reset(10)
    ledger.claim(13, ROLLED_BACK)
    assert ledger.begin_move(15)
    ledger.moved(15, 20)
    assert ledger.claim_run((10, 12, 13, 14), COMMITTED) == 2
    assert ledger.claim_run((14, 14), COMMITTED) == 1
    for strange in (9, 15, 20, 10 + MAX_OPEN_HALVES):
        assert ledger.claim_run((strange, 16), COMMITTED) == 0
    assert ledger.passable(30) == 10
    ledger.settle_run((10, 12, 14))
    assert ledger.passable(30) == 13, "the one that was claimed alone"
    assert ledger.claim(12, COMMITTED).claim is Claim.SAME
    assert ledger.claim(16, ROLLED_BACK).claim is Claim.YES
