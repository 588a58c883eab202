"""How many timed messages of each topic wait: timermetrics."""

from tests.unit.broker.timer.timer_kit import Kit


def test_what_waits_is_counted_until_it_is_delivered() -> None:
    kit = Kit()
    kit.send(b"1", **kit.at(2_000))
    kit.send(b"2", **kit.at(9_000))
    kit.send(b"3", topic="Other", **kit.at(9_000))
    assert kit.counts.of("T") == 0, "they are not in the wheel yet"
    kit.run(1_000)
    assert (kit.counts.of("T"), kit.counts.of("Other")) == (2, 1)
    kit.run(4_000)
    assert (kit.bodies(), kit.counts.of("T")) == ([b"1"], 1)
    kit.run(6_000)
    assert (kit.counts.of("T"), kit.counts.of("Other")) == (0, 0)


def test_a_recall_is_not_counted_and_what_it_calls_back_only_until_it_is_due() -> None:
    kit = Kit()
    kit.send(b"1", **kit.at(5_000))
    kit.recall("U1", 5_000)
    kit.run(1_000)
    assert kit.counts.of("T") == 1
    kit.run(6_000)
    assert (kit.bodies(), kit.counts.of("T")) == ([], 0)


def test_a_long_wait_in_pieces_counts_once() -> None:
    kit = Kit(window=10)
    kit.send(b"1", **kit.at(60_000))
    for _ in range(5):
        kit.run(10_000)
        assert kit.counts.of("T") == 1
    kit.run(15_000)
    assert (kit.bodies(), kit.counts.of("T")) == ([b"1"], 0)


def test_the_numbers_survive_a_restart() -> None:
    kit = Kit()
    kit.send(b"1", **kit.at(60_000))
    kit.run(2_000)
    kit.stop()
    kit.counts.persist()
    kit.start()
    kit.counts.load()
    assert kit.counts.of("T") == 1
    kit.run(70_000)
    assert (kit.bodies(), kit.counts.of("T")) == ([b"1"], 0)
