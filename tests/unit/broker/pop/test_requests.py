"""Pop requests: fields in, fields and messages out, at once or later."""

from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.long_polling.suspended_requests import SuspendedRequest
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.peek import NotificationRequest, Notified, Peeked, PeekRequest
from rocketpy.broker.pop.requests import PopMessageProcessor
from rocketpy.broker.pop.take import Popped, PopRequest
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from tests.unit.broker.fakes import FakeChannel, FakeClock, FakeStore, request

POP, NOTIFICATION, POLLING_INFO = 200050, 200054, 200055
POP_FIELDS = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "3",
    "maxMsgNums": "16",
    "invisibleTime": "60000",
    "pollTime": "15000",
    "bornTime": "1699999999877",
    "initMode": "1",
}
WAIT_FIELDS = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "pollTime": "9000"}
NOTHING = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
FOUND = Popped(0, 1_000, 60_000, 2, 7, "0 3 5", "0 3 5,6", None, (b"one", b"two"))


class Operation:
    """Pops or notifications: answers with what it is given, None lets the request wait."""

    def __init__(self) -> None:
        self.wanted: list[Any] = []
        self.outcomes: list[Any] = []
        self.reply: Callable[[Any], bytes | None] | None = None
        self.resumed: list[Any] = []
        self.forgotten: list[Any] = []
        self.waiting: int | Refusal = 0
        self.counted: list[tuple[str, int, str]] = []

    def pop(self, wanted: Any, owner: Any, reply: Callable[[Any], bytes | None]) -> Any:
        self.wanted.append(wanted)
        self.reply = reply
        return self.outcomes.pop(0)

    notify = pop

    def peek(self, wanted: Any) -> Any:
        self.wanted.append(wanted)
        return self.outcomes.pop(0)

    def resume(self, waiting: Any) -> Any:
        self.resumed.append(waiting)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def forget(self, owner: Any) -> None:
        self.forgotten.append(owner)

    def count_waiting(self, *where: Any) -> int | Refusal:
        self.counted.append(where)
        return self.waiting


class Kit:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pops, self.peeks, self.notifications = Operation(), Operation(), Operation()
        self.store = FakeStore()
        self.channel = FakeChannel()
        self.processor = PopMessageProcessor(
            self.pops,  # type: ignore[arg-type]
            self.peeks,  # type: ignore[arg-type]
            self.notifications,  # type: ignore[arg-type]
            self.store,
            self.clock,
        )

    def ask(
        self, code: int, fields: dict[str, str], *, serialize_type: int = 0
    ) -> RemotingCommand | None:
        asked = request(code, fields, serialize_type=serialize_type)
        response: Any = self.processor.processors[code](self.channel, asked)  # type: ignore[arg-type]
        return decoded(response) if isinstance(response, bytes) else response

    def pop(self, outcome: Any, **changes: str) -> RemotingCommand | None:
        self.pops.outcomes.append(outcome)
        return self.ask(POP, {**POP_FIELDS, **changes})

    def notify(self, outcome: Any, **changes: str) -> RemotingCommand | None:
        self.notifications.outcomes.append(outcome)
        return self.ask(NOTIFICATION, {**WAIT_FIELDS, **changes})

    def go_on(self, operation: Operation, outcome: Any) -> list[RemotingCommand]:
        """Wake what waits; returns what was sent since."""
        operation.outcomes.append(outcome)
        assert operation.reply is not None
        waiting = SuspendedRequest((), self.channel, 0, operation.reply)
        self.channel.resume(waiting)
        assert not self.channel.sent, "not in the call that wakes"
        while self.channel.loop.turn():
            pass
        sent, self.channel.sent = self.channel.sent, []
        return [decoded(frame) for frame in sent]


def decoded(frame: bytes) -> RemotingCommand:
    (command,) = CommandReader().feed(frame)
    return command


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
def test_pop_response_contains_messages_and_handles(serialize_type: int) -> None:
    kit = Kit()
    kit.pops.outcomes.append(FOUND)
    response = kit.ask(POP, POP_FIELDS, serialize_type=serialize_type)
    assert response is not None
    assert (response.code, response.remark, response.body) == (0, "FOUND", b"onetwo")
    assert response.ext_fields == {
        "popTime": "1000", "invisibleTime": "60000", "reviveQid": "2", "restNum": "7",
        "startOffsetInfo": "0 3 5", "msgOffsetInfo": "0 3 5,6",
    }  # fmt: skip
    assert (response.opaque, response.serialize_type) == (42, serialize_type)
    assert response.is_response


