"""Send requests and their responses."""

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.operation.send.admission import SendAdmission
from rocketpy.broker.operation.send.put_transforms import RetryRedirect
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import BatchItem, encode_batch
from rocketpy.proto.record.properties import parse_properties, properties_text
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.store.results import PutMessageStatus
from tests.unit.broker.fakes import (
    FakeChannel,
    FakeClock,
    FakeStore,
    MemoryFile,
    request,
)

UNIQ = "AC1100010001000000000000000000FF"


class Kit:
    def __init__(self, *, answers_wait: bool = False, **config: Any) -> None:
        self.config = BrokerConfig(broker_name="b", broker_cluster_name="C", **config)
        clock = FakeClock()
        self.topics = TopicTable(self.config, MemoryFile(), clock)
        self.groups = SubscriptionGroupTable(self.config, MemoryFile(), clock)
        self.store = FakeStore()
        self.counted: list[tuple[object, ...]] = []
        self.admission = SendAdmission(self.topics, self.config, clock, max_body_bytes=1000)
        self.topics.on_change = self.admission.forget
        self.operation = SendOperation(
            self.store,
            self.admission,
            (
                RetryRedirect(self.topics, self.groups, lambda _: False),
                MessageScheduler((1_000, 5_000), clock),
            ),
            lambda *counted: self.counted.append(counted),
            config=self.config,
            answers_wait=answers_wait,
            when_announced=lambda callback: callback(),
            clock=clock,
            rng=random.Random(1),
        )
        self.processor = SendMessageProcessor(self.operation, self.config)
        self.processor.listens_on(b"\x7f\0\0\1\0\0\x2a\x9f")
        self.channel = FakeChannel()

    def configure(self, config: BrokerConfig) -> None:
        for part in (self.admission, self.operation, self.processor):
            part.configure(config)

    def send(
        self, properties: dict[str, str] | None = None, body: bytes = b"x", **changes: Any
    ) -> Any:
        slots = {
            name: changes.pop(name)
            for name in ("flag", "serialize_type", "version", "code")
            if name in changes
        }
        code = slots.pop("code", 310)
        text = properties_text(
            {"UNIQ_KEY": UNIQ, "WAIT": "true"} if properties is None else properties
        )
        ext = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "123",
               "h": "7", "i": text, "j": "0", "k": "false", "m": "false", **changes}  # fmt: skip
        return self.process(request(code, ext, body, **slots))

    def process(self, command: RemotingCommand) -> Any:
        """The response; None when there is none yet."""
        response = self.processor.process(self.channel, command)  # type: ignore[arg-type]
        if isinstance(response, DeferredResponse):
            response = self.channel.take(response)
        return decoded(response) if isinstance(response, bytes) else response

    def answers(self) -> list[RemotingCommand]:
        """Responses that came later."""
        return [*self.channel.commands, *map(decoded, self.channel.sent)]


def decoded(frame: bytes) -> RemotingCommand:
    (command,) = CommandReader().feed(frame)
    return command


def test_send_ordinary_message() -> None:
    kit = Kit()
    response = kit.send({"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": UNIQ})
    (put,) = kit.store.puts
    assert (put.topic, put.queue_id, put.body, put.flag, put.born_timestamp_ms) == (
        "T",
        1,
        b"x",
        7,
        123,
    )
    assert (put.uniq_key, put.keys, put.tags, put.tags_code) == (UNIQ, "k1 k2", "a", tags_code("a"))
    assert put.born_host == kit.channel.remote_host_bytes
    assert parse_properties(put.properties) == {
        "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": UNIQ,
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "C",
    }  # fmt: skip
    assert put.properties.startswith(
        f"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01{UNIQ}\x02".encode()
    )
    assert (response.code, response.opaque, response.flag) == (0, 42, 1)
    assert response.ext_fields == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "queueId": "1", "queueOffset": "0",
        "msgId": "7F00000100002A9F00000000000003E8", "transactionId": UNIQ,
    }  # fmt: skip
    assert kit.counted == [("T", 1, 200)]


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
@pytest.mark.parametrize("uniq", [UNIQ, 'quote"\\and%ü'])
def test_send_response_template_equals_general_encoder(serialize_type: int, uniq: str) -> None:
    kit = Kit()
    response = kit.send({"UNIQ_KEY": uniq}, serialize_type=serialize_type)
    assert response.serialize_type == serialize_type
    assert response.ext_fields["transactionId"] == uniq
    assert response.ext_fields["msgId"] == "7F00000100002A9F00000000000003E8"
    assert (response.version, response.opaque, response.code) == (493, 42, 0)


