"""The check-back of undecided half messages."""

import pytest
from structlog.testing import capture_logs

from rocketpy.broker.transaction import check_back
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.transaction.kit import (
    COMMIT,
    HALF_PROPERTIES,
    INTERVAL_MS,
    ROLLBACK,
    Kit,
)


def test_check_back_undecided_half_is_checked_and_moved() -> None:
    kit = Kit()
    half = kit.half(b"body")
    (asked,) = kit.round()
    assert (asked.body, asked.queue_offset) == (b"body", 1)
    assert asked.phy_offset > half.phy_offset
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert kit.progress() == (1, 0)
    assert kit.end(asked, is_from_check=True) == [None]
    assert kit.round() == []
    assert kit.committed() == [b"body"]
    assert kit.progress()[0] == 2


def test_check_back_decided_half_is_skipped() -> None:
    kit = Kit()
    kit.end(kit.half(b"1"))
    kit.end(kit.half(b"2"), ROLLBACK)
    kit.ops.flush()
    assert kit.round() == []
    assert kit.progress() == (2, 1)
    assert kit.committed() == [b"1"]


def test_check_back_young_half_ends_round() -> None:
    kit = Kit()
    kit.clock.advance(INTERVAL_MS - 6_000)
    kit.half()
    kit.check.step(kit.clock.monotonic_ms())
    kit.clock.advance(6_000)
    assert kit.check.step(kit.clock.monotonic_ms()) == kit.clock.monotonic_ms()
    assert kit.asked == []
    assert kit.progress()[0] <= 0
    assert len(kit.round()) == 1


def test_check_back_after_max_checks_half_is_abandoned() -> None:
    kit = Kit(transaction_check_max=3)
    first = kit.half(b"lost")
    assert [len(kit.round()) for _ in range(5)] == [1, 1, 1, 0, 0]
    (gone,) = kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert gone.body == b"lost"
    assert gone.properties["TRANSACTION_CHECK_TIMES"] == "3"
    (refused,) = kit.end(first)
    assert refused is not None
    assert kit.committed() == []
    assert kit.progress()[0] == 4


