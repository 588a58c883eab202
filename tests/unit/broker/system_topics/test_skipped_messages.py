"""A million skipped messages do not fill the log."""

from structlog.testing import capture_logs

from rocketpy.broker.system_topics.skipped_messages import MOST_LINES, PAUSE_MS, SkippedMessages
from rocketpy.testing.sim_clock import SimClock


def test_skipped_messages_logs_a_few_and_counts_the_rest() -> None:
    clock = SimClock(monotonic_ms=PAUSE_MS)
    skipped = SkippedMessages("gone", clock)
    with capture_logs() as lines:
        for number in range(1_000):
            skipped.report(number, lambda: {"KEYS": "k" * 1_000}, "its topic was deleted")
        clock.advance(PAUSE_MS)
        skipped.report(1_000, dict, "another reason")
    assert [line["phy_offset"] for line in lines] == [*range(MOST_LINES), 1_000]
    assert [line["left_out"] for line in lines] == [0] * MOST_LINES + [1_000 - MOST_LINES]
    assert lines[0]["event"] == "gone"
    assert len(lines[0]["properties"]) == 256