def test_send_long_field_names_are_equivalent() -> None:
    kit = Kit()
    ext = {"producerGroup": "p", "topic": "T", "defaultTopic": "TBW102",
           "defaultTopicQueueNums": "2",
           "queueId": "1", "sysFlag": "0", "bornTimestamp": "5", "flag": "0",
           "properties": f"UNIQ_KEY\x01{UNIQ}\x02"}  # fmt: skip
    assert kit.process(request(10, ext, b"x")).code == 0
    assert kit.topics.get("T") == TopicConfig("T", 2, 2, 6)


def test_send_broker_adds_and_removes_properties() -> None:
    kit = Kit(trace_on=False)
    kit.send({"POP_CK": "old", "MSG_REGION": "far", "CLUSTER": "other", "A": "1"})
    assert re.fullmatch("[0-9A-F]{32}", kit.store.puts[0].uniq_key or "")
    stored = parse_properties(kit.store.puts[0].properties)
    assert stored == {
        "A": "1", "UNIQ_KEY": kit.store.puts[0].uniq_key, "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "false", "CLUSTER": "C",
    }  # fmt: skip


def test_send_properties_without_separator_are_kept() -> None:
    kit = Kit()
    kit.send(i=f"A\x011\x02UNIQ_KEY\x01{UNIQ}")
    assert parse_properties(kit.store.puts[0].properties)["UNIQ_KEY"] == UNIQ
    kit.send(i="no separators at all")
    assert re.fullmatch("[0-9A-F]{32}", kit.store.puts[1].uniq_key or "")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "a/../b"}, 29),
        ({"b": ""}, 29),
        ({"b": "x" * 128}, 29),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"e": "99"}, 29),
        ({"e": "2147483647"}, 29),
        ({"c": "BenchmarkTest"}, 17),
        ({"body": b"x" * 1001}, 13),
        ({"properties": {"A": "x" * 32_700, "UNIQ_KEY": UNIQ}}, 13),
        ({"properties": {"TIMER_DELAY_MS": "soon", "UNIQ_KEY": UNIQ}}, 13),
        ({"properties": {"DELAY": "x", "UNIQ_KEY": UNIQ}}, 1),
    ],
)
def test_send_invalid_request_is_refused(changes: dict[str, Any], code: int) -> None:
    kit = Kit()
    response = kit.send(**changes)
    assert response.code == code
    assert response.remark
    assert kit.store.puts == []


@pytest.mark.parametrize("delay", ["0", "-1"])
def test_send_delay_zero_is_ordinary(delay: str) -> None:
    kit = Kit()
    assert kit.send({"DELAY": delay, "UNIQ_KEY": UNIQ}).code == 0
    assert parse_properties(kit.store.puts[0].properties)["DELAY"] == delay


def test_send_delayed_message_returns_requested_queue() -> None:
    kit = Kit()
    response = kit.send({"DELAY": "99", "UNIQ_KEY": UNIQ})
    assert (response.code, response.ext_fields["queueId"]) == (0, "1")
    (put,) = kit.store.puts
    assert (put.topic, put.queue_id, put.delay_level) == ("SCHEDULE_TOPIC_XXXX", 1, 2)
    found = parse_properties(put.properties)
    assert (found["DELAY"], found["REAL_TOPIC"], found["REAL_QID"]) == ("2", "T", "1")
    assert found["CLUSTER"] == "C"


