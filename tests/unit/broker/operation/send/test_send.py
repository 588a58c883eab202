"""Sends as an operation on values: what is stored, and when the sender is answered."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.admission import SendAdmission
from rocketpy.broker.operation.send.put_transforms import PutTransform
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.property_templates import summary_of
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import BatchItem, encode_batch
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.store.results import BatchColumns, BatchEntry, PutMessage, PutMessageResult
from tests.unit.broker.fakes import FakeClock, FakeStore, MemoryFile

UNIQ = "AC1100010001000000000000000000FF"
PLAIN = encode_properties({"UNIQ_KEY": UNIQ, "WAIT": "true"})
HOST = b"\x7f\0\0\1\0\0\0\1"


class FailingFile(MemoryFile):
    failure: Exception | None = None

    def save(self, value: object) -> None:
        if self.failure is not None:
            raise self.failure
        super().save(value)


class Kit:
    def __init__(self, *transforms: PutTransform, answers_wait: bool = False) -> None:
        config = BrokerConfig(broker_name="b", broker_cluster_name="C")
        clock = FakeClock()
        self.file = FailingFile()
        self.topics = TopicTable(config, self.file, clock)
        self.topics.put(TopicConfig("T", 4, 4))
        self.store = FakeStore()
        self.admission = SendAdmission(self.topics, config, clock, max_body_bytes=1000)
        self.topics.on_change = self.admission.forget
        self.announcing: list[Callable[[], None]] = []
        self.counted: list[tuple[str, int, int]] = []
        self.operation = SendOperation(
            self.store,
            self.admission,
            transforms,
            lambda *one: self.counted.append(one),
            config=config,
            answers_wait=answers_wait,
            when_announced=self.announcing.append,
            clock=clock,
            rng=random.Random(1),
        )

    def send(self, topic: str = "T", properties: bytes = PLAIN, **more: Any) -> Sent | Refusal:
        request = SendRequest(
            topic, 0, b"x", properties, HOST, "127.0.0.1:1", 0, 0, 5,
            template="TBW102", template_queue_nums=4,
        )  # fmt: skip
        return self.operation.send(request._replace(**more))

    def send_plain(self, queue_id: int = 0, properties: bytes = PLAIN) -> Sent | Refusal | None:
        request = SendRequest("T", queue_id, b"x", properties, HOST, "127.0.0.1:1", 0, 0, 5)
        return self.operation.send_plain(self.operation.known["T"], request)

    def settle(self, sent: Sent | Refusal) -> list[Refusal | None]:
        assert isinstance(sent, Sent)
        told: list[Refusal | None] = []
        self.operation.when_settled(sent, told.append)
        return told


def test_send_fast_and_general_path_store_same_message() -> None:
    kit = Kit()
    assert isinstance(kit.send(), Sent)
    assert isinstance(kit.send_plain(), Sent)
    long_way, short_way = kit.store.puts
    assert long_way == short_way
    assert kit.counted == [("T", 1, 200)] * 2


def test_send_fast_path_rejects_ineligible_message() -> None:
    kit = Kit()
    kit.send()
    kit.store.puts.clear()
    assert kit.send_plain(queue_id=4) is None
    assert kit.send_plain(queue_id=-1) is None
    assert kit.send_plain(properties=b"A\x01b\x02") is None
    assert kit.send_plain(properties=PLAIN + b"TIMER_DELAY_SEC\x013\x02") is None
    assert kit.send_plain(properties=PLAIN + b"A\x01" + b"x" * 33_000 + b"\x02") is None
    assert kit.store.puts == []


def test_send_plain_message_skips_transforms() -> None:
    passed: list[str] = []

    def first(message: PutMessage, properties: Any, request: SendRequest) -> Refusal | None:
        passed.append(f"first {message.topic} {properties['DELAY']} {request.topic}")
        message.topic, message.queue_id = "SCHEDULE_TOPIC_XXXX", 7
        return None

    def second(message: PutMessage, _properties: Any, _request: SendRequest) -> Refusal | None:
        passed.append(f"second {message.topic}")
        return Refusal(13, "no") if message.flag else None

    kit = Kit(first, second)
    kit.send()
    kit.send_plain()
    assert passed == []
    sent = kit.send(properties=PLAIN + b"DELAY\x013\x02")
    assert passed == ["first T 3 T", "second SCHEDULE_TOPIC_XXXX"]
    assert isinstance(sent, Sent)
    assert (sent.queue_id, kit.store.puts[-1].topic) == (0, "SCHEDULE_TOPIC_XXXX")
    assert kit.send(properties=PLAIN + b"DELAY\x013\x02", flag=1) == Refusal(13, "no")
    assert len(kit.store.puts) == 3


def test_send_racing_topic_deletion_is_refused() -> None:
    kit = Kit()
    kit.send()
    put = kit.store.put_message

    def put_late(message: PutMessage) -> PutMessageResult:
        kit.topics.delete("T")
        return put(message)

    kit.operation._put = put_late
    refused = kit.send_plain()
    assert isinstance(refused, Refusal)
    assert refused.code == 17
    assert kit.store.deleted == ["T"], "the queue that the put made goes too"
    assert kit.counted == [("T", 1, 200)]


def test_send_batch_racing_topic_deletion_is_refused() -> None:
    kit = Kit()
    kit.send()
    put = kit.store.put_batch

    def put_late(batch: Any) -> PutMessageResult:
        kit.topics.delete("T")
        return put(batch)

    kit.store.put_batch = put_late  # type: ignore[method-assign]
    refused = kit.send(is_batch=True, body=encode_batch([BatchItem(0, b"x", PLAIN)]))
    assert isinstance(refused, Refusal)
    assert refused.code == 17
    assert kit.store.deleted == ["T"]


def test_send_topic_recreated_meanwhile_succeeds() -> None:
    kit = Kit()
    kit.send()
    put = kit.store.put_message

    def put_late(message: PutMessage) -> PutMessageResult:
        kit.topics.delete("T")
        kit.topics.put(TopicConfig("T", 4, 4))
        return put(message)

    kit.operation._put = put_late
    assert isinstance(kit.send_plain(), Sent)


def test_send_first_message_waits_for_announcement() -> None:
    kit = Kit()
    sent = kit.send("New")
    told = kit.settle(sent)
    assert told == []
    kit.announcing[0]()
    assert told == [None]
    again = kit.send("New")
    assert isinstance(again, Sent)
    assert not again.new_topic
    assert again.durable_at == 0


def test_send_sync_flush_first_message_waits_for_both() -> None:
    for announced_first in (True, False):
        kit = Kit(answers_wait=True)
        told = kit.settle(kit.send("New"))
        ((_, durable),) = kit.store.waiting
        (announced,) = kit.announcing
        steps: list[Callable[[], None]] = [announced, lambda durable=durable: durable(True)]  # type: ignore[misc]
        for step in steps if announced_first else reversed(steps):
            assert told == []
            step()
        assert told == [None]


def test_send_failed_flush_is_reported_to_first_sender() -> None:
    kit = Kit(answers_wait=True)
    told = kit.settle(kit.send("New"))
    kit.store.waiting[0][1](False)
    kit.announcing[0]()
    assert [one.code for one in told if one] == [10]


@pytest.mark.parametrize("is_new", [True, False])
def test_send_unconfirmed_by_slaves_has_unknown_outcome(is_new: bool) -> None:
    """It wins over the flush: whether the message is on disk here does not decide its fate."""
    kit = Kit(answers_wait=True)
    kit.store.confirmed = 0
    told = kit.settle(kit.send("New" if is_new else "Topic"))
    kit.store.waiting[0][1](False)
    for announced in kit.announcing:
        announced()
    (refusal,) = told
    assert refusal is not None
    assert refusal.code == 12
    assert refusal.remark.startswith("outcome unknown: the message is stored on the master")


def test_send_pending_flush_keeps_no_message() -> None:
    kit = Kit(answers_wait=True)
    body = b"a body that must not be kept" * 10
    kit.settle(kit.send(body=body))
    kit.store.puts.clear()
    (_, callback) = kit.store.waiting[0]
    assert body not in _reachable(callback)


def _reachable(function: Any) -> list[Any]:
    """Return the objects that a closure references."""
    found: list[Any] = []
    for cell in getattr(function, "__closure__", None) or ():
        found.append(cell.cell_contents)
        if isinstance(cell.cell_contents, tuple):
            found += cell.cell_contents
    return found


def random_items(rng: random.Random) -> list[BatchItem]:
    """Messages of one shape, of one with different lengths, or of several."""
    kind = rng.randrange(4)
    own = rng.choice([{}, {"TAGS": "a"}, {"color": "red"}, {"KEYS": "k"}, {"DELAY": "0"}])
    items = []
    for number in range(rng.randrange(1, 12)):
        properties = {"UNIQ_KEY": f"AC11{rng.randrange(1 << 40):08X}", "WAIT": "true"} | own
        if kind == 3 and rng.random() < 0.3:
            properties |= {"TAGS": f"t{number % 2}"}
        if kind == 3 and rng.random() < 0.2:
            properties["UNIQ_KEY"] = rng.choice(["", "with blank", "\u00fc", "x"])
        if kind == 3 and rng.random() < 0.1:
            del properties["UNIQ_KEY"]
        names = list(properties)
        if kind == 2:
            rng.shuffle(names)
        stored = encode_properties({name: properties[name] for name in names})
        body = rng.randbytes(8 if kind == 0 else rng.randrange(12))
        items.append(BatchItem(number if kind == 3 else 0, body, stored))
    return items


def one_by_one(items: list[BatchItem]) -> BatchColumns:
    """Return the batch with every message parsed separately."""
    entries = []
    for item in items:
        properties = parse_properties(item.properties)
        shape = summary_of(properties)
        entries.append(
            BatchEntry(
                item.body,
                item.properties,
                item.flag,
                shape.tags_code,
                properties.get("UNIQ_KEY"),
                properties.get("KEYS"),
                properties.get("TAGS"),
            )
        )
    return BatchColumns.of(entries)


def test_send_batch_by_columns_equals_single_messages() -> None:
    kit = Kit()
    rng = random.Random(7)
    for _ in range(400):
        items = random_items(rng)
        sent = kit.send(body=encode_batch(items), is_batch=True)
        assert isinstance(sent, Sent), sent
        made, wanted = kit.store.batches.pop().messages, one_by_one(items)
        for name in BatchEntry._fields:
            column = {"body": "bodies", "uniq_key": "uniq_keys", "flag": "flags"}.get(name, name)
            column = {"tags_code": "tags_codes"}.get(column, column)
            assert list(getattr(made, column)) == list(getattr(wanted, column)), column


def test_send_batch_with_special_message_is_refused() -> None:
    kit = Kit()
    late = [
        BatchItem(0, b"x", encode_properties({"UNIQ_KEY": f"A{n}", "DELAY": "3"})) for n in "ab"
    ]
    refused = kit.send(body=encode_batch(late), is_batch=True)
    assert isinstance(refused, Refusal)
    assert kit.store.batches == []


def test_send_first_message_waits_for_table() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    told = [kit.settle(kit.send("New")) for _ in range(2)]
    assert len(kit.store.puts) == 2, "they are stored at once"
    assert "New" not in kit.operation.known
    assert (told, kit.announcing) == ([[], []], [])
    kit.topics.write()
    assert told == [[], []]
    while kit.announcing:
        kit.announcing.pop()()
    assert told == [[None], [None]]
    kit.send("New")
    assert "New" in kit.operation.known


def test_send_topic_not_written_is_refused_until_written() -> None:
    kit = Kit()
    woken: list[int] = []
    kit.topics.use_writer(lambda: woken.append(1))
    kit.file.failure = DiskFullError("no space")
    told = kit.settle(kit.send("New"))
    kit.topics.write()
    (refused,) = told
    assert refused is not None
    assert (refused.code, "no space" in refused.remark) == (14, True)
    assert (kit.announcing, kit.topics.get("New")) == ([], None)
    assert len(kit.store.puts) == 1
    for _ in range(2):
        again = kit.send("New")
        assert isinstance(again, Refusal)
        assert (again.code, "no space" in again.remark) == (14, True)
    assert len(kit.store.puts) == 1, "nothing more was stored for it"
    assert isinstance(kit.send("T"), Sent), "others are as they were"
    kit.file.failure = None
    woken.clear()
    told = kit.settle(kit.send("New"))
    assert woken, "a file that can be written again is the writer's"
    kit.topics.write()
    kit.announcing.pop()()
    assert told == [None]


def test_send_first_dead_letter_waits_for_its_topic() -> None:
    def bury(message: PutMessage, _properties: Any, _request: SendRequest) -> None:
        kit.topics.create_on_send_back("%DLQ%g", 1)
        message.topic, message.queue_id = "%DLQ%g", 0

    kit = Kit(bury)
    kit.send()
    kit.topics.use_writer(lambda: None)
    told = kit.settle(kit.send(properties=PLAIN + b"DELAY\x013\x02"))
    assert kit.announcing == []
    kit.topics.write()
    kit.announcing.pop()()
    assert told == [None]
    sent = kit.send(properties=PLAIN + b"DELAY\x013\x02")
    assert isinstance(sent, Sent)
    assert not sent.new_topic


@pytest.mark.parametrize("works_again", [False, True])
def test_send_topic_undone_before_response_is_refused(works_again: bool) -> None:
    """The writer's thread may fail between a message is stored and what becomes of its topic."""
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    kit.file.failure = DiskFullError("no space")
    sent = kit.send("New")
    kit.topics.write()
    if works_again:
        kit.file.failure = None
        kit.topics.put(TopicConfig("Other", 1, 1))
    (refused,) = kit.settle(sent)
    assert refused is not None
    assert refused.code == 14
    assert kit.announcing == []


