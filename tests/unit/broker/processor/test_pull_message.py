"""Pull requests and their responses."""

from dataclasses import replace
from typing import Any

import pytest

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.filters.message_filters import SqlFilter
from rocketpy.broker.long_polling.suspended_requests import SuspendedRequests
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.filters import PullFilters
from rocketpy.broker.operation.pull.pull import PullOperation, SlaveReads, SuspendedPull
from rocketpy.broker.processor.pull_message import PullMessageProcessor
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.subscription import build_subscription
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.store.results import GetMessageResult, GetMessageStatus
from tests.unit.broker.fakes import (
    FakeChannel,
    FakeClock,
    FakeStats,
    FakeStore,
    MemoryFile,
    request,
)

SUSPEND, SUBSCRIPTION, COMMIT = 2, 4, 1


class Kit:
    def __init__(
        self,
        *,
        pool_threads: int = 0,
        slave_reads: SlaveReads = SlaveReads(),  # noqa: B008 - a tuple
        **config: Any,
    ) -> None:
        self.config = BrokerConfig(broker_name="b", **config)
        self.clock = FakeClock()
        self.topics = TopicTable(self.config, MemoryFile(), self.clock)
        self.topics.put(TopicConfig("T", 4, 4, 6, topic_sys_flag=1))
        self.groups = SubscriptionGroupTable(self.config, MemoryFile(), self.clock)
        self.consumers = ConsumerTable()
        self.sql = ConsumerFilters(self.config, MemoryFile(), self.clock)
        self.offsets = ConsumerOffsets(self.config, MemoryFile(), self.clock)
        self.store = FakeStore()
        self.stats = FakeStats()
        self.pool = BusinessPool("pull", pool_threads, 100, 0)
        self.suspended = SuspendedRequests("SuspendedPulls", pool=self.pool)
        self.pulls = PullOperation(
            self.store,
            topics=self.topics,
            groups=self.groups,
            filters=PullFilters(self.groups, self.consumers, self.sql, self.config),
            offsets=self.offsets,
            suspended=self.suspended,
            stats=self.stats,
            config=self.config,
            clock=self.clock,
            slave_reads=slave_reads,
        )
        self.processor = PullMessageProcessor(self.pulls)
        self.channel = FakeChannel()

    def subscribe(
        self, expression: str = "*", kind: str = "TAG", model: str = "CLUSTERING"
    ) -> None:
        client = ClientChannel(self.channel, "c", 0, 493, 0)  # type: ignore[arg-type]
        wanted = [build_subscription("T", expression, kind, sub_version=5)]
        self.sql.register("g", wanted)
        self.consumers.register(
            "g",
            client,
            wanted,
            consume_type="CONSUME_PASSIVELY",
            message_model=model,
            consume_from_where="",
        )

    def pull(
        self, code: int = 11, serialize_type: int = 0, **changes: Any
    ) -> RemotingCommand | None:
        ext = {"consumerGroup": "g", "topic": "T", "queueId": "1", "queueOffset": "0",
               "maxMsgNums": "32",
               "sysFlag": "0", "commitOffset": "9", "suspendTimeoutMillis": "15000",
               "subVersion": "5",
               **changes}  # fmt: skip
        response = self.processor.process(
            self.channel,  # type: ignore[arg-type]
            request(code, ext, serialize_type=serialize_type),
        )
        return decoded(response) if isinstance(response, bytes) else response


def decoded(frame: bytes) -> RemotingCommand:
    (command,) = CommandReader().feed(frame)
    return command


def found() -> GetMessageResult:
    buffers = [memoryview(b"record one"), memoryview(b"record two")]
    return GetMessageResult(GetMessageStatus.FOUND, 2, 0, 7, buffers, 2, 20)


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
def test_pull_message_found(serialize_type: int) -> None:
    kit = Kit()
    kit.subscribe()
    kit.store.results.append(found())
    response = kit.pull(serialize_type=serialize_type)
    assert response is not None
    assert (response.code, response.body, response.remark) == (0, b"record onerecord two", "FOUND")
    assert response.ext_fields == {
        "groupSysFlag": "0", "maxOffset": "7", "minOffset": "0", "nextBeginOffset": "2",
        "suggestWhichBrokerId": "0", "topicSysFlag": "1",
    }  # fmt: skip
    assert (response.opaque, response.serialize_type) == (42, serialize_type)
    assert ("inc_get", "g", "T", 2, 20) in kit.stats.calls
    assert kit.offsets.query_pull("g", "T", 1) == 2


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetMessageStatus.NO_MATCHED_MESSAGE, "3", 20),
        (GetMessageStatus.MESSAGE_WAS_REMOVING, "3", 20),
        (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, "0", 19),
        (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, "3", 21),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, "0", 19),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, "3", 21),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, "3", 19),
        (GetMessageStatus.OFFSET_FOUND_NULL, "3", 19),
        (GetMessageStatus.OFFSET_OVERFLOW_BADLY, "3", 21),
        (GetMessageStatus.OFFSET_TOO_SMALL, "-1", 21),
    ],
)
def test_pull_message_not_found(status: GetMessageStatus, offset: str, code: int) -> None:
    kit = Kit()
    kit.subscribe()
    kit.store.results.append(GetMessageResult(status, 3))
    response = kit.pull(queueOffset=offset)
    assert response is not None
    assert (response.code, response.remark) == (code, status.value)


