"""Cached pull plans become invalid with any change that they depend on."""

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.broker.fast_path.pull_service import FastPullService, PullPlan
from rocketpy.broker.replication.feature import Replication
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.subscription import build_subscription
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from tests.unit.broker.processor.frames import frame
from tests.unit.broker.processor.plain_pull_kit import (
    QUEUES,
    SUB_VERSION,
    TOPIC,
    assert_same_pulls,
    heartbeat,
    pulled_both_ways,
)

needs_compiled = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = heartbeat()
GROUP = "all"
MODEL, FORBIDDEN = "CLUSTERING", ResponseCode.NO_PERMISSION


def pull(number: int, queue_offset: int = 0, **fields: str) -> bytes:
    ext = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "1",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "4",
        "sysFlag": "1",
        "commitOffset": str(queue_offset),
        "suspendTimeoutMillis": "0",
        "subVersion": str(SUB_VERSION),
        "expressionType": "TAG",
    }
    return frame(11, ext | fields, b"", number)


def topic(**fields: str) -> bytes:
    nums = str(QUEUES)
    ext = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": nums}
    ext |= {"writeQueueNums": nums, "perm": "6", "topicFilterType": "SINGLE_TAG"}
    return frame(17, ext | {"topicSysFlag": "0", "order": "false"} | fields, b"", 900)


def group(**fields: object) -> bytes:
    config = SubscriptionGroupConfig(GROUP, **fields)  # type: ignore[arg-type]
    return frame(200, {}, config.encode(), 900)


def member(expression: str, version: int, model: str = MODEL) -> bytes:
    subscription = build_subscription(TOPIC, expression, "TAG", sub_version=version)
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=[subscription],
    )
    body = HeartbeatData(client_id="another", consumer_data_set=[consumer]).encode()
    return frame(34, {}, body, 900)


def settings(text: str) -> bytes:
    return frame(25, {}, text.encode(), 900)


def reset() -> bytes:
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true", "offset": "3"}
    return frame(222, ext | {"queueId": "1"}, b"", 900)


def answers(responses: bytes) -> list[RemotingCommand]:
    found = [each for each in CommandReader().feed(responses) if each.is_response]
    return [each for each in found if 0 < each.opaque < 900]


def forbid(readable: str) -> bytes:
    return frame(353, {"group": GROUP, "topic": TOPIC, "readable": readable}, b"", 900)


CHANGES = {
    "topic not to be read": ([topic(perm="2")], FORBIDDEN),
    "fewer queues": ([topic(readQueueNums="1")], ResponseCode.INVALID_PARAMETER),
    "other flag of the topic": ([topic(topicSysFlag="5")], 0),
    "no topic": ([frame(215, {"topic": TOPIC}, b"", 900)], ResponseCode.TOPIC_NOT_EXIST),
    "group not to consume": ([group(consume_enable=False)], FORBIDDEN),
    "other flag of the group": ([group(group_sys_flag=3)], 0),
    "group and topic forbidden": ([forbid("false")], FORBIDDEN),
    "forbidden and allowed": ([forbid("false"), forbid("true")], 0),
    "no group": (
        [frame(207, {"groupName": GROUP}, b"", 900)],
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ),
    "other tags": ([member("blue", SUB_VERSION + 1)], 0),
    "older subscription": ([member("blue", SUB_VERSION - 1)], 0),
    "broadcast": (
        [group(consume_broadcast_enable=False), member("*", SUB_VERSION, "BROADCASTING")],
        FORBIDDEN,
    ),
    "broker not to be read": ([settings("brokerPermission=2\n")], FORBIDDEN),
    "a reset": ([reset()], ResponseCode.PULL_OFFSET_MOVED),
}


