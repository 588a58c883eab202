"""A timed message whose put raises is not lost, and delays the others for a while only."""

import pytest

from rocketpy.broker.delay.delivery import delivered
from rocketpy.broker.timer import service
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.timer.timer_kit import Kit


def test_timer_put_raises_delays_others_ten_seconds_and_loses_nothing() -> None:
    kit = Kit()
    raises = True

    def fail(message: PutMessage) -> PutMessageStatus | None:
        if raises and message.topic == "T" and message.body == b"1":
            raise ValueError("simulated failure")
        return None

    kit.picky.refusal = fail
    for number in range(3):
        kit.send(b"%d" % number, **kit.at(3_000))
    kit.run(4_000)
    assert kit.bodies() == [b"0"]
    kit.send(b"later", **kit.at(1_000))
    kit.run(12_000)
    assert kit.bodies() == [b"0", b"2", b"later"]
    aside = kit.store.get_message(SCHEDULE_TOPIC, 0, 0, 32, 1 << 20)
    assert [decode_message(bytes(each)).body for each in aside.buffers] == [b"1"]
    kit.send(b"once", **kit.at(1_000))
    kit.picky.refusal = lambda _message: None
    kit.run(3_000)
    assert kit.bodies() == [b"0", b"2", b"later", b"once"]


def test_timer_put_raises_once_is_retried() -> None:
    kit = Kit()
    left = 1

    def fail(message: PutMessage) -> PutMessageStatus | None:
        nonlocal left
        if message.topic == "T" and message.body == b"1" and left:
            left -= 1
            raise ValueError("simulated failure")
        return None

    kit.picky.refusal = fail
    for number in range(3):
        kit.send(b"%d" % number, **kit.at(3_000))
    kit.run(8_000)
    assert kit.bodies() == [b"0", b"1", b"2"]


def test_timer_unusable_message_is_retried_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages that arrive meanwhile enter the wheel nevertheless."""
    kit = Kit()
    for number in range(3):
        kit.send(b"%d" % number, **kit.at(3_000))

    def odd(stored: MessageExt) -> PutMessage | str:
        if stored.body == b"1":
            raise ValueError("simulated failure")
        return delivered(stored)

    monkeypatch.setattr(service, "delivered", odd)
    kit.run(5_000)
    kit.send(b"later", **kit.at(1_000))
    kit.run(2_000)
    assert kit.bodies() == [b"0"]
    assert kit.timer.queue_behind == 0
    kit.run(10_000)
    assert kit.bodies() == [b"0", b"2", b"later"]
