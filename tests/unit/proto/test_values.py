"""Small modules: perm, sys_flag, topic_names, validators, message_queue."""

import pytest

from rocketpy.proto import perm
from rocketpy.proto import topic_names as names
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record import sys_flag
from rocketpy.proto.record.sys_flag import CompressionType
from rocketpy.proto.validators import check_group, check_topic, is_valid_name
from rocketpy.proto.wire.codes import RequestCode, ResponseCode


@pytest.mark.parametrize(
    ("bits", "text"), [(6, "RW-"), (7, "RWX"), (4, "R--"), (2, "-W-"), (0, "---")]
)
def test_perm(bits, text):
    assert perm.perm_to_string(bits) == text
    assert perm.is_readable(bits) == ("R" in text)
    assert perm.is_writeable(bits) == ("W" in text)
    assert perm.is_inherited(bits) == ("X" in text)


def test_message_sys_flag():
    flag = sys_flag.with_compression(0x10, CompressionType.ZLIB)
    assert flag == 0x311
    assert sys_flag.compression_type(flag) == CompressionType.ZLIB
    assert sys_flag.with_compression(flag, CompressionType.LZ4) == 0x111
    assert sys_flag.clear_compressed(flag) == 0x310


def test_topic_names():
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.is_retry_topic("%RETRY%g")
    assert names.is_dlq_topic("%DLQ%g")
    assert names.pop_retry_topic_v1("t", "g") == "%RETRY%g_t"
    assert names.pop_retry_topic_v2("t", "g") == "%RETRY%g+t"
    assert names.sync_broker_member_topic("b") == "rmq_sys_SYNC_BROKER_MEMBER_b"


def test_system_names():
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_wheel_timer")
    assert not names.is_system_topic("T")
    assert names.is_not_allowed_send_topic("SCHEDULE_TOPIC_XXXX")
    assert not names.is_not_allowed_send_topic("TBW102")
    assert names.is_system_group("TOOLS_CONSUMER")
    assert names.is_system_group("CID_RMQ_SYS_x")
    assert not names.is_system_group("g")


@pytest.mark.parametrize("name", ["a", "A_b-9", "%RETRY%g", "a|b", "t" * 127, "%DLQ%" + "g" * 120])
def test_names_that_are_fine(name):
    assert is_valid_name(name)
    assert check_topic(name) is None


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a\n", "é", "a.b", "t" * 128, "%RETRY%" + "g" * 249, "a/../b"]
)
def test_topics_that_are_refused(name):
    assert check_topic(name) is not None


def test_groups():
    assert check_group("g" * 120) is None
    for group in ("", "  ", "g" * 121, "a b", "g\n"):
        assert check_group(group) is not None


def test_queues_are_ordered_as_in_java():
    queues = [MessageQueue("T", "b", 1), MessageQueue("T", "a", 9), MessageQueue("S", "z", 0)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]


def test_codes():
    assert RequestCode(310).name == "SEND_MESSAGE_V2"
    assert RequestCode(200_050) is RequestCode.POP_MESSAGE
    assert len(RequestCode) == 159
    assert ResponseCode(530) is ResponseCode.TOO_MANY_REQUESTS
    assert ResponseCode(1500) is ResponseCode.GO_AWAY