def test_send_missing_or_wrong_field_is_named() -> None:
    kit = Kit()
    for field, text in (("e", "x"), ("h", str(1 << 31)), ("g", str(1 << 63)), ("j", str(1 << 31))):
        with pytest.raises(HeaderFieldError, match=rf"header field {field} \("):
            kit.send(None, b"x", **{field: text})
    with pytest.raises(HeaderFieldError, match=r"header field a \(producerGroup\) is required"):
        kit.process(request(310, {"b": "T"}))


def test_send_queue_minus_one_is_any_queue() -> None:
    kit = Kit()
    for _ in range(50):
        kit.send(e="-1")
    assert {put.queue_id for put in kit.store.puts} == {0, 1, 2, 3}


def test_send_oneway_has_no_response() -> None:
    kit = Kit()
    assert kit.send(flag=2) is None
    assert kit.send(flag=2, b="SELF_TEST_TOPIC") is None
    assert len(kit.store.puts) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutMessageStatus.OS_PAGE_CACHE_BUSY, 2),
        (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, 14),
        (PutMessageStatus.SERVICE_NOT_AVAILABLE, 14),
        (PutMessageStatus.MESSAGE_ILLEGAL, 13),
        (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, 13),
        (PutMessageStatus.FLUSH_DISK_TIMEOUT, 10),
        (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, 12),
        (PutMessageStatus.SLAVE_NOT_AVAILABLE, 11),
        (PutMessageStatus.UNKNOWN_ERROR, 1),
    ],
)
def test_send_failed_put_returns_apache_code(status: PutMessageStatus, code: int) -> None:
    kit = Kit()
    kit.store.status = status
    response = kit.send()
    assert response.code == code
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"


def test_send_busy_store_returns_flow_control_of_peer() -> None:
    kit = Kit()
    kit.store.status = PutMessageStatus.OS_PAGE_CACHE_BUSY
    response = kit.send()
    assert response.code == 2
    assert response.remark.startswith("[TOO_MANY_REQUESTS][PC_SYNCHRONIZED]broker busy")
    kit.channel.is_rocketpy = True
    response = kit.send()
    assert response.code == 530
    assert response.remark.startswith("[PC_SYNCHRONIZED]broker busy")


def test_send_sync_flush_answers_when_durable() -> None:
    kit = Kit(answers_wait=True)
    assert kit.send() is None
    ((end, callback),) = kit.store.waiting
    assert end == 1200
    assert kit.channel.sent == []
    callback(True)
    assert decoded(kit.channel.sent[0]).code == 0


def test_send_sync_flush_without_wait_answers_at_once() -> None:
    kit = Kit(answers_wait=True)
    assert kit.send({"UNIQ_KEY": UNIQ, "WAIT": "false"}).code == 0
    assert kit.store.waiting == []


@pytest.mark.parametrize(("is_writable", "code"), [(True, 10), (False, 14)])
def test_send_missing_flush_is_never_success(is_writable: bool, code: int) -> None:
    kit = Kit(answers_wait=True)
    kit.send()
    kit.store.is_writable = is_writable
    kit.store.waiting[0][1](False)
    assert [one.code for one in kit.answers()] == [code]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("serialize_type", [0, 1, 2])
def test_send_unconfirmed_message_has_its_place_in_the_response(
    serialize_type: int, *, batch: bool
) -> None:
    items = [BatchItem(0, b"one", b"UNIQ_KEY\x01A\x02"), BatchItem(0, b"two", b"UNIQ_KEY\x01B\x02")]
    request: dict[str, Any] = {"serialize_type": serialize_type}
    if batch:
        request |= {"body": encode_batch(items), "code": 320, "m": "true"}
    kit = Kit()
    stored = kit.send({"UNIQ_KEY": UNIQ}, **request)

    waiting = Kit(answers_wait=True)
    waiting.send({"UNIQ_KEY": UNIQ}, **request)
    waiting.store.waiting[0][1](False)
    [response] = waiting.answers()
    assert response.code == 10
    assert "not yet on disk" in (response.remark or "")
    assert response.ext_fields == stored.ext_fields


