"""The body of a registration, plain and compressed."""

import zlib

import pytest

from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketpy.runtime.service import run_to_end


def decode_compressed(data: bytes, version: int = 493) -> RegisterBrokerBody:
    return run_to_end(RegisterBrokerBody.read_compressed(data, version))


def decode_plain(data: bytes) -> RegisterBrokerBody:
    return run_to_end(RegisterBrokerBody.read_plain(data))


REGISTER = RegisterBrokerBody(
    TopicConfigSerializeWrapper(
        {
            "T": TopicConfig("T", 4, 8, 6, attributes={"+message.type": "NORMAL"}),
            "U": TopicConfig("U"),
        },
        DataVersion(1, 2, 3),
        topic_queue_mapping_info_map={"T": {"topic": "T", "bname": "b"}},
    ),
    ["f:1"],
)


def test_compressed_registration():
    packed = REGISTER.encode_compressed()
    assert decode_compressed(packed) == REGISTER
    assert b'T 4 8 6 SINGLE_TAG {"+message.type":"NORMAL"}' in zlib.decompress(packed)
    old = decode_compressed(packed, 412)
    assert old.topic_config_serialize_wrapper.topic_queue_mapping_info_map is None


def test_plain_registration():
    assert decode_plain(REGISTER.encode()) == REGISTER


def test_every_cut_of_a_registration_is_refused():
    plain = zlib.decompress(REGISTER.encode_compressed())
    old_end = plain.index(b"f:1") + 5  # brokers before 5.0 end here
    for size in set(range(len(plain))) - {old_end}:
        with pytest.raises(BadBodyError):
            decode_compressed(zlib.compress(plain[:size]))


@pytest.mark.parametrize("topic", [b"T 4 8 6", b"T x 8 6 SINGLE_TAG", b"T 4 8 6 SINGLE_TAG {"])
def test_topics_of_a_registration_that_are_wrong(topic):
    plain = zlib.decompress(REGISTER.encode_compressed())
    good = b"U 16 16 6 SINGLE_TAG"
    damaged = plain.replace(len(good).to_bytes(4) + good, len(topic).to_bytes(4) + topic)
    assert damaged != plain
    with pytest.raises(BadBodyError):
        decode_compressed(zlib.compress(damaged))


@pytest.mark.parametrize("count", [0, 1, 256, 600])
def test_body_is_written_a_few_topics_at_a_time_and_is_the_same(count: int) -> None:
    topics = [TopicConfig(f"topic-{number}", 4, 4) for number in range(count)]
    version = DataVersion(1, 2)
    bare = RegisterBrokerBody(
        TopicConfigSerializeWrapper(data_version=version), ['"topicConfigTable":{}']
    )
    steps = bare.encode_with(iter(topics))
    pauses, written = 0, b""
    while True:
        try:
            next(steps)
            pauses += 1
        except StopIteration as end:
            written = end.value
            break
    assert pauses == max(0, (count - 1) // 256)
    table = {one.topic_name: one for one in topics}
    whole = TopicConfigSerializeWrapper(topic_config_table=table, data_version=version)
    assert written == RegisterBrokerBody(whole, bare.filter_server_list).encode()
