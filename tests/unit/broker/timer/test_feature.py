"""The feature of timed messages: its requests and figures."""

import random
from typing import Any

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from rocketpy.proto.recall_handle import decode_recall_handle
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.fastjson import loads
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.store.timer.checkpoint import TimerMarks
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.fakes import FakeChannel, request


class Kit:
    def __init__(self, **store: Any) -> None:
        self.clock = SimClock()
        self.broker = Broker(
            BrokerConfig(broker_name="b", listen_port=0, recall_message_enable=True),
            store_config=MessageStoreConfig(
                store_path_root_dir="/store",
                mapped_file_size_commit_log=1 << 16,
                mapped_file_size_consume_queue=2_000,
                message_index_enable=False,
                **store,
            ),
            clock=self.clock,
            rng=random.Random(1),
            files=SimFiles(self.clock),
        )
        self.parts = self.broker.parts
        self.parts.store.open()
        self.parts.topics.put(TopicConfig("T", 1, 1))
        for feature in self.parts.features:
            for state in feature.states:
                state.load()

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Any:
        channel: Any = FakeChannel()
        route = self.broker.requests.routes[code]
        response = route.processor(channel, request(code, ext or {}, body))
        if isinstance(response, DeferredResponse):
            response = channel.take(response)
        if isinstance(response, bytes):
            return CommandReader().feed(response)[0]
        assert isinstance(response, RemotingCommand)
        return response

    def send(self, properties: str, topic: str = "T") -> RemotingCommand:
        header = SendMessageRequestHeaderV2(
            producer_group="pg",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=properties,
            reconsume_times=0,
        )
        response: RemotingCommand = self.ask(RequestCode.SEND_MESSAGE_V2, header.to_ext(), b"x")
        return response

    def run(self, elapsed_ms: int) -> None:
        for _ in range(elapsed_ms // 50):
            for service in self.broker.services:
                if service.name.startswith("Timer"):
                    service.step(self.clock.monotonic_ms())
            self.clock.advance(50)


def test_timer_feature_recalled_message_is_never_delivered() -> None:
    kit = Kit()
    later = kit.clock.time_ms() + 5_300
    kept = kit.send(f"UNIQ_KEY\x01KEPT\x02TIMER_DELIVER_MS\x01{later}\x02")
    sent = kit.send(f"UNIQ_KEY\x01GONE\x02TIMER_DELIVER_MS\x01{later}\x02")
    assert (kept.code, sent.code) == (0, 0)
    text = sent.ext_fields["recallHandle"]
    handle = decode_recall_handle(text)
    assert handle == ("T", "b", str(later // 1_000 * 1_000 + 1), "GONE")
    answer = kit.ask(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": text})
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "GONE")
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    kit.run(8_000)
    assert kit.parts.store.max_offset("T", 0) == 1


def test_timer_feature_ordinary_message_has_no_handle() -> None:
    kit = Kit()
    assert "recallHandle" not in kit.send("UNIQ_KEY\x01A\x02").ext_fields
    assert "recallHandle" not in kit.send("UNIQ_KEY\x01A\x02DELAY\x011\x02").ext_fields
    over = kit.send("UNIQ_KEY\x01A\x02TIMER_DELIVER_MS\x015\x02")
    assert (over.code, "recallHandle" in over.ext_fields) == (0, False)


def test_timer_feature_refused_recall_has_remark() -> None:
    answer = Kit().ask(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"})
    assert (answer.code, answer.remark) == (604, "recall handle is invalid")


def test_timer_feature_adds_runtime_info() -> None:
    kit = Kit()
    for _ in range(3):
        kit.send("UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x0160\x02")

    def figures() -> dict[str, str]:
        table: dict[str, str] = loads(kit.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        return table

    assert (figures()["timerOffsetBehind"], figures()["timerCongestNum"]) == ("3", "0")
    kit.run(2_000)
    found = figures()
    assert (found["timerOffsetBehind"], found["timerCongestNum"]) == ("0", "3")
    assert float(found["timerEnqueueTps"]) > 0
    assert found["timerReadBehind"] in {"0", "1"}
    assert found["timerDequeueTps"] == "0.0"
    kit.run(2_000)
    marks = kit.ask(RequestCode.GET_TIMER_CHECK_POINT).body
    assert len(marks) == 56
    assert int.from_bytes(marks[16:24]) == 0, "the messages are not on disk yet"


def test_timer_feature_checkpoint_response_is_newer_than_the_file() -> None:
    """Files are flushed once a second: a slave that takes over would repeat the deliveries."""
    kit = Kit(timer_flush_interval_ms=60_000)
    kit.send("UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x011\x02")
    kit.run(1_500)
    kit.parts.store.flush_log()
    kit.run(2_000)
    marks = TimerMarks.decode(kit.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
    assert kit.parts.store.max_offset("T", 0) == 1
    assert marks is not None
    assert marks.queue_offset == marks.master_queue_offset == 1
    assert marks.read_ms >= kit.clock.time_ms() - 1_500


def test_timer_feature_metrics_response_equals_file() -> None:
    kit = Kit()
    [timer] = [one for one in kit.parts.features if one.name == "timer"]
    kit.send("UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x0160\x02")
    for service in timer.services:
        service.step(kit.clock.monotonic_ms())
    said = loads(kit.ask(RequestCode.GET_TIMER_METRICS).body)
    assert said == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": kit.clock.time_ms()},
        "timingCount": {"T": {"count": 1, "timeStamp": kit.clock.time_ms()}},
    }


def test_timer_feature_without_timer_refuses_metrics() -> None:
    kit = Kit(timer_wheel_enable=False)
    for code, remark in ((60, "The checkpoint is null"), (61, "The timer message store is null")):
        refused = kit.ask(code)
        assert (refused.code, refused.remark) == (1, remark)


def test_timer_put_schedules_internal_message() -> None:
    kit = Kit()
    put = kit.parts.timer_put
    later = PutMessage("T", 0, b"later")
    moment = kit.clock.time_ms() + 2_000
    assert put.put_at(later, {"TAGS": "ck"}, moment).status is PutMessageStatus.PUT_OK
    assert later.topic == "rmq_sys_wheel_timer"
    past = PutMessage("T", 0, b"past")
    assert put.put_at(past, {}, moment - 10_000).status is PutMessageStatus.PUT_OK
    assert past.topic == "T"
    never = PutMessage("T", 0, b"never")
    status = put.put_at(never, {}, moment + 1_000_000_000).status
    assert status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
    kit.run(3_000)
    assert put.delivered_before_ms() >= moment
    assert kit.parts.store.max_offset("T", 0) == 2


def test_timer_put_without_wheel_refuses_message() -> None:
    kit = Kit(timer_wheel_enable=False)
    refused = kit.send("UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x0160\x02")
    assert refused.code == 1
    assert "timerWheelEnable" in (refused.remark or "")
    assert not [each for each in kit.broker.services if each.name.startswith("Timer")]
