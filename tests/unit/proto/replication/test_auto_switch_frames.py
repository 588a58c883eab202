"""AutoSwitch frames: what no correct peer sends is refused before its bytes are held."""

import struct

import pytest

from rocketpy.errors import BadFrameError, FrameTooLongError
from rocketpy.proto.replication.auto_switch_frames import (
    MAX_PART_BYTES,
    MasterHelloReader,
    PartFrameReader,
    ReportReader,
    SlaveHello,
    decode_slave_hello,
    encode_slave_hello,
    is_slave_hello,
)

ENTRY = struct.pack(">iq", 1, 0)


@pytest.mark.parametrize(
    ("data", "is_hello"),
    [
        (encode_slave_hello(SlaveHello(2))[:8], True),
        (encode_slave_hello(SlaveHello(2, is_learner=True, is_from_last_file=True))[:8], True),
        (bytes(8), False),
        ((1 << 40).to_bytes(8, "big"), False),
        (struct.pack(">ihh", 1, 2, 0), False),
        (struct.pack(">ihh", 2, 0, 0), False),
        (b"\xffROCKPY\x01", False),
    ],
)
def test_first_bytes_tell_a_hello_from_other_protocols(data: bytes, is_hello: bool) -> None:
    assert is_slave_hello(data) is is_hello


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">ihhq", 2, 0, 0, 2),
        struct.pack(">ihhq", 1, 2, 0, 2),
        struct.pack(">ihhq", 1, 0, -1, 2),
        struct.pack(">ihhq", 1, 0, 0, 0),
        struct.pack(">ihhq", 1, 0, 0, -1),
    ],
    ids=["state", "flag", "learner", "id 0", "id -1"],
)
def test_wrong_hello_of_a_slave_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrameError):
        decode_slave_hello(data)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iiqi", 2, 12, 10, 1),
        struct.pack(">iiqi", 1, 0, 10, 1),
        struct.pack(">iiqi", 1, 13, 10, 1),
        struct.pack(">iiqi", 1, -12, 10, 1),
        struct.pack(">iiqi", 1, 12_012, 10, 1),
        struct.pack(">iiqi", 1, 12, -1, 1),
        struct.pack(">iiqi", 1, 24, 10, 1) + ENTRY + ENTRY,
        struct.pack(">iiqi", 1, 12, 10, 1) + struct.pack(">iq", -1, 0),
        struct.pack(">iiqi", 1, 12, 10, 1) + struct.pack(">iq", 1, -1),
    ],
    ids=["state", "none", "part", "-12", "1001", "end", "order", "epoch -1", "start -1"],
)
def test_wrong_hello_of_a_master_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrameError):
        MasterHelloReader().feed(data)


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">iiqiqq", 1, 0, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, -1, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, -1, 1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, 0, -1, 0, 0),
        struct.pack(">iiqiqq", 2, 0, 0, 1, -1, 0),
    ],
    ids=["state", "size", "offset", "epoch", "start"],
)
def test_wrong_part_is_refused(head: bytes) -> None:
    with pytest.raises(BadFrameError):
        PartFrameReader().feed(head)


def test_part_beyond_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(FrameTooLongError):
        PartFrameReader().feed(struct.pack(">iiqiqq", 2, MAX_PART_BYTES + 1, 0, 1, 0, 0))


def test_report_in_another_state_is_refused() -> None:
    with pytest.raises(BadFrameError):
        ReportReader().feed(struct.pack(">iq", 3, 10))
