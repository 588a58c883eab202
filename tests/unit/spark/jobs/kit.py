"""Builders of rows and archives, without Spark and without a broker."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from rocketpy.arrow import row_schema
from rocketpy.spark.jobs.parquet_archive.files import Piece, write_pieces

SCHEMA = row_schema(include=("properties", "hosts", "msgId")).arrow
DAY_US = 86_400_000_000
NOON_US = 1_780_315_200_000_000  # 2026-06-01T12:00Z
"""A time in the middle of a day."""

Key = tuple[str, str, int, int]


def rows(
    topic: str,
    queue_id: int,
    offsets: Sequence[int],
    *,
    stored_us: int = NOON_US,
    step_us: int = 1000,
    broker: str = "broker-a",
) -> pa.RecordBatch:
    """Return messages of one queue, `step_us` apart."""
    columns: dict[str, list[object]] = {name: [None] * len(offsets) for name in SCHEMA.names}
    times: list[object] = [stored_us + number * step_us for number in range(len(offsets))]
    columns |= {
        "topic": [topic] * len(offsets),
        "brokerName": [broker] * len(offsets),
        "queueId": [queue_id] * len(offsets),
        "queueOffset": list(offsets),
        "body": [f"{topic}/{queue_id}/{each}".encode() for each in offsets],
        "tags": ["even" if each % 2 == 0 else "odd" for each in offsets],
        "storeTimestamp": times,
        "bornTimestamp": times,
        "properties": [[("n", str(each))] for each in offsets],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def staged(root: Path, *batches: pa.RecordBatch) -> list[Piece]:
    """Return staged pieces, one for each batch."""
    (root / "_staging").mkdir(parents=True, exist_ok=True)
    return [piece for each in batches for piece in write_pieces([each], root, "_staging")]


def in_archive(root: Path) -> Counter[Key]:
    """Return the messages that pyarrow finds, which does not use manifests."""
    if not any(root.glob("topic=*/date=*/*.parquet")):
        return Counter()
    found = ds.dataset(root, partitioning="hive", format="parquet").to_table(
        columns=["topic", "brokerName", "queueId", "queueOffset"]
    )
    return Counter(
        (row["topic"], row["brokerName"], row["queueId"], row["queueOffset"])
        for row in found.to_pylist()
    )


def keys(topic: str, queue_id: int, offsets: Sequence[int]) -> Counter[Key]:
    """Return the expected messages."""
    return Counter((topic, "broker-a", queue_id, each) for each in offsets)


class Killed(BaseException):
    """Simulated end of the process."""


class Killer:
    """Raises instead of the n-th change of the file system, like a kill before it."""

    def __init__(self, before: int, error: type[BaseException] = Killed) -> None:
        self.left = before
        self.error = error

    def wrap(self, function):
        def changed(*args, **kwargs):
            if not self.left:
                raise self.error
            self.left -= 1
            return function(*args, **kwargs)

        return changed
