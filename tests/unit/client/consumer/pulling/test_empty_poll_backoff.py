"""Back-off after empty polls."""

from rocketpy.client.consumer.pulling.pull_loop import EmptyPollBackoff


def test_empty_poll_pauses_grow_and_restart_after_a_message() -> None:
    fruitless = EmptyPollBackoff(15_000, 100)
    pauses = [fruitless.pause_ms(was_empty=True, spent_ms=0) for _ in range(40)]
    assert pauses == [20, 40, 80] + [100] * 37
    assert fruitless.pause_ms(was_empty=False, spent_ms=0) == 0
    assert fruitless.pause_ms(was_empty=True, spent_ms=0) == 20


def test_empty_poll_pause_subtracts_the_time_of_the_poll() -> None:
    fruitless = EmptyPollBackoff(15_000, 100)
    assert fruitless.pause_ms(was_empty=True, spent_ms=5) == 15
    assert [fruitless.pause_ms(was_empty=True, spent_ms=15_000) for _ in range(9)] == [0] * 9


def test_broker_that_is_not_to_hold_anything_is_asked_quickly() -> None:
    fruitless = EmptyPollBackoff(0, 1_000)
    assert [fruitless.pause_ms(was_empty=True, spent_ms=0) for _ in range(9)] == [20] * 9
