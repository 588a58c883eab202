"""Common rules of JSON bodies: defaults, tolerance, wrong values, order."""

import pytest

from rocketpy.errors import BadBodyError
from rocketpy.proto import bodies
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.lock import (
    LockBatchRequestBody,
    QueryAssignmentResponseBody,
)
from rocketpy.proto.bodies.stats import ConsumeStats
from rocketpy.proto.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.json_body import Body, body
from tests.unit.proto.declared import declared


def test_absent_null_and_unknown_keys():
    config = SubscriptionGroupConfig.decode(b'{"groupName":"g","brokerId":null,"x":[1]}')
    assert config == SubscriptionGroupConfig("g")
    assert (config.retry_max_times, config.retry_queue_nums) == (16, 1)
    assert QueryAssignmentResponseBody.decode(b"{}").message_queue_assignments is None
    empty = QueryAssignmentResponseBody.decode(b'{"messageQueueAssignments":[]}')
    assert empty.message_queue_assignments == []


def test_defaults_are_not_shared():
    one = TopicConfigSerializeWrapper()
    one.topic_config_table["T"] = TopicConfig("T")
    assert TopicConfigSerializeWrapper().topic_config_table == {}


@pytest.mark.parametrize(
    "text",
    [
        b'{"perm":"x"}',
        b'{"perm":true}',
        b'{"perm":1.5}',
        b'{"perm":[]}',
        b'{"topicName":[]}',
        b'{"order":[]}',
        b'{"attributes":[]}',
    ],
)
def test_wrong_values_name_their_key(text):
    with pytest.raises(BadBodyError, match=r"TopicConfig\.\w+: "):
        TopicConfig.decode(text)


def test_values_in_other_clothes():
    config = TopicConfig.decode(
        b'{"perm":"6","order":"TRUE","topicName":5,"readQueueNums":4.0,"attributes":{"a":true}}'
    )
    assert (config.perm, config.order, config.topic_name) == (6, True, "5")
    assert (config.read_queue_nums, config.attributes) == (4, {"a": "true"})
    assert TopicConfig.decode(b'{"order":1}').order is True
    assert ConsumeStats.decode(b'{"consumeTps":2}').consume_tps == 2.0


def test_sets_are_written_in_order():
    queues = {MessageQueue("T", "b", n) for n in (3, 1, 2)}
    request = LockBatchRequestBody("g", "c", mq_set=queues)
    assert [queue.queue_id for queue in request.to_json()["mqSet"]] == [1, 2, 3]
    assert TopicList({"b", "a"}).encode() == b'{"topicList":["a","b"]}'


def test_every_body_is_empty_by_default_and_survives():
    for cls in declared(bodies, Body):
        assert cls.decode(cls().encode()) == cls()


def test_fields_without_a_json_form_are_a_mistake():
    @body
    class Wrong(Body):
        field: bytes = b""

    with pytest.raises(TypeError, match="no JSON form"):
        Wrong().encode()
