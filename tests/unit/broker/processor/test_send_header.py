"""The plain send reads its header fields by hand: they must be what the header class reads."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.send_request import Sent
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from tests.unit.broker.fakes import FakeChannel, request

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
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
        self.plain: tuple[Any, ...] = ()
        self.whole: Any = None

    def send_plain(self, *given: Any) -> Sent | None:
        self.plain = given
        return None  # and so the long way follows

    def send(self, whole: Any) -> Sent:
        self.whole = whole
        return Sent(0, 0, 0, "id")


@given(HEADERS)
def test_the_short_way_reads_what_the_header_class_reads(
    header: SendMessageRequestHeaderV2,
) -> None:
    operation = Operation()
    processor = SendMessageProcessor(operation, BrokerConfig())  # type: ignore[arg-type]
    channel: Any = FakeChannel()
    processor.process(channel, request(310, header.to_ext(), b"body"))
    whole = operation.whole
    assert (whole.topic, whole.queue_id, whole.flag) == ("T", header.queue_id, header.flag)
    if header.properties is None:
        assert not operation.plain
        return
    assert operation.plain[1:] == (
        whole.topic,
        whole.queue_id,
        b"body",
        whole.properties,
        channel.remote_host_bytes,
        whole.flag,
        whole.sys_flag,
        whole.born_timestamp_ms,
        whole.reconsume_times,
    )
