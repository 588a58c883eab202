"""How far a reader has come, and how far for good."""

from rocketpy.broker.system_topics.durable_progress import DurableProgress


class _Log:
    flushed = 100


def _progress(position: int = 0) -> tuple[DurableProgress, _Log]:
    log = _Log()
    return DurableProgress(position, lambda: log.flushed), log


def test_a_position_counts_once_what_was_stored_before_it_is_on_disk() -> None:
    progress, log = _progress(5)
    assert (progress.position, progress.durable) == (5, 5)
    progress.advance(6, 100)
    assert progress.durable == 6
    progress.advance(7, 150)
    progress.advance(8, 200)
    assert (progress.position, progress.durable) == (8, 6)
    log.flushed = 199
    assert progress.durable == 7
    log.flushed = 200
    assert progress.durable == 8


def test_a_position_for_which_nothing_was_stored_counts_with_the_one_before() -> None:
    progress, log = _progress()
    progress.advance(1)
    assert progress.durable == 1
    progress.advance(2, 150)
    progress.advance(3)
    assert progress.durable == 1
    log.flushed = 150
    assert progress.durable == 3


def test_a_reset_forgets_what_waits() -> None:
    progress, log = _progress()
    progress.advance(9, 500)
    progress.reset(4)
    log.flushed = 1_000
    assert (progress.position, progress.durable) == (4, 4)


def test_what_waits_for_a_disk_that_hangs_is_bounded() -> None:
    progress, log = _progress()
    for number in range(1, 10_000):
        progress.advance(number, 100 + number)
    log.flushed = 100 + 5_000
    assert 0 < progress.durable <= 5_000
    log.flushed = 100 + 9_999
    assert progress.durable == 9_999


def test_going_back_vouches_for_nothing_that_is_not_on_disk() -> None:
    progress, log = _progress()
    progress.advance(5, 90)
    progress.advance(6, 150)
    progress.advance(9, 200)
    progress.go_back(7)
    assert (progress.position, progress.durable) == (7, 5)
    log.flushed = 150
    assert progress.durable == 6
    log.flushed = 200
    assert progress.durable == 7