def test_peek_response_has_fields_of_pop() -> None:
    kit = Kit()
    kit.peeks.outcomes = [Peeked((b"one", b"two"), 9), Peeked((), 0), Refusal(17, "no such topic")]
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "5"}
    responses = [kit.ask(200052, fields) for _ in range(3)]
    said = [(one.code, one.remark, one.ext_fields, one.body) for one in responses if one]
    assert said == [
        (0, "FOUND", {**NOTHING, "restNum": "9"}, b"onetwo"),
        (19, "NO_MESSAGE_IN_QUEUE", NOTHING, b""),
        (17, "no such topic", NOTHING, b""),
    ]
    assert kit.peeks.wanted[0] == PeekRequest("g", "T", -1, 5)


def test_ordered_pop_response_has_delivery_counts() -> None:
    response = Kit().pop(FOUND._replace(order_counts="0 3 1"))
    assert response is not None
    assert response.ext_fields["orderCountInfo"] == "0 3 1"


@pytest.mark.parametrize("code", [209, 210])
def test_pop_response_without_messages_has_all_fields(code: int) -> None:
    response = Kit().pop(Popped(code, 1_000, 60_000, 2))
    assert response is not None
    assert (response.code, response.remark, response.body) == (code, "NO_MESSAGE_IN_QUEUE", b"")
    assert response.ext_fields["popTime"] == "1000"


def test_pop_refusal_has_fields_that_clients_read() -> None:
    response = Kit().pop(Refusal(17, "topic[T] not exist, apply first please!"))
    assert response is not None
    assert (response.code, response.remark) == (17, "topic[T] not exist, apply first please!")
    assert response.ext_fields == NOTHING


def test_pop_request_fields_are_parsed() -> None:
    kit = Kit()
    kit.pop(FOUND, exp="a || b", expType="TAG", order="true", attemptId="x")
    assert kit.pops.wanted == [
        PopRequest(
            "g", "T", 3, 16, 60_000, 1_699_999_999_877, 15_000, 1, "a || b", "TAG", True, "x"
        )
    ]


@pytest.mark.parametrize("born", [{}, {"bornTime": "0"}])
def test_pop_request_without_born_time_is_born_now(born: dict[str, str]) -> None:
    kit = Kit()
    fields = {name: value for name, value in POP_FIELDS.items() if name != "bornTime"}
    kit.pops.outcomes.append(FOUND)
    kit.ask(POP, {**fields, **born})
    kit.notify(Notified(True), **born)
    assert kit.pops.wanted[0].born_ms == kit.notifications.wanted[0].born_ms == kit.clock.now_ms
    assert (kit.pops.wanted[0].expression, kit.pops.wanted[0].expression_type) == ("", None)
    assert not kit.pops.wanted[0].is_ordered


@pytest.mark.parametrize("name", sorted(set(POP_FIELDS) - {"bornTime"}))
def test_pop_request_missing_field_is_named(name: str) -> None:
    kit = Kit()
    with pytest.raises(HeaderFieldError, match=name):
        kit.ask(POP, {each: value for each, value in POP_FIELDS.items() if each != name})
    assert not kit.pops.wanted


@pytest.mark.parametrize(
    ("code", "fields", "name"),
    [
        (POP, {**POP_FIELDS, "maxMsgNums": "many"}, "maxMsgNums"),
        (POP, {**POP_FIELDS, "queueId": str(1 << 31)}, "queueId"),
        (NOTIFICATION, {**WAIT_FIELDS, "pollTime": str(1 << 63)}, "pollTime"),
        (POLLING_INFO, {"consumerGroup": "g", "topic": "T"}, "queueId"),
    ],
)
def test_pop_request_number_out_of_range_is_named(
    code: int, fields: dict[str, str], name: str
) -> None:
    with pytest.raises(HeaderFieldError, match=name):
        Kit().ask(code, fields)


def test_pop_sync_flush_response_waits_for_disk() -> None:
    kit = Kit()
    assert kit.pop(FOUND._replace(durable_at=500)) is None
    [(phy_end, settled)] = kit.store.waiting
    assert (phy_end, kit.channel.sent) == (500, [])
    settled(True)
    [frame] = kit.channel.sent
    assert decoded(frame).body == b"onetwo"


