"""Header fields read by the fast path equal those of the header class."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from tests.unit.broker.fakes import FakeChannel, request

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
_READ_IN_SHORT = SendRequest._fields.index("max_reconsume_times")
HEADERS = st.builds(
    SendMessageRequestHeaderV2,
    producer_group=st.text(max_size=3),
    topic=st.just("T"),
    default_topic=st.text(max_size=3),
    default_topic_queue_nums=I32,
    queue_id=I32,
    sys_flag=I32,
    born_timestamp=I64,
    flag=I32,
    properties=st.none() | st.text("ab\x01\x02", max_size=9),
    reconsume_times=st.none() | I32,
    unit_mode=st.none() | st.booleans(),
    batch=st.none() | st.just(False),
    max_reconsume_times=st.none() | I32,
    bname=st.none() | st.text(max_size=3),
)


class Operation:
    """Notes what it is given."""

    count = None
    own_properties = b""
    max_body_bytes = 0

    def __init__(self) -> None:
        self.known = {"T": SimpleNamespace(is_simple=True)}
        self.plain: SendRequest | None = None
        self.whole: Any = None

    def send_plain(self, _policy: object, plain: SendRequest) -> Sent | None:
        self.plain = plain
        return None  # and so the long way follows

    def send(self, whole: Any) -> Sent:
        self.whole = whole
        return Sent(0, 0, 0, "id")


ODD = st.sampled_from(
    ("5", "-5", "1_0", " 5", "5 ", "+5", "", "-", "1-2", "\u0663", "9" * 25, "2147483648")
)
"""What may stand for a number: `int` takes some of it that Java does not."""


def given_to(operation: Operation, code: int, ext: dict[str, str]) -> None:
    processor = SendMessageProcessor(operation, BrokerConfig())  # type: ignore[arg-type]
    channel: Any = FakeChannel()
    processor.process(channel, request(code, ext, b"body"))
    whole = operation.whole
    if operation.plain:
        assert operation.plain[:_READ_IN_SHORT] == whole[:_READ_IN_SHORT]


@given(HEADERS)
def test_send_fast_path_reads_same_fields_as_header_class(
    header: SendMessageRequestHeaderV2,
) -> None:
    operation = Operation()
    given_to(operation, 310, header.to_ext())
    whole = operation.whole
    assert (whole.topic, whole.queue_id, whole.flag) == ("T", header.queue_id, header.flag)
    assert bool(operation.plain) == (header.properties is not None)


@given(HEADERS, st.sampled_from("efghjdl"), ODD, st.sampled_from((310, 320)))
def test_send_number_invalid_in_java_uses_general_path(
    header: SendMessageRequestHeaderV2, field: str, text: str, code: int
) -> None:
    operation = Operation()
    ext = header.to_ext() | {field: text}
    try:
        SendMessageRequestHeaderV2.from_ext(ext)
    except HeaderFieldError as error:
        with pytest.raises(HeaderFieldError):
            given_to(operation, code, ext)
        # In a single message's header what is not used is not looked at when it is plain, and what
        # is stored has to fit into the record.
        if code == 320 or (field not in "dl" and "fit" not in str(error)):
            assert not operation.plain
    else:
        given_to(operation, code, ext)


@pytest.mark.parametrize("field", ["a", "b", "c", "d", "e", "f", "g", "h"])
def test_send_batch_without_required_field_is_refused(field: str) -> None:
    ext = dict(zip("abcdefgh", ("p", "T", "TBW102", "4", "0", "0", "0", "0"), strict=True))
    given_to(Operation(), 320, ext)
    del ext[field]
    with pytest.raises(HeaderFieldError):
        given_to(Operation(), 320, ext)