@pytest.mark.parametrize(("grace_rounds", "rounds_left"), [(0, 2), (5, 7)])
def test_check_back_without_producer_is_not_counted_in_the_grace(
    grace_rounds: int, rounds_left: int
) -> None:
    kit = Kit(transaction_check_max=2)
    kit.half(b"kept")
    kit.has_producer, kit.grace_ms = False, grace_rounds * INTERVAL_MS + 1
    kit.restart()
    asked = [len(kit.round()) for _ in range(grace_rounds)]
    assert asked == [0] * grace_rounds
    for _ in range(rounds_left - grace_rounds):
        assert kit.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
        kit.round()
    kit.round()
    assert len(kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_check_back_with_producer_is_counted_in_the_grace() -> None:
    kit = Kit(transaction_check_max=1)
    kit.half()
    kit.grace_ms = 10 * INTERVAL_MS
    kit.restart()
    assert [len(kit.round()) for _ in range(2)] == [1, 0]
    assert len(kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_check_back_changed_max_checks_applies() -> None:
    kit = Kit()
    kit.half()
    kit.round()
    kit.configure(transaction_check_max=1)
    assert kit.round() == []
    assert len(kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_check_back_concurrent_end_decides_half() -> None:
    kit = Kit()
    first = kit.half(b"late")
    (asked,) = kit.round()
    assert kit.end(first, COMMIT) == [None]
    assert kit.end(asked, COMMIT, is_from_check=True) == [None]
    (refused,) = kit.end(asked, ROLLBACK, is_from_check=True)
    assert refused is not None
    kit.ops.flush()
    assert kit.committed() == [b"late"]
    assert kit.ops_on_disk() == [[0, 1]]
    assert kit.round() == []


def test_check_back_immune_half_is_moved_without_count() -> None:
    kit = Kit(transaction_check_max=2)
    half = kit.half(properties={**HALF_PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": "100"})
    assert [len(kit.round()) for _ in range(4)] == [0, 0, 0, 1]
    places = [
        each.properties.get("TRANSACTION_CHECK_TIMES") for each in kit.messages(TRANS_HALF_TOPIC)
    ]
    assert places == [None, None, None, None, "1"]
    assert kit.end(half, is_from_check=True) == [None]
    assert kit.round() == []


def test_check_back_wrong_producer_clock_has_no_effect() -> None:
    kit = Kit()
    for wrong_ms in (-(10**11), 10**11):
        properties = {**HALF_PROPERTIES, "REAL_TOPIC": "T", "REAL_QID": "0"}
        kit.store.put_message(
            PutMessage(
                TRANS_HALF_TOPIC,
                0,
                b"x",
                encode_properties(properties),
                born_timestamp_ms=kit.clock.time_ms() + wrong_ms,
            )
        )
    assert len(kit.round()) == 2
    assert len(kit.round()) == 2


def test_check_back_half_beyond_retention_is_abandoned() -> None:
    kit = Kit(transaction_check_max=1_000_000)
    kit.half(properties={**HALF_PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": "999999999"})
    kit.round()
    kit.clock.advance(72 * 3_600_000)
    assert kit.round() == []
    assert len(kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


@pytest.mark.parametrize("max_checks", [15, 1])
def test_check_back_half_not_stored_again_is_not_passed(max_checks: int) -> None:
    kit = Kit(transaction_check_max=max_checks)
    kit.half()
    kit.round()
    kit.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.clock.advance(INTERVAL_MS)
    now_ms = kit.clock.monotonic_ms()
    assert kit.check.step(now_ms) == now_ms + 1_000
    assert kit.progress()[0] == 1
    kit.status = None
    kit.check.step(now_ms + 1_000)
    kit.flush()
    kit.check.step(now_ms + 1_000)
    assert kit.progress()[0] == 2


def test_check_back_sync_flush_progress_waits_for_flush() -> None:
    kit = Kit(flush="SYNC_FLUSH")
    kit.half()
    kit.clock.advance(INTERVAL_MS)
    kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] < 1
    assert kit.asked == []
    kit.flush()
    assert kit.progress()[0] == 1
    assert len(kit.asked) == 1


def test_check_back_progress_passes_what_only_replicas_lack() -> None:
    kit = Kit(flush="SYNC_FLUSH", role="SYNC_MASTER")
    kit.half()
    kit.store.replicas.require()
    kit.store.put_message(PutMessage("other", 0, b"x"))
    kit.clock.advance(INTERVAL_MS)
    kit.check.step(kit.clock.monotonic_ms())
    kit.flush()
    assert kit.asked == []
    kit.store.replicas.give_up()
    assert kit.progress()[0] == 1
    assert len(kit.asked) == 1


def test_check_back_progress_stays_before_commit_not_on_disk() -> None:
    kit = Kit(flush="SYNC_FLUSH")
    half = kit.half()
    kit.end(half)
    kit.clock.advance(INTERVAL_MS)
    kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] <= 0
    kit.flush()
    assert kit.round() == []
    assert kit.progress()[0] == 1


def test_check_back_restart_continues_at_progress() -> None:
    kit = Kit()
    kit.end(kit.half(b"done"))
    open_half = kit.half(b"open")
    kit.check.persist()
    kit.restart()
    (refused,) = kit.end(kit.messages(TRANS_HALF_TOPIC)[0])
    assert refused is not None
    (asked,) = kit.round()
    assert asked.body == b"open"
    kit.restart()
    assert [one.body for one in kit.round()] == [b"open"]
    assert kit.end(open_half) == [None]
    assert kit.round() == []
    assert kit.committed() == [b"done", b"open"]


def test_check_back_kill_before_op_message_checks_again() -> None:
    kit = Kit()
    kit.end(kit.half(b"c"))
    kit.restart(saved=False)
    (asked,) = kit.round()
    assert kit.end(asked, is_from_check=True) == [None]
    assert kit.committed() == [b"c", b"c"]


def test_check_back_progress_beyond_queue_is_corrected() -> None:
    kit = Kit()
    kit.offsets.commit("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0, 500)
    kit.restart()
    kit.half()
    assert len(kit.round()) == 1


def test_check_back_step_reads_bounded_number() -> None:
    kit = Kit()
    for number in range(80):
        kit.half(b"%d" % number)
    kit.clock.advance(INTERVAL_MS)
    kit.check.step(kit.clock.monotonic_ms())
    assert len(kit.asked) == 32
    kit.check.step(kit.clock.monotonic_ms())
    assert len(kit.asked) == 64


def test_check_back_half_too_big_is_abandoned_without_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    kit.half(b"big", {**HALF_PROPERTIES, "big": "x" * 500})
    kit.half(b"other")
    monkeypatch.setattr(check_back, "MAX_PROPERTIES_BYTES", 500)
    assert [half.body for half in kit.round()] == [b"other"]
    assert [gone.body for gone in kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)] == [b"big"]


def test_check_back_clock_set_back_older_halves_are_checked() -> None:
    kit = Kit()
    kit.half(b"1")
    kit.half(b"2", {**HALF_PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
    kit.clock.jump(-86_400_000)
    kit.half(b"3")
    kit.check.step(kit.clock.monotonic_ms() + 1_000)
    assert [half.body for half in kit.round()] == [b"1", b"3"]
    kit.round()
    assert [half.body for half in kit.round()] == [b"1", b"2", b"3"]


def test_check_back_clock_set_back_young_half_is_not_checked() -> None:
    """The local transaction may still be running, so a check-back now would find no result."""
    kit = Kit()
    kit.half(b"old")
    kit.clock.jump(-3_600_000)
    for pause_ms in (1_000, 27_000):
        kit.clock.advance(pause_ms)
        kit.check.step(kit.clock.monotonic_ms())
    kit.half(b"young")
    kit.clock.advance(2_000)
    kit.check.step(kit.clock.monotonic_ms())
    kit.flush()
    assert [half.body for half in kit.asked] == [b"old"]
    assert sorted(half.body for half in kit.round()) == [b"old", b"young"]


def test_check_back_half_with_deleted_first_copy_is_kept() -> None:
    """A disk that is nearly full loses its oldest files long before their time."""
    kit = Kit()
    kit.half(b"x")
    kit.round()
    kit.check._first_stored = lambda _place: -1
    (asked,) = kit.round()
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "2"
    assert not kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    kit.clock.advance(73 * 3_600_000)
    assert kit.round() == []
    assert len(kit.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_check_back_progress_waits_for_copy_on_disk() -> None:
    kit = Kit()
    kit.half(b"acknowledged long ago")
    kit.clock.advance(INTERVAL_MS)
    kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] <= 0, "a power cut would take the copy"
    kit.flush()
    kit.round()
    assert kit.progress()[0] >= 1


def test_check_back_progress_waits_for_committed_message_on_disk() -> None:
    kit = Kit()
    half = kit.half(b"acknowledged long ago")
    assert kit.end(half) == [None], "its op message waits for others"
    kit.clock.advance(INTERVAL_MS)
    for _ in range(3):
        kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] <= 0, "a power cut would take the committed message"
    kit.store.flush_log()
    kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] == 1


def test_check_back_progress_waits_for_half_itself_on_disk() -> None:
    kit = Kit()
    kit.end(kit.half(b"rolled back at once", flush=False), ROLLBACK)
    kit.clock.advance(INTERVAL_MS)
    for _ in range(3):
        kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] <= 0, "a power cut would give its place to another half"
    kit.store.flush_log()
    kit.check.step(kit.clock.monotonic_ms())
    assert kit.progress()[0] == 1


def test_check_back_given_up_transactions_are_logged_once_a_round() -> None:
    kit = Kit(transaction_check_max=1)
    for _ in range(30):
        kit.half()
    with capture_logs() as events:
        kit.round()
        kit.round()
    warned = [each for each in events if each["log_level"] == "warning"]
    assert [each["count"] for each in warned] == [30]
    assert warned[0]["event"].startswith("transactions given up")
