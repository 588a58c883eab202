"""Progress of a reader, and the durable part of it."""

from rocketpy.broker.system_topics.durable_progress import DurableProgress


class _Log:
    flushed = 100


def _progress(position: int = 0) -> tuple[DurableProgress, _Log]:
    log = _Log()
    return DurableProgress(position, lambda: log.flushed), log


def test_progress_is_durable_after_flush_of_stored_messages() -> None:
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


def test_progress_without_stored_message_is_durable_with_previous() -> None:
    progress, log = _progress()
    progress.advance(1)
    assert progress.durable == 1
    progress.advance(2, 150)
    progress.advance(3)
    assert progress.durable == 1
    log.flushed = 150
    assert progress.durable == 3


def test_progress_reset_drops_pending_positions() -> None:
    progress, log = _progress()
    progress.advance(9, 500)
    progress.reset(4)
    log.flushed = 1_000
    assert (progress.position, progress.durable) == (4, 4)


def test_progress_pending_positions_are_bounded() -> None:
    progress, log = _progress()
    for number in range(1, 10_000):
        progress.advance(number, 100 + number)
    log.flushed = 100 + 5_000
    assert 0 < progress.durable <= 5_000
    log.flushed = 100 + 9_999
    assert progress.durable == 9_999


def test_progress_go_back_keeps_pending_flushes() -> None:
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
