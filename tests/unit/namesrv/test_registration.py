import zlib
from typing import Any

import pytest

from rocketpy.errors import BadBodyError
from rocketpy.namesrv.names import is_address, is_name, is_topic
from rocketpy.namesrv.registration import (
    RegisteredTopics,
    Registration,
    body_matches,
    read_topics,
)
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.runtime.service import run_to_end


def decode_topics(body: bytes, version: int) -> RegisteredTopics:
    return run_to_end(read_topics(body, version))


# As an Apache 5.4.0 broker writes it.
APACHE = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,'
    b'"stateVersion":0,"timestamp":1795250495251},"mappingDataVersion":{"counter":0,'
    b'"stateVersion":0,"timestamp":1795250495251},"topicConfigTable":{"T":{"attributes":{},'
    b'"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T",'
    b'"topicSysFlag":0,"writeQueueNums":4}},"topicQueueMappingDetailMap":{},'
    b'"topicQueueMappingInfoMap":{}}}'
)


def test_body_of_a_current_broker_is_read() -> None:
    told = decode_topics(APACHE, 493)
    assert told.data_version == DataVersion(1795250495251, 3, 0)
    assert told.topics["T"].write_queue_nums == 4
    assert told.refused == ()


def test_body_of_a_broker_before_3_0_11_is_the_bare_table() -> None:
    bare = b'{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"T":{"topicName":"T"}}}'
    assert decode_topics(bare, 36).topics.keys() == {"T"}
    assert decode_topics(bare, 36).data_version == DataVersion(5, 3, 0)
    assert decode_topics(bare, 37).topics == {}


def test_compressed_body_is_known_by_its_first_byte() -> None:
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={"T": TopicConfig("T", 3, 4, 6)}, data_version=DataVersion(5, 3, 0)
    )
    body = RegisterBrokerBody(wrapper, ["f:1"]).encode_compressed()
    told = decode_topics(body, 493)
    assert (told.topics["T"].read_queue_nums, told.topics["T"].write_queue_nums) == (3, 4)
    assert told.filter_servers == ("f:1",)
    assert told.data_version == DataVersion(5, 3, 0)


def test_read_topics_of_an_empty_body_is_empty() -> None:
    assert decode_topics(b"", 493).topics == {}


def test_read_topics_drops_only_invalid_topics() -> None:
    names = ["good", "%RETRY%group", "a b", "", "x" * 301, "line\nbreak"]
    table = {name: TopicConfig(topic_name=name) for name in names}
    table["negative"] = TopicConfig(topic_name="negative", read_queue_nums=-1)
    table["huge"] = TopicConfig(topic_name="huge", write_queue_nums=1 << 20)
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table=table,
        topic_queue_mapping_info_map={
            "good": {
                "topic": "good",
                "totalQueues": 300,
                "junk": "x" * 9999,
                "scope": ["x"] * 9999,
                "currIdMap": {str(number): number for number in range(300)},
            },
            "stranger": {"topic": "stranger"},
        },
    )
    servers = ["f:1", "not an address", *(f"f:{port}" for port in range(2, 40))]
    told = decode_topics(RegisterBrokerBody(wrapper, servers).encode(), 493)
    assert set(told.topics) == {"good", "%RETRY%group"}
    assert len(told.refused) == 6
    assert max(map(len, told.refused)) == 64
    mapping: Any = told.mappings["good"]
    assert told.mappings.keys() == {"good"}
    assert mapping.keys() == {"topic", "totalQueues", "currIdMap"}
    assert len(mapping["currIdMap"]) == 256
    assert len(told.filter_servers) == 16


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\x78nonsense", zlib.compress(b"\x00\x00\x00\x09{}"), b"\xff"]
)
def test_read_topics_of_a_damaged_body_raises(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        decode_topics(body, 493)


def test_body_matches_checksum_zero_is_not_checked() -> None:
    assert body_matches(b"abc", 0)
    assert body_matches(b"abc", zlib.crc32(b"abc") & 0x7FFFFFFF)
    assert not body_matches(b"abc", 1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, None),
        ({"ha_address": ""}, None),
        ({"address": "[::1]:10911"}, None),
        ({"cluster": ""}, "cluster name"),
        ({"broker_name": "x" * 301}, "broker name"),
        ({"broker_id": -1}, "broker id"),
        ({"address": "nowhere"}, "broker address"),
        ({"address": "h:70000"}, "broker address"),
        ({"ha_address": "h:x"}, "HA address"),
    ],
)
def test_problem_checks_the_names_of_the_broker(
    changes: dict[str, object], complaint: str | None
) -> None:
    told = {"cluster": "c", "broker_name": "b", "broker_id": 0, "address": "h:1", **changes}
    problem = Registration(**told).problem()  # type: ignore[arg-type]
    assert problem is None if complaint is None else complaint in (problem or "")


def test_names() -> None:
    assert is_name("host.local-1_é")
    assert is_topic("%RETRY%g|x")
    assert not is_name("a\x00b")
    assert is_address("host:0")
    assert not is_address(":1")
    assert not is_address("a,b:1")
    assert not is_address("h:\u0661")