def test_send_topic_deleted_before_written_is_refused() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    told = kit.settle(kit.send("New"))
    kit.topics.delete("New")
    (refused,) = told
    assert refused is not None
    assert refused.code == 14
    assert kit.topics.get("New") is None


def test_send_changed_topic_on_disk_is_not_delayed() -> None:
    """An operator's change of it is not what its senders wait for."""
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    kit.send()
    busy = kit.file.save

    def save(value: object) -> None:
        assert kit.settle(kit.send()) == []
        kit.announcing.pop()()
        assert "T" in kit.operation.known
        busy(value)

    kit.file.save = save  # type: ignore[method-assign]
    kit.topics.put(TopicConfig("T", 8, 8))
    assert kit.operation.known["T"].queue_limit == 8


def test_send_new_topic_keeps_order_of_batch_and_singles() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    batch = encode_batch([BatchItem(0, b"1", PLAIN)])
    outcomes = [
        kit.send("New", body=b"0"),
        kit.send("New", body=batch, is_batch=True),
        kit.send("New", body=b"2"),
    ]
    assert [sent.new_topic for sent in outcomes if isinstance(sent, Sent)] == ["New"] * 3
    told = [kit.settle(sent) for sent in outcomes]
    kit.topics.write()
    for announced in kit.announcing:
        announced()
    assert told == [[None]] * 3