def test_send_retry_after_last_attempt_is_dead_letter() -> None:
    kit = Kit()
    kit.groups.put(SubscriptionGroupConfig("g", retry_max_times=3))
    assert kit.send(b="%RETRY%g", e="0", j="3").code == 0
    assert kit.send(b="%RETRY%g", e="0", j="4").code == 0
    assert kit.send(b="%RETRY%g", e="0", j="4", l="5").code == 0, "the client's limit counts"
    assert [put.topic for put in kit.store.puts] == ["%RETRY%g", "%DLQ%g", "%RETRY%g"]
    assert kit.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)


def test_send_retry_of_unknown_group_is_refused() -> None:
    kit = Kit(auto_create_subscription_group=False)
    assert kit.send(b="%RETRY%g", e="0").code == 26


def test_send_batch_stores_all_messages() -> None:
    kit = Kit()
    items = [
        BatchItem(3, b"one", b"UNIQ_KEY\x01A\x02TAGS\x01t\x02"),
        BatchItem(0, b"two", b"UNIQ_KEY\x01B\x02"),
    ]
    response = kit.send(
        {"UNIQ_KEY": "BATCH", "WAIT": "true"}, body=encode_batch(items), code=320, m="true"
    )
    assert (
        response.ext_fields["msgId"]
        == "7F00000100002A9F0000000000000000,7F00000100002A9F0000000000000064"
    )
    assert response.ext_fields["queueOffset"] == "7"
    assert response.ext_fields["transactionId"] == "BATCH"
    (batch,) = kit.store.batches
    messages = batch.messages
    assert tuple(messages.bodies) == (b"one", b"two")
    assert tuple(messages.properties) == (items[0].properties, items[1].properties)
    assert (tuple(messages.flags), tuple(messages.uniq_keys)) == ((3, 0), ("A", "B"))
    assert kit.counted == [("T", 2, 200)]


@pytest.mark.parametrize(
    ("changes", "body"),
    [
        ({"b": "%RETRY%g", "e": "0"}, encode_batch([BatchItem(0, b"x", b"")])),
        ({}, b"\0\0\0\x05garbage"),
        ({}, b""),
        ({}, encode_batch([BatchItem(0, b"x", b"DELAY\x013\x02")])),
        ({"f": "8"}, encode_batch([BatchItem(0, b"x", b"")])),
        ({}, encode_batch([BatchItem(0, b"x" * 1000, b"")])),
    ],
)
def test_send_invalid_batch_is_refused(changes: dict[str, str], body: bytes) -> None:
    kit = Kit()
    kit.topics.create_on_send_back("%RETRY%g", 1)
    response = kit.send(None, body, code=320, m="true", **changes)
    assert response.code == 13
    assert kit.store.batches == []


def test_send_batch_cq_topic_is_refused() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 4, 4, 6, attributes={"queue.type": "BatchCQ"}))
    assert kit.send().code == 13
    assert "BatchCQ" in kit.send(body=encode_batch([BatchItem(0, b"x", b"")]), code=320).remark


def test_send_changed_topic_applies_at_once() -> None:
    kit = Kit()
    assert kit.send(e="3").code == 0
    kit.topics.put(TopicConfig("T", 2, 2, 6))
    assert kit.send(e="3").code == 29


def test_send_read_only_broker_refuses_ordered_topics() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("O", 4, 4, 6, order=True))
    kit.configure(replace(kit.config, broker_permission=4))
    assert kit.send(b="O").code == 16
    assert kit.send().code == 0


def test_send_before_opening_time_is_refused() -> None:
    kit = Kit()
    kit.configure(replace(kit.config, start_accept_send_request_time_stamp=1 << 60))
    assert kit.send().code == 1
    kit.configure(kit.config)
    assert kit.send().code == 0
