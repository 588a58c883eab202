"""The request that a check-back sends to a producer, and which producer gets it."""

from typing import Any

from structlog.testing import capture_logs

from rocketpy.broker.clients.client_registry import ClientChannel
from rocketpy.broker.transaction.check_back import AskProducer
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.record.message import MessageExt, decode_message
from tests.unit.broker.fakes import FakeChannel, FakeClock

HALF = MessageExt(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    queue_offset=7,
    phy_offset=900,
    store_host="10.0.0.2:10911",
    body=b"x",
    properties={"PGROUP": "p", "UNIQ_KEY": "U", "REAL_TOPIC": "T", "REAL_QID": "3"},
)


class Producers:
    def __init__(self, count: int) -> None:
        self.channels = [FakeChannel() for _ in range(count)]

    def clients(self, group: str) -> list[ClientChannel]:
        channels: list[Any] = self.channels if group == "p" else []
        return [ClientChannel(channel, "c", 0, 0, 0) for channel in channels]


def test_ask_producer_sends_half_under_its_real_topic() -> None:
    producers = Producers(1)
    AskProducer(producers, "b", FakeClock())(HALF)
    (request,) = producers.channels[0].oneway
    header = CheckTransactionStateRequestHeader.from_ext(request.ext_fields)
    assert (request.code, header.tran_state_table_offset, header.commit_log_offset) == (39, 7, 900)
    assert (header.msg_id, header.transaction_id, header.bname) == ("U", "U", "b")
    assert header.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert header.offset_msg_id == "0A00000200002A9F0000000000000384"
    told = decode_message(request.body)
    assert (told.topic, told.queue_id, told.body, told.queue_offset) == ("T", 3, b"x", 7)


def test_ask_producer_knows_whether_one_is_connected() -> None:
    producers = Producers(1)
    ask = AskProducer(producers, "b", FakeClock())
    assert ask.has_producer(HALF)
    producers.channels[0].is_open = False
    assert not ask.has_producer(HALF)
    assert not AskProducer(Producers(0), "b", FakeClock()).has_producer(HALF)


def test_ask_producer_rotates_members_and_skips_slow_ones() -> None:
    producers = Producers(3)
    ask = AskProducer(producers, "b", FakeClock())
    for _ in range(6):
        ask(HALF)
    assert [len(channel.oneway) for channel in producers.channels] == [2, 2, 2]
    producers.channels[0].is_writable = False
    producers.channels[1].is_open = False
    for _ in range(3):
        ask(HALF)
    assert [len(channel.oneway) for channel in producers.channels] == [2, 2, 5]
    producers.channels[2].is_writable = False
    ask(HALF)
    assert sum(len(channel.oneway) for channel in producers.channels) == 9


def test_ask_producer_without_members_sends_nothing() -> None:
    AskProducer(Producers(0), "b", FakeClock())(HALF)
    half = MessageExt(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"PGROUP": "p"})
    producers = Producers(1)
    AskProducer(producers, "b", FakeClock())(half)
    assert producers.channels[0].oneway == []


def test_ask_producer_without_members_logs_counts_once_a_minute() -> None:
    clock = FakeClock()
    ask = AskProducer(Producers(0), "b", clock)
    with capture_logs() as events:
        for _ in range(500):
            ask(HALF)
        clock.now_ms += 60_000
        ask(HALF)
    assert [each["count_by_group"] for each in events] == [{"p": 1}, {"p": 500}]