def test_pull_message_is_suspended_resumed_and_answered() -> None:
    kit = Kit()
    kit.subscribe("a")
    assert kit.pull(sysFlag=str(SUSPEND | COMMIT)) is None
    assert kit.suspended.count_at(("T", 1)) == 1
    assert kit.offsets.query("g", "T", 1) == 9
    kit.offsets.commit("g", "T", 1, 4)
    kit.pulls.on_arrival("T", 1, 1, tags_code("b"))
    assert kit.channel.loop.turn() == 0
    kit.store.results.append(found())
    kit.pulls.on_arrival("T", 1, 2, tags_code("a"))
    kit.channel.loop.turn()
    assert decoded(kit.channel.sent[0]).code == 0
    assert kit.offsets.query("g", "T", 1) == 4, "the second run commits nothing"


def test_pull_message_suspended_until_deadline_is_not_found() -> None:
    kit = Kit()
    kit.subscribe()
    kit.pull(sysFlag=str(SUSPEND), suspendTimeoutMillis="999999")
    kit.suspended.step(kit.clock.now_ms + 29_999)
    assert kit.channel.sent == []
    kit.suspended.step(kit.clock.now_ms + 30_000)
    kit.channel.loop.turn()
    assert decoded(kit.channel.sent[0]).code == 19


def test_pull_message_short_polling_and_full_table() -> None:
    kit = Kit(long_polling_enable=False)
    kit.subscribe()
    assert kit.pull(sysFlag=str(SUSPEND)) is None
    kit.suspended.step(kit.clock.now_ms + 1_000)
    kit.channel.loop.turn()
    assert decoded(kit.channel.sent[0]).code == 19
    kit.pulls.configure(replace(kit.config, max_held_pulls=0))
    response = kit.pull(sysFlag=str(SUSPEND))
    assert response is not None
    assert response.code == 19


def test_pull_message_reset_is_delivered_once_before_commits() -> None:
    kit = Kit()
    kit.subscribe()
    kit.offsets.assign_reset("g", "T", 1, 77)
    response = kit.pull()
    assert response is not None
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (21, "77")
    assert kit.store.reads == []
    kit.pull()
    assert len(kit.store.reads) == 1


def sql(condition: str) -> dict[str, Any]:
    return {"sysFlag": "4", "expressionType": "SQL92", "subscription": condition}


def refusals() -> list[Any]:
    return [
        ("not readable", {"broker_permission": 2}, {}, {}, 16, "1"),
        ("lite off", {"lite_pull_message_enable": False}, {}, {"code": 361}, 16, "1"),
        ("group", {"auto_create_subscription_group": False}, {}, {"consumerGroup": "h"}, 26, None),
        ("bad group", {}, {}, {"consumerGroup": "a/b"}, 26, None),
        ("group off", {}, {"consume_enable": False}, {}, 16, "2"),
        ("topic", {}, {}, {"topic": "a/../b"}, 17, None),
        ("topic perm", {}, {}, {"topic": "W"}, 16, "3"),
        ("queue", {}, {}, {"queueId": "4"}, 29, None),
        ("queue -1", {}, {}, {"queueId": "-1"}, 29, None),
        ("batch cq", {}, {}, {"topic": "B"}, 1, None),
        ("no members", {}, {}, {"consumerGroup": "h"}, 24, None),
        ("not subscribed", {}, {}, {"topic": "U"}, 24, None),
        ("too new", {}, {}, {"subVersion": "6"}, 25, None),
        ("sql off", {"enable_property_filter": False}, {}, sql("a > 1"), 1, None),
        ("sql", {}, {}, sql("a >"), 23, None),
        ("other", {}, {}, {**sql("a > 1"), "expressionType": "SQL99"}, 1, None),
        ("no tag", {}, {}, {"sysFlag": "4", "subscription": " || "}, 23, None),
    ]


