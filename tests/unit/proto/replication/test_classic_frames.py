"""Bounds and errors of the classic replication protocol."""

import pytest

from rocketpy.errors import BadFrameError, FrameTooLongError
from rocketpy.proto.replication.classic_frames import (
    LogPart,
    ReportReader,
    TransferReader,
    encode_report,
    encode_transfer_head,
)


def test_reports_in_one_packet_are_all_returned() -> None:
    reader = ReportReader()

    assert reader.feed(encode_report(1) + encode_report(2) + b"\0\0\0") == (1, 2)
    assert reader.feed(b"\0\0\0\0\7") == (7,)


def test_negative_report_is_returned_for_the_caller_to_judge() -> None:
    assert ReportReader().feed(b"\xff" * 8) == (-1,)


def test_heartbeat_is_a_part_without_bytes() -> None:
    assert TransferReader().feed(encode_transfer_head(5, 0)) == [LogPart(5, b"")]


@pytest.mark.parametrize("head", [(-1, 3), (3, -1)])
def test_negative_numbers_are_refused(head: tuple[int, int]) -> None:
    with pytest.raises(BadFrameError):
        TransferReader().feed(encode_transfer_head(*head))


def test_part_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(FrameTooLongError):
        TransferReader(max_part_bytes=10).feed(encode_transfer_head(0, 11))
