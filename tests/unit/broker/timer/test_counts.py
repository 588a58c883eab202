"""Number of waiting timed messages by topic: timermetrics."""

from tests.unit.broker.timer.timer_kit import Kit


def test_timer_counts_message_until_delivered() -> None:
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


def test_timer_counts_recalled_message_until_due_and_no_recall() -> None:
    kit = Kit()
    kit.send(b"1", **kit.at(5_000))
    kit.recall("U1", 5_000)
    kit.run(1_000)
    assert kit.counts.of("T") == 1
    kit.run(6_000)
    assert (kit.bodies(), kit.counts.of("T")) == ([], 0)


def test_timer_counts_rolled_message_once() -> None:
    kit = Kit(window=10)
    kit.send(b"1", **kit.at(60_000))
    for _ in range(5):
        kit.run(10_000)
        assert kit.counts.of("T") == 1
    kit.run(15_000)
    assert (kit.bodies(), kit.counts.of("T")) == ([b"1"], 0)


def test_timer_counts_survive_restart() -> None:
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
