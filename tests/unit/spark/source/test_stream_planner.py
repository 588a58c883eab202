"""Planner of a stream: reports."""

import pytest

from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.options import parse_options
from rocketpy.spark.read_options import StreamOptions
from rocketpy.spark.source.stream_planner import StreamPlanner

OPTIONS = {"nameservers": "127.0.0.1:9876", "subscribe": "T"}


def test_planner_logs_a_lost_range_once_while_it_is_planned_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planner = StreamPlanner(parse_options(OPTIONS, StreamOptions))
    first, second = (QueueRange("T", "b", 0, *each) for each in ((10, 179), (190, 199)))
    try:
        for lost in ([first], [first], [first, second], [], [second]):
            planner.report_lost([(each, "the queue begins later") for each in lost])
    finally:
        planner.close()
    logged = [each.getMessage() for each in caplog.records]
    assert [str(first) in each for each in logged] == [True, False, False]
    assert [str(second) in each for each in logged] == [False, True, True]
