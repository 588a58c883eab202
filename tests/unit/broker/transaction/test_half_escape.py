"""Undecided half messages of an acting master go to another broker group."""

from collections.abc import Callable
from typing import Any

from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.transaction.half_escape import HalfEscape
from rocketpy.broker.transaction.ledger import HalfLedger
from rocketpy.proto.topic_names import TRANS_GROUP, TRANS_HALF_TOPIC
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.broker.transaction.kit import INTERVAL_MS, ROLLBACK, Kit


class Remote:
    """Another broker group, which may refuse messages."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.is_there = True
        self.before_send: Callable[[], None] = lambda: None

    def put(self, message: PutMessage) -> PutMessageResult:
        self.before_send()
        if not self.is_there:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        assert message.topic == TRANS_HALF_TOPIC
        self.bodies.append(bytes(message.body))
        return PutMessageResult(PutMessageStatus.PUT_OK)


class Acting:
    """Halves of a master, and the service of the slave that acts for it."""

    def __init__(self, **settings: Any) -> None:
        self.kit = Kit(**settings)
        self.remote = Remote()
        self.progress = -1
        self.escape = self.new_escape()

    def new_escape(self) -> HalfEscape:
        """Return the service of a slave that has just begun to act."""
        kit = self.kit
        escape = HalfEscape(
            SystemQueue(kit.store, TRANS_HALF_TOPIC, 0),
            self.remote,  # type: ignore[arg-type]
            HalfLedger(),
            kit.ops,
            self,
            topic_exists=kit.topics.exists,
            config=lambda: kit.config,
            clock=kit.clock,
        )
        escape.restart()
        escape.step(kit.clock.monotonic_ms())
        return escape

    def query(self, group: str, topic: str, queue_id: int) -> int:
        if topic == TRANS_HALF_TOPIC:
            return self.progress
        return self.kit.offsets.query(group, topic, queue_id)

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        assert (group, topic, queue_id) == (TRANS_GROUP, TRANS_HALF_TOPIC, 0)
        self.progress = max(self.progress, offset)

    def round(self) -> list[bytes]:
        """Run a round after one interval; return the bodies that it sent."""
        self.kit.clock.advance(INTERVAL_MS)
        return self.steps()

    def steps(self) -> list[bytes]:
        """Run a round that is due; return the bodies that it sent."""
        before, clock = len(self.remote.bodies), self.kit.clock
        for _ in range(30):
            if self.escape.step(clock.monotonic_ms()) > clock.monotonic_ms():
                break
        return self.remote.bodies[before:]


def test_half_escape_sends_undecided_halves_once_and_passes_them() -> None:
    acting = Acting()
    kit = acting.kit
    kit.end(kit.half(b"committed"))
    kit.half(b"open 1")
    kit.end(kit.half(b"rolled back"), ROLLBACK)
    kit.half(b"open 2")
    kit.ops.flush()
    assert acting.round() == [b"open 1", b"open 2"]
    assert acting.progress == 4
    assert acting.round() == []


def test_half_escape_sends_only_the_newest_copy_of_a_checked_half() -> None:
    acting = Acting()
    kit = acting.kit
    for number in range(40):
        kit.half(b"%d" % number)
    assert len(kit.round()) == 40, "each is stored again"
    kit.end(kit.messages(TRANS_HALF_TOPIC)[40], is_from_check=True)
    kit.ops.flush()
    acting.escape = acting.new_escape()
    kit.clock.advance(INTERVAL_MS)
    assert sorted(acting.round()) == sorted(b"%d" % number for number in range(1, 40))
    assert acting.progress == 80


def test_half_escape_begins_one_interval_after_the_slave_acts() -> None:
    acting = Acting()
    acting.kit.half()
    acting.kit.clock.advance(INTERVAL_MS)
    acting.escape.restart()
    acting.escape.step(acting.kit.clock.monotonic_ms())
    assert acting.remote.bodies == []
    assert acting.round() == [b"x"]


def test_half_escape_leaves_young_half_for_next_round() -> None:
    acting = Acting()
    acting.kit.half(b"old")
    acting.kit.clock.advance(INTERVAL_MS - 1_000)
    acting.kit.half(b"young")
    acting.kit.clock.advance(1_000)
    assert acting.steps() == [b"old"]
    assert acting.progress == 1
    assert acting.round() == [b"young"]


def test_half_escape_after_clock_was_set_back_sends_halves() -> None:
    acting = Acting()
    acting.kit.half()
    acting.kit.clock.jump(-3_600_000)
    assert acting.round() == [b"x"]


def test_half_escape_half_that_cannot_leave_stays_and_holds_others() -> None:
    acting = Acting()
    acting.kit.half(b"1")
    acting.kit.half(b"2")
    acting.remote.is_there = False
    assert acting.round() == []
    assert acting.progress <= 0
    acting.remote.is_there = True
    assert acting.round() == [b"1", b"2"]


def test_half_escape_reads_op_messages_again_in_each_round() -> None:
    acting = Acting()
    kit = acting.kit
    acting.remote.is_there = False
    half = kit.half(b"late")
    acting.round()
    acting.escape.restart()
    acting.escape.step(kit.clock.monotonic_ms())
    acting.remote.is_there = True
    kit.end(half, ROLLBACK)
    kit.ops.flush()
    assert acting.round() == []
    assert acting.progress == 1


def test_half_escape_passes_half_of_deleted_topic() -> None:
    acting = Acting()
    acting.kit.half(b"gone")
    acting.kit.topics.delete("T")
    assert acting.round() == []
    assert acting.progress == 1


def test_returning_master_neither_checks_nor_ends_escaped_half() -> None:
    acting = Acting()
    kit = acting.kit
    kit.counts.add("T", 1)
    half = kit.half(b"escaped")
    assert acting.round() == [b"escaped"]
    later = kit.half(b"later")
    kit.offsets.advance(TRANS_GROUP, TRANS_HALF_TOPIC, 0, acting.progress)
    kit.check.take_progress()
    assert kit.counts.of("T") == 0
    (refused,) = kit.end(half)
    assert refused is not None
    (asked,) = kit.round()
    assert asked.body == b"later"
    assert kit.end(later, is_from_check=True) == [None]
    assert kit.committed() == [b"later"]


def test_returning_master_takes_no_smaller_progress() -> None:
    kit = Kit()
    kit.end(kit.half())
    kit.ops.flush()
    kit.round()
    before = kit.progress()
    kit.check.take_progress()
    assert kit.progress() == before
    assert kit.round() == []


def test_returning_master_ends_no_transaction_before_it_is_online() -> None:
    kit = Kit()
    half = kit.half()
    kit.is_online = False
    (refused,) = kit.end(half)
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    kit.is_online = True
    assert kit.end(half) == [None]