@needs_compiled
@pytest.mark.parametrize("name", CHANGES)
def test_pull_plan_change_between_pulls_invalidates_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The pulls before it, and those behind it that are still allowed, are compiled ones."""
    change, code = CHANGES[name]
    pulls = [pull(n + 1, n) for n in range(6)]
    segments = [[FIRST, *pulls], [pulls[0], *change], pulls]
    properties = {"useServerSideResetOffset": "true", "autoCreateSubscriptionGroup": "false"}
    if name != "no group":
        properties["autoCreateSubscriptionGroup"] = "true"
    else:
        segments[0].insert(0, group())
    pure, compiled = pulled_both_ways(monkeypatch, segments, properties)
    assert_same_pulls(pure, compiled)
    before, _, after = (answers(responses) for responses in compiled.responses)
    assert [answer.code for answer in before] == [0] * 6
    codes = [answer.code for answer in after]
    allowed = name == "a reset" or code == 0
    assert codes == ([int(code)] + [0] * 5 if name == "a reset" else [int(code)] * 6)
    assert compiled.served_bytes == sum(map(len, pulls)) + allowed * sum(map(len, pulls[1:]))
    if name == "other tags":
        tags = {m.properties.get("TAGS") for a in after for m in decode_messages(a.body)}
        assert tags == {"blue"}


@needs_compiled
def test_pull_plan_that_suggests_another_broker_takes_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replication, "slave_has", lambda *_: True)
    pulls = [pull(n + 1, n) for n in range(6)]
    change = [settings("slaveReadEnable=true\n"), group(broker_id=3)]
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls], [pulls[0], *change], pulls])
    assert_same_pulls(pure, compiled)
    before, _, after = (answers(responses) for responses in compiled.responses)
    assert {each.ext_fields["suggestWhichBrokerId"] for each in before} == {"0"}
    assert {each.ext_fields["suggestWhichBrokerId"] for each in after} == {"3"}
    assert [each.code for each in after] == [0] * 6
    assert compiled.served_bytes == sum(map(len, pulls))


@needs_compiled
def test_pull_plan_group_without_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = [pull(n + 1, n) for n in range(6)]
    leave = frame(35, {"clientID": "client", "consumerGroup": GROUP}, b"", 900)
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls, leave], pulls])
    assert_same_pulls(pure, compiled)
    codes = [answer.code for answer in answers(compiled.responses[1])]
    assert codes == [ResponseCode.SUBSCRIPTION_NOT_EXIST] * 6


@needs_compiled
def test_pull_plan_recreated_topic_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is another one: nothing of the old one is read."""
    pulls = [pull(n + 1, n) for n in range(6)]
    change = [frame(215, {"topic": TOPIC}, b"", 900), topic()]
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls], [pulls[0], *change], pulls])
    assert_same_pulls(pure, compiled)
    before, _, after = (answers(responses) for responses in compiled.responses)
    assert all(answer.body for answer in before)
    assert len(after) == 6
    assert not any(answer.body for answer in after)


@needs_compiled
def test_pull_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks for another number of messages, and so is another one; long ones are not known."""
    counts = [*range(1, 800), *range(1, 800)]
    pulls = [
        pull(n % 800, n % 20, maxMsgNums=str(count), subVersion=str(n % 3))
        for n, count in enumerate(counts)
    ]
    long = [pull(n, n, sysFlag="4", subscription="red ||" * 90 + "blue") for n in range(5)]
    frames = pulls + long
    reads = [b"".join(frames[at : at + 50]) for at in range(0, len(frames), 50)]
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *reads]])
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes == sum(map(len, frames))


@needs_compiled
@pytest.mark.parametrize(
    ("kind", "expression"),
    [("SQL92", " OR ".join(f"a = {n}" for n in range(200))), ("TAG", "||".join("abcdefghi"))],
)
def test_pull_plan_keeps_no_large_objects(
    monkeypatch: pytest.MonkeyPatch, kind: str, expression: str
) -> None:
    """A thousand of them would keep as many conditions that their groups have replaced."""
    found: list[PullPlan] = []
    know = FastPullService.know

    def noted(self: FastPullService, *fields: object) -> PullPlan:
        found.append(know(self, *fields))  # type: ignore[arg-type] # as they came
        return found[-1]

    monkeypatch.setattr(FastPullService, "know", noted)
    beyond = 1_000_000
    pulls = [
        pull(number, offset, sysFlag="4", subscription=expression, expressionType=kind)
        for number, offset in enumerate((0, 1, beyond), 1)
    ]
    short = [pull(5, 0, sysFlag="4", subscription="a > 1", expressionType="SQL92")]
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls, *short]])
    assert_same_pulls(pure, compiled)
    assert len(found) >= 2
    assert {(one.condition, one.codes) for one in found} == {(None, None)}
