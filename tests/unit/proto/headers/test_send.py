"""The send header under long and under one-letter names."""

from dataclasses import asdict

import pytest

from rocketpy.errors import HeaderFieldError
from rocketpy.proto.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

SEND_V2 = {
    "a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "-1", "f": "0", "g": "1700000000123",
    "h": "7",
    "i": "k\x01v\x02",
    "j": "0", "k": "false", "m": "false",
}  # fmt: skip


LONG_NAMES = {
    letter: SendMessageRequestHeader.wire_name(name)
    for name, letter in SendMessageRequestHeaderV2.wire_names.items()
}


def test_send_v2():
    send = SendMessageRequestHeaderV2.from_ext(SEND_V2)
    assert (send.topic, send.queue_id, send.born_timestamp, send.max_reconsume_times) == (
        "T",
        -1,
        1700000000123,
        None,
    )
    assert send.to_ext() == SEND_V2
    whole = SendMessageRequestHeader(**asdict(send)).to_ext()
    assert whole["defaultTopicQueueNums"] == "4"
    assert asdict(SendMessageRequestHeader.from_ext(whole)) == asdict(send)


@pytest.mark.parametrize("name", list("abcdefgh"))
def test_send_v2_names_what_is_absent(name):
    with pytest.raises(HeaderFieldError) as caught:
        SendMessageRequestHeaderV2.from_ext({k: v for k, v in SEND_V2.items() if k != name})
    assert caught.value.field == f"{name} ({LONG_NAMES[name]})"


@pytest.mark.parametrize("name", list("defghjl"))
def test_send_v2_names_what_is_wrong(name):
    if name == "l":
        assert SendMessageRequestHeaderV2.from_ext({**SEND_V2, "l": "5"}).max_reconsume_times == 5
    with pytest.raises(HeaderFieldError) as caught:
        SendMessageRequestHeaderV2.from_ext({**SEND_V2, name: "x"})
    assert caught.value.field == f"{name} ({LONG_NAMES[name]})"
