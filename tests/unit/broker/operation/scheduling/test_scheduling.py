"""Scheduling of messages for later delivery."""

from typing import Any

import pytest

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler, refuse_later_in_batch
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.store.results import PutMessage
from rocketpy.testing.sim_clock import SimClock

REQUEST = SendRequest("T", 0, b"x", b"", b"", "p", 0, 0, 0)
DELAYS_MS = (1_000, 5_000, 10_000)


def message(properties: dict[str, str], **changes: Any) -> PutMessage:
    return PutMessage("T", 3, b"x", encode_properties(properties), **changes)


def test_schedule_delay_level_redirects_to_its_queue() -> None:
    given = {"DELAY": "2", "TAGS": "a", "REAL_TOPIC": "forged", "TIMER_DELAY_MS": "5"}
    one = message(given)
    assert MessageScheduler(DELAYS_MS, SimClock()).postpone(one) is None
    assert (one.topic, one.queue_id, one.delay_level) == ("SCHEDULE_TOPIC_XXXX", 1, 2)
    assert parse_properties(one.properties) == {
        "DELAY": "2",
        "TAGS": "a",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize("level", ["4", "18", "2147483647"])
def test_schedule_level_above_last_uses_last(level: str) -> None:
    one = message({"DELAY": level})
    assert MessageScheduler(DELAYS_MS, SimClock()).postpone(one) is None
    assert (one.queue_id, one.delay_level) == (2, 3)
    assert parse_properties(one.properties)["DELAY"] == "3"


@pytest.mark.parametrize("level", ["0", "-1", "-2147483648"])
def test_schedule_without_level_is_unchanged(level: str) -> None:
    one = message({"DELAY": level})
    before = one.properties
    assert MessageScheduler(DELAYS_MS, SimClock()).postpone(one) is None
    assert (one.topic, one.queue_id, one.properties) == ("T", 3, before)


@pytest.mark.parametrize("level", ["soon", "1.5", "2147483648", "9" * 5_000, "1_0", " 1", "²"])
def test_schedule_invalid_level_is_refused(level: str) -> None:
    refused = MessageScheduler(DELAYS_MS, SimClock()).postpone(message({"DELAY": level}))
    assert refused is not None
    assert refused.code == 1
    assert "DELAY" in refused.remark
    assert len(refused.remark) < 200


@pytest.mark.parametrize(("sys_flag", "waits"), [(0, True), (8, True), (4, False), (12, False)])
def test_schedule_only_ordinary_and_committed_messages(sys_flag: int, waits: bool) -> None:
    one = message({"DELAY": "1"}, sys_flag=sys_flag)
    assert MessageScheduler(DELAYS_MS, SimClock()).postpone(one) is None
    assert (one.topic == "SCHEDULE_TOPIC_XXXX") is waits


def test_schedule_half_message_is_unchanged_and_retry_is_delayed() -> None:
    postponement = MessageScheduler(DELAYS_MS, SimClock())
    properties = {"DELAY": "1", "TRAN_MSG": "true"}
    half = message(properties)
    assert postponement(half, properties, REQUEST) is None
    assert half.topic == "T"
    stored_half = PutMessage("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"x", encode_properties(properties))
    assert postponement.postpone(stored_half) is None
    assert stored_half.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    retried = message(properties, reconsume_times=1)
    assert postponement(retried, properties, REQUEST) is None
    assert retried.topic == "SCHEDULE_TOPIC_XXXX"


def test_schedule_delay_uses_given_level() -> None:
    one, properties = message({"TAGS": "a"}), {"TAGS": "a"}
    MessageScheduler(DELAYS_MS, SimClock()).delay(one, properties, 99)
    assert (one.topic, one.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert parse_properties(one.properties) == properties
    assert properties["DELAY"] == "3"


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({}, None),
        ({"DELAY": "0"}, None),
        ({"DELAY": "1"}, 13),
        ({"DELAY": "x"}, 1),
        ({"TIMER_DELAY_SEC": "1"}, 13),
        ({"TIMER_DELAY_MS": "1"}, 13),
        ({"TIMER_DELIVER_MS": "1"}, 13),
    ],
)
def test_schedule_batch_with_delay_is_refused(properties: dict[str, str], code: int | None) -> None:
    refused = refuse_later_in_batch(properties)
    assert (refused.code if isinstance(refused, Refusal) else None) == code
