"""Recalls of timed messages."""

from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.recall import Recalled, RecallOperation, RecallRequest
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.recall_handle import RecallHandle
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock

HOST = b"\x7f\0\0\1\0\0\0\1"


class _Store:
    status = PutMessageStatus.PUT_OK

    def __init__(self) -> None:
        self.puts: list[PutMessage] = []

    def put_message(self, message: PutMessage) -> PutMessageResult:
        self.puts.append(message)
        return PutMessageResult(self.status, 100, 50)

    def when_durable(self, phy_end: int, callback: Any) -> None:
        callback(phy_end == 150)


class Kit:
    def __init__(self, **config: Any) -> None:
        self.store, self.clock = _Store(), SimClock()
        self.operation = RecallOperation(
            SystemWriter(self.store, lambda _topic, _count, _size: None),
            MessageScheduler((1_000,), self.clock),
            topic_exists=lambda topic: topic == "T",
            config=BrokerConfig(broker_name="b", **{"recall_message_enable": True, **config}),
            clock=self.clock,
        )

    def recall(self, handle: str | None = None, topic: str = "T", later_ms: int = 5_001) -> Any:
        if handle is None:
            handle = RecallHandle("T", "b", str(self.clock.time_ms() + later_ms), "ID").encode()
        return self.operation.recall(RecallRequest(topic, handle, "g", HOST))


def test_recall_is_scheduled_in_slot_of_message() -> None:
    kit = Kit()
    assert kit.recall() == Recalled("ID", 150)
    (put,) = kit.store.puts
    assert (put.topic, put.queue_id, put.body, put.born_host) == (
        "rmq_sys_wheel_timer", 0, b"0", HOST
    )  # fmt: skip
    found = parse_properties(put.properties)
    assert found["TIMER_DEL_UNIQKEY"] == found["UNIQ_KEY"] == "ID"
    assert found["TIMER_OUT_MS"] == str(kit.clock.time_ms() + 5_000)
    assert (found["REAL_TOPIC"], found["TAGS"], found["PGROUP"]) == ("T", "_RECALL_TAG_", "g")
    told: list[bool] = []
    kit.operation.when_durable(Recalled("ID", 150), told.append)
    assert told == [True]


@pytest.mark.parametrize(
    ("config", "changes", "code"),
    [
        ({"recall_message_enable": False}, {}, 16),
        ({"broker_permission": 4}, {}, 14),
        ({"start_accept_send_request_time_stamp": 1 << 60}, {}, 14),
        ({}, {"topic": "Unknown"}, 17),
        ({}, {"handle": "x"}, 604),
        ({}, {"handle": ""}, 604),
        ({}, {"handle": RecallHandle("Other", "b", "1", "ID").encode()}, 604),
        ({}, {"handle": RecallHandle("T", "other", "1", "ID").encode()}, 604),
        ({}, {"handle": RecallHandle("T", "b", "soon", "ID").encode()}, 604),
        ({}, {"handle": RecallHandle("T", "b", "9" * 30, "ID").encode()}, 604),
        ({}, {"later_ms": 0}, 604),
        ({}, {"later_ms": 259_200_000}, 604),
    ],
)
def test_recall_invalid_request_is_refused(
    config: dict[str, Any], changes: dict[str, Any], code: int
) -> None:
    kit = Kit(**config)
    refused = kit.recall(**changes)
    assert isinstance(refused, Refusal)
    assert refused.code == code
    assert kit.store.puts == []


def test_recall_failed_put_is_refused() -> None:
    kit = Kit()
    kit.store.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    refused = kit.recall()
    assert isinstance(refused, Refusal)
    assert refused.code == 1


def test_recall_changed_settings_apply() -> None:
    kit = Kit(recall_message_enable=False)
    assert isinstance(kit.recall(), Refusal)
    kit.operation.configure(BrokerConfig(broker_name="b", recall_message_enable=True))
    assert isinstance(kit.recall(), Recalled)


def test_recalls_per_slot_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.broker.operation.scheduling.scheduling.MAX_RECALLS_PER_SLOT", 3)
    monkeypatch.setattr("rocketpy.broker.operation.scheduling.scheduling.MAX_COUNTED_SLOTS", 10)
    kit = Kit()
    assert [type(kit.recall()) for _ in range(3)] == [Recalled] * 3
    refused = kit.recall()
    assert isinstance(refused, Refusal)
    assert refused.code == 2
    for later_s in range(6, 30):  # of another second; few of them are remembered
        assert isinstance(kit.recall(later_ms=later_s * 1_000 + 1), Recalled)
    assert isinstance(kit.recall(), Refusal), "those with most are"


def test_recalls_sent_as_messages_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A send with TIMER_DEL_UNIQKEY is a recall, too: it is in memory as long."""
    monkeypatch.setattr("rocketpy.broker.operation.scheduling.scheduling.MAX_RECALLS_PER_SLOT", 3)
    postponement = MessageScheduler((1_000,), clock := SimClock())

    def send(later_ms: int, **properties: str) -> Refusal | None:
        moment = str(clock.time_ms() + later_ms)
        given = encode_properties({"TIMER_DELIVER_MS": moment, **properties})
        return postponement.postpone(PutMessage("T", 0, b"", given))

    assert [send(5_001, TIMER_DEL_UNIQKEY="ID") for _ in range(3)] == [None] * 3
    refused = send(5_001, TIMER_DEL_UNIQKEY="ID")
    assert isinstance(refused, Refusal)
    assert (refused.code, "too many" in refused.remark) == (2, True)
    assert send(5_001) is None, "messages are no recalls"
    assert send(6_001, TIMER_DEL_UNIQKEY="ID") is None, "another slot has room"
    clock.advance(1_000)
    assert isinstance(send(4_001, TIMER_DEL_UNIQKEY="ID"), Refusal), "the same slot has none"
