"""Lag from the progress that Spark reports."""

import json

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.lag import lags_of
from rocketpy.spark.offsets import StreamOffset, to_json

Q0, Q1 = (MessageQueue("T", "a", number) for number in range(2))


def test_lags_of_progress_are_unread_messages_by_queue() -> None:
    progress = {
        "id": "q-1",
        "name": "flights",
        "batchId": 7,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "sources": [
            {"endOffset": 5, "latestOffset": 9},  # of another source
            {
                "endOffset": to_json(StreamOffset({Q0: 5})),
                "latestOffset": json.dumps(to_json(StreamOffset({Q0: 8, Q1: 4}))),
            },
            {"endOffset": to_json(StreamOffset({Q0: 5})), "latestOffset": None},
        ],
    }
    (lag,) = lags_of(progress)

    assert lag.by_queue == {Q0: 3, Q1: 4}
    assert (lag.total, lag.name, lag.batch_id) == (7, "flights", 7)
