"""Command line of `rocketpy spark archive`."""

from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from rocketpy.spark.jobs import archive
from rocketpy.spark.jobs.archive import Archived, ArchiveRequest
from rocketpy.spark.jobs.stream_run import run_stream


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ArchiveRequest]:
    """Requests for Delta tables; Spark is not started."""
    found: list[ArchiveRequest] = []

    def keep(wanted: ArchiveRequest, *_: object) -> Archived:
        found.append(wanted)
        return Archived()

    assert isinstance(archive, ModuleType)
    monkeypatch.setattr(archive, "_delta", keep)
    return found


@pytest.mark.parametrize(
    ("given", "root"),
    [("s3a://bucket/orders/", "s3a://bucket/orders"), ("here", Path("here").absolute())],
)
def test_delta_table_may_be_at_a_url(
    requests: list[ArchiveRequest], given: str, root: Path | str
) -> None:
    words = ["orders", "--format", "delta", "--to", given]
    result = CliRunner().invoke(archive.command, words, standalone_mode=False)

    assert result.exception is None, result.output
    assert [each.root for each in requests] == [root]


@pytest.mark.parametrize("root", ["s3a://bucket/orders", Path("/data/orders")])
def test_stream_keeps_its_checkpoint_below_the_root(root: Path | str) -> None:
    stream: Any = MagicMock()
    writer = stream.writeStream.foreachBatch.return_value

    assert run_stream(stream, lambda _frame, _batch: None, root, None) is None
    writer.option.assert_called_once_with("checkpointLocation", f"{root}/_checkpoint")