def test_send_does_not_recreate_topic_during_deletion() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    with kit.topics.deleting(["T"]):
        assert isinstance(kit.send("T"), Sent), "before it is deleted"
        kit.topics.delete("T")
        refused = kit.send("T")
        assert isinstance(refused, Refusal)
        assert (refused.code, "being deleted" in refused.remark) == (14, True)
    assert isinstance(kit.send("T"), Sent)


def test_send_undone_dead_letter_topic_keeps_its_queue() -> None:
    def bury(message: PutMessage, _properties: Any, _request: SendRequest) -> None:
        kit.topics.create_on_send_back("%DLQ%g", 1)
        message.topic, message.queue_id = "%DLQ%g", 0
        kit.topics.write()

    kit = Kit(bury)
    kit.send()
    kit.topics.use_writer(lambda: None)
    kit.file.failure = DiskFullError("no space")
    refused = kit.send(properties=PLAIN + b"DELAY\x013\x02")
    assert isinstance(refused, Refusal)
    assert refused.code == 14
    assert kit.store.deleted == []


def test_send_undone_topic_keeps_its_queue() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    kit.file.failure = DiskFullError("no space")
    put = kit.store.put_message

    def put_late(message: PutMessage) -> PutMessageResult:
        kit.topics.write()
        return put(message)

    kit.operation._put = put_late
    refused = kit.send("New")
    assert isinstance(refused, Refusal)
    assert refused.code == 14
    assert kit.store.deleted == [], "there may be messages of a table that was lost"
