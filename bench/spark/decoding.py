"""B5 and B6: the decoder of many records beside the reference, and beside copying the log."""

import time
from collections.abc import Callable

import numpy as np

from bench.spark.frame import Context, Measure, Ratio
from rocketpy.arrow import RecordDecoder, row_schema
from rocketpy.arrow.reference_rows import reference_rows
from rocketpy.proto.record.message import decode_message

ROWS = 5_000
"""Rows of a batch."""
SAMPLE = 200_000
"""Messages decoded in one pass."""
PASSES = 3
"""The best pass counts: the first one loads the log's pages and the memory for the rows."""
SCHEMA = row_schema()


def ratios() -> list[Ratio]:
    """Return B5 for both sizes of bodies, and B6 for 1 KB."""
    found = [
        Ratio(
            "B5",
            f"vectorised / one record after the other, into Arrow, {size} B",
            "rows/s",
            10,
            Measure(vectorised, size),
            Measure(one_by_one, size),
        )
        for size in (100, 1024)
    ]
    return [
        *found,
        Ratio(
            "B6",
            "vectorised decoding / copying the log, 1024 B",
            "MB/s",
            0.4,
            Measure(megabytes_per_s, 1024),
            Measure(copied, 1024),
        ),
    ]


def vectorised(context: Context, body_bytes: int) -> float:
    """Decode a part of the log; rows a second."""
    store = context.store(body_bytes)
    log, positions = store.log(), store.positions[:SAMPLE]
    decoder = RecordDecoder(SCHEMA)

    def decode() -> None:
        for start in range(0, len(positions), ROWS):
            chosen = positions[start : start + ROWS]
            decoder.decode(log, chosen, broker_name="broker-a", base_offset=0)

    return len(positions) / _least_s(decode)


def one_by_one(context: Context, body_bytes: int) -> float:
    """Decode a tenth of these messages with the reference; rows a second."""
    store = context.store(body_bytes)
    log, positions = store.log(), store.positions[: SAMPLE // 10]
    view = log.data

    def decode() -> None:
        for start in range(0, len(positions), ROWS):
            messages = [decode_message(view, at) for at in positions[start : start + ROWS].tolist()]
            reference_rows(messages, SCHEMA, "broker-a")

    return len(positions) / _least_s(decode)


def megabytes_per_s(context: Context, body_bytes: int) -> float:
    """Return the rate of `vectorised` as megabytes of log a second."""
    store = context.store(body_bytes)
    return vectorised(context, body_bytes) * store.log_bytes / store.count / 1e6


def copied(context: Context, body_bytes: int) -> float:
    """Copy the same part of the log in pieces of a batch's size; megabytes a second."""
    store = context.store(body_bytes)
    log = store.log()
    piece = store.log_bytes // store.count * ROWS
    end = min(store.log_bytes, piece * (SAMPLE // ROWS))

    def copy() -> None:
        for start in range(0, end, piece):
            np.array(log[start : start + piece])

    return end / _least_s(copy) / 1e6


def _least_s(work: Callable[[], None]) -> float:
    """Return the duration of the fastest pass, s."""
    passed = []
    for _ in range(PASSES):
        began = time.perf_counter()
        work()
        passed.append(time.perf_counter() - began)
    return min(passed)