def test_pop_check_point_not_durable_is_refused() -> None:
    kit = Kit()
    kit.pop(FOUND._replace(durable_at=500))
    kit.store.waiting[0][1](False)
    [frame] = kit.channel.sent
    response = decoded(frame)
    assert (response.code, response.body, response.opaque) == (1, b"", 42)
    assert "not on disk" in (response.remark or "")
    assert response.ext_fields == NOTHING


def test_pop_suspended_is_answered_when_resumed() -> None:
    kit = Kit()
    assert kit.pop(None) is None
    assert kit.channel.sent == []
    assert kit.go_on(kit.pops, None) == [], "somebody was faster: it waits again"
    [response] = kit.go_on(kit.pops, FOUND)
    assert (response.body, response.opaque) == (b"onetwo", 42)
    assert len(kit.pops.resumed) == 2


def test_pop_resumed_waits_for_disk() -> None:
    kit = Kit()
    kit.pop(None)
    assert kit.go_on(kit.pops, FOUND._replace(durable_at=500)) == []
    kit.store.waiting[0][1](True)
    assert decoded(kit.channel.sent[0]).body == b"onetwo"


def test_pop_error_after_resume_is_answered() -> None:
    kit = Kit()
    kit.pop(None)
    [response] = kit.go_on(kit.pops, OSError("a bad sector"))
    assert (response.code, response.remark, response.opaque) == (1, "OSError: a bad sector", 42)
    kit.notify(None)
    [response] = kit.go_on(kit.notifications, ValueError("simulated failure"))
    assert (response.code, response.remark) == (1, "ValueError: simulated failure")


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        (Notified(True), {"hasMsg": "true", "pollingFull": "false"}),
        (Notified(False), {"hasMsg": "false", "pollingFull": "false"}),
        (Notified(False, True), {"hasMsg": "false", "pollingFull": "true"}),
    ],
)
def test_notification_reports_message(outcome: Notified, fields: dict[str, str]) -> None:
    kit = Kit()
    response = kit.notify(outcome, order="true", attemptId="x", bornTime="5")
    assert response is not None
    assert (response.code, response.ext_fields) == (0, fields)
    assert kit.notifications.wanted == [NotificationRequest("g", "T", -1, 5, 9_000, True, "x")]


def test_notification_suspended_is_answered_when_resumed() -> None:
    kit = Kit()
    assert kit.notify(None) is None
    assert kit.go_on(kit.notifications, None) == []
    [response] = kit.go_on(kit.notifications, Notified(True))
    assert (response.ext_fields["hasMsg"], response.opaque) == ("true", 42)


def test_notification_refusal_has_remark() -> None:
    response = Kit().notify(Refusal(16, "peeking message is forbidden"))
    assert response is not None
    assert (response.code, response.remark) == (16, "peeking message is forbidden")


def test_polling_info_counts_suspended_pops() -> None:
    kit = Kit()
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "2"}
    kit.notifications.waiting = 7
    response = kit.ask(POLLING_INFO, fields)
    assert response is not None
    assert (response.code, response.ext_fields) == (0, {"pollingNum": "7"})
    assert kit.notifications.counted == [("T", 2, "g")]
    kit.notifications.waiting = Refusal(17, "no such topic")
    refused = kit.ask(POLLING_INFO, fields)
    assert refused is not None
    assert (refused.code, refused.remark) == (17, "no such topic")


def test_lost_connection_drops_suspended_requests() -> None:
    kit = Kit()
    kit.pop(None)
    kit.processor.on_open(kit.channel)  # type: ignore[arg-type]
    kit.processor.on_idle(kit.channel)  # type: ignore[arg-type]
    assert kit.pops.forgotten == []
    kit.processor.on_close(kit.channel)  # type: ignore[arg-type]
    assert kit.pops.forgotten == kit.notifications.forgotten == [kit.channel]


@pytest.mark.parametrize("kind", ["pop", "notification"])
def test_connection_lost_during_request_drops_it(kind: str) -> None:
    kit = Kit()
    kit.channel.is_open = False
    if kind == "pop":
        assert kit.pop(None) is None
    else:
        assert kit.notify(None) is None
    assert kit.pops.forgotten == kit.notifications.forgotten == [kit.channel]


def test_work_of_a_lost_connection_is_dropped() -> None:
    kit = Kit()
    kit.pop(None)
    assert kit.pops.reply is not None
    kit.channel.resume(SuspendedRequest((), kit.channel, 0, kit.pops.reply))
    kit.channel.close("lost")
    kit.processor.on_close(kit.channel)  # type: ignore[arg-type]
    kit.channel.loop.turn()
    assert (kit.pops.resumed, kit.channel.sent) == ([], [])