@pytest.mark.parametrize(
    ("name", "config", "group", "changes", "code", "kind"), refusals(), ids=lambda v: None
)
def test_pull_message_invalid_request_is_refused(
    name: str, config: Any, group: Any, changes: dict[str, Any], code: int, kind: str | None
) -> None:
    kit = Kit(**config)
    kit.groups.put(SubscriptionGroupConfig("g", **group))
    kit.topics.put(TopicConfig("W", 4, 4, 2))
    kit.topics.put(TopicConfig("U", 4, 4, 6))
    kit.topics.put(TopicConfig("B", 4, 4, 6, attributes={"queue.type": "BatchCQ"}))
    kit.subscribe()
    response = kit.pull(**changes)
    assert response is not None, name
    assert (response.code, response.ext_fields.get("forbiddenType")) == (code, kind)
    assert response.remark


def test_pull_message_broadcast_or_forbidden_is_refused() -> None:
    kit = Kit()
    kit.groups.put(SubscriptionGroupConfig("g", consume_broadcast_enable=False))
    kit.subscribe(model="BROADCASTING")
    response = kit.pull()
    assert response is not None
    assert (response.code, response.ext_fields) == (16, {"forbiddenType": "4"})
    kit.groups.put(SubscriptionGroupConfig("g"))
    kit.groups.set_forbidden("g", "T", True)
    response = kit.pull()
    assert response is not None
    assert (response.code, response.ext_fields) == (16, {"forbiddenType": "5"})


def test_pull_message_heartbeat_condition_filters() -> None:
    kit = Kit()
    kit.subscribe("a > 1", "SQL92")
    kit.store.results.append(found())
    response = kit.pull()
    assert response is not None
    assert response.code == 0
    (*_, used) = kit.store.reads[-1]
    assert isinstance(used, SqlFilter)
    assert used.condition.expression == "a > 1"


@pytest.mark.parametrize(
    ("expression", "version", "enabled", "code", "remark"),
    [
        ("a >", "5", True, 27, "at character 4"),
        ("a > 1", "6", True, 25, "not latest"),
        ("a > 1", "5", False, 1, "SQL92"),
    ],
)
def test_pull_message_unusable_heartbeat_condition_is_refused(
    expression: str, version: str, enabled: bool, code: int, remark: str
) -> None:
    kit = Kit(enable_property_filter=enabled)
    kit.subscribe(expression, "SQL92")
    response = kit.pull(subVersion=version)
    assert response is not None
    assert response.code == code
    assert remark in (response.remark or "")


def test_pull_message_filter_from_request_or_heartbeat() -> None:
    kit = Kit()
    kit.subscribe("a || b")
    kit.pull()
    kit.pull(sysFlag=str(SUBSCRIPTION), subscription="c")
    kit.pull(sysFlag=str(SUBSCRIPTION), subscription="*")
    kit.pull(sysFlag=str(SUBSCRIPTION))
    first, second, third, fourth = (args[5] for args in kit.store.reads)
    assert first.matches_tags_code(tags_code("a"))
    assert not first.matches_tags_code(tags_code("c"))
    assert second.matches_tags_code(tags_code("c"))
    assert third is None
    assert fourth is None


def test_pull_message_wrong_field_is_named() -> None:
    kit = Kit()
    for name, text in (
        ("queueId", "x"),
        ("queueOffset", str(1 << 63)),
        ("maxMsgNums", str(1 << 31)),
        ("sysFlag", str(1 << 31)),
        ("subVersion", "9" * 5_000),
        ("suspendTimeoutMillis", ""),
    ):
        with pytest.raises(HeaderFieldError, match=name):
            kit.pull(11, 0, **{name: text})
    with pytest.raises(HeaderFieldError, match="consumerGroup"):
        kit.processor.process(kit.channel, request(11, {"topic": "T"}))  # type: ignore[arg-type]


def test_pull_message_count_minus_one_is_one() -> None:
    kit = Kit()
    kit.subscribe()
    kit.pull(maxMsgNums="-1")
    assert kit.store.reads[0][3] == 1


def test_pull_message_error_after_resume_is_answered() -> None:
    kit = Kit()
    kit.subscribe()
    kit.pull(sysFlag=str(SUSPEND))

    def broken(*_args: Any, **_named: Any) -> GetMessageResult:
        raise OSError("bad disk")

    kit.store.get_message = broken  # type: ignore[method-assign]
    kit.pulls.on_arrival("T", 1, 1, 0)
    kit.channel.loop.turn()
    response = decoded(kit.channel.sent[0])
    assert (response.code, response.remark) == (1, "OSError: bad disk")


