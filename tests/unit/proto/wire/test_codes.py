"""Numbers that must not change, seen in traffic of 5.4.0."""

import pytest

from rocketpy.proto.wire.codes import LanguageCode, RequestCode, ResponseCode


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SEND_MESSAGE", 10),
        ("PULL_MESSAGE", 11),
        ("HEART_BEAT", 34),
        ("REGISTER_BROKER", 103),
        ("GET_ROUTEINFO_BY_TOPIC", 105),
        ("SEND_MESSAGE_V2", 310),
        ("SEND_BATCH_MESSAGE", 320),
        ("LITE_PULL_MESSAGE", 361),
    ],
)
def test_requests(name, code):
    assert RequestCode[name] == code


@pytest.mark.parametrize(
    ("name", "code"),
    [("SUCCESS", 0), ("SYSTEM_BUSY", 2), ("TOPIC_NOT_EXIST", 17), ("PULL_NOT_FOUND", 19)],
)
def test_responses(name, code):
    assert ResponseCode[name] == code


@pytest.mark.parametrize("codes", [RequestCode, ResponseCode, LanguageCode])
def test_no_number_has_two_names(codes):
    assert len(codes.__members__) == len(set(codes.__members__.values()))
