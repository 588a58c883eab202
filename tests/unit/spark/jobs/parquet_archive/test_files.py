"""Writing archive files keeps every row, in bounded memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketpy.arrow import row_schema
from rocketpy.spark.jobs.parquet_archive import files as archive_files
from rocketpy.spark.jobs.parquet_archive.files import ParquetFileWriter, write_pieces

SCHEMA = row_schema(
    columns=["topic", "brokerName", "queueId", "queueOffset", "body", "storeTimestamp"]
).arrow
DAY_US = 86_400_000_000
ROWS = 20


def batch(number: int, days: int) -> pa.RecordBatch:
    """Return rows of a queue with alternating days, 1 KB each."""
    offsets = np.arange(number * ROWS, (number + 1) * ROWS)
    columns = {
        "topic": ["T"] * ROWS,
        "brokerName": ["broker-a"] * ROWS,
        "queueId": [0] * ROWS,
        "queueOffset": offsets,
        "body": [bytes([number]) * 1024] * ROWS,
        "storeTimestamp": (offsets % days) * DAY_US,
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


@pytest.mark.parametrize("days", [1, 7])
def test_write_pieces_of_many_days_buffers_no_more_than_of_one(
    days: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "GROUP_BYTES", 100_000)
    writers: set[ParquetFileWriter] = set()
    real, most = ParquetFileWriter.write, 0

    def write(self: ParquetFileWriter, rows: pa.RecordBatch) -> None:
        nonlocal most
        real(self, rows)
        writers.add(self)
        most = max(most, sum(each.held_bytes for each in writers))

    monkeypatch.setattr(ParquetFileWriter, "write", write)
    (tmp_path / "staged").mkdir()
    pieces = write_pieces((batch(number, days) for number in range(50)), tmp_path, "staged")

    assert len(pieces) == days
    assert most < 100_000 + batch(0, days).nbytes
    offsets: list[int] = []
    for piece in pieces:
        table = pq.read_table(tmp_path / piece.staged, partitioning=None)
        found = table.column("queueOffset").to_pylist()
        assert found == sorted(found)
        assert piece.file.rows == len(found)
        assert (piece.file.first, piece.file.end) == (found[0], found[-1] + 1)
        offsets += found
    assert sorted(offsets) == list(range(50 * ROWS))