def test_pull_message_type_without_expression_is_dropped() -> None:
    kit = Kit()
    kit.subscribe()
    long = "x" * 100_000
    assert kit.pull(sysFlag=str(SUSPEND), expressionType=long) is None
    (entry,) = kit.suspended._by_owner[kit.channel].entries
    assert isinstance(entry, SuspendedPull)
    assert entry.wanted.expression_type is None
    assert all(long not in key for key in kit.pulls.checks.standing().allowed)


def test_pull_message_with_reset_commits_nothing() -> None:
    kit = Kit()
    kit.subscribe()
    kit.offsets.commit("g", "T", 1, 5)
    kit.offsets.assign_reset("g", "T", 1, 2)
    response = kit.pull(sysFlag=str(COMMIT))
    assert response is not None
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (21, "2")
    assert kit.offsets.query("g", "T", 1) == 2
    kit.pull(sysFlag=str(COMMIT))
    assert kit.offsets.query("g", "T", 1) == 9


def test_pull_message_undelivered_reset_is_dropped() -> None:
    kit = Kit(use_server_side_reset_offset=False)
    kit.subscribe()
    kit.offsets.assign_reset("g", "T", 1, 2)
    kit.store.results.append(found())
    response = kit.pull(sysFlag=str(COMMIT))
    assert response is not None
    assert response.code == 0
    assert kit.offsets.query("g", "T", 1) == 9
    assert not kit.offsets.resets.count


def at(phy_offset: int) -> GetMessageResult:
    record = bytearray(100)
    record[28:36] = phy_offset.to_bytes(8, "big")
    return GetMessageResult(GetMessageStatus.FOUND, 1, 0, 7, [memoryview(record)], 1, 100)


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize(
    ("phy_offset", "is_slave", "may_read", "suggested"),
    [
        (10, False, True, "1"),
        (950, False, True, "0"),
        (600, False, True, "0"),  # the slave is away, or has not received it
        (10, False, False, "0"),
        (10, True, True, "0"),
    ],
)
def test_pull_message_reader_that_is_far_behind_is_sent_to_a_slave(
    phy_offset: int, is_slave: bool, may_read: bool, suggested: str, serialize_type: int
) -> None:
    reads = SlaveReads(is_slave, 100, lambda broker_id, end: broker_id == 1 and end < 500)
    kit = Kit(slave_reads=reads, slave_read_enable=may_read)
    kit.subscribe()
    kit.store.max_phy_offset = 1_000
    kit.store.results.append(at(phy_offset))
    response = kit.pull(serialize_type=serialize_type)
    assert response is not None
    assert (response.code, len(response.body)) == (0, 100)
    assert response.ext_fields["suggestWhichBrokerId"] == suggested


def test_pull_message_group_names_the_brokers_that_are_suggested() -> None:
    kit = Kit(slave_reads=SlaveReads(False, 100, lambda *_: True), slave_read_enable=True)
    kit.subscribe()
    kit.groups.put(SubscriptionGroupConfig("g", broker_id=3, which_broker_when_consume_slowly=2))
    kit.store.max_phy_offset = 1_000
    kit.store.results += [at(10), at(990)]
    found = [kit.pull() for _ in range(2)]
    assert [each.ext_fields["suggestWhichBrokerId"] for each in found if each] == ["2", "3"]


OUTSIDE = [
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
]


@pytest.mark.parametrize("status", OUTSIDE)
def test_pull_message_beyond_a_slave_waits_for_its_log(status: GetMessageStatus) -> None:
    kit = Kit(slave_reads=SlaveReads(True), slave_read_enable=True)
    kit.subscribe()
    kit.store.results += [GetMessageResult(status, 3, 0, 3), found()]
    assert kit.pull(queueOffset="50", sysFlag=str(SUSPEND)) is None
    assert kit.suspended.count == 1
    kit.pulls.on_arrival("T", 1, 4, 0)
    assert kit.suspended.count == 1, "the slave still lags"
    kit.pulls.on_arrival("T", 1, 51, 0)
    kit.channel.loop.turn()
    assert kit.suspended.count == 0


@pytest.mark.parametrize("status", OUTSIDE)
def test_pull_message_beyond_a_slave_keeps_its_offset(status: GetMessageStatus) -> None:
    kit = Kit(slave_reads=SlaveReads(True), slave_read_enable=True)
    kit.subscribe()
    kit.store.results.append(GetMessageResult(status, 3, 0, 3))
    response = kit.pull(queueOffset="50")
    assert response is not None
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (19, "50")
    kit = Kit(slave_reads=SlaveReads(True), slave_read_enable=True, offset_check_in_slave=True)
    kit.subscribe()
    kit.store.results.append(GetMessageResult(status, 3, 0, 3))
    response = kit.pull(queueOffset="50")
    assert response is not None
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (21, "3")
