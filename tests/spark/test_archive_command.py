"""Command `rocketpy spark archive`: options, signals and errors."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketpy.errors import JobError
from rocketpy.spark.jobs import archive
from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog, Manifest, archived_files
from rocketpy.terminal.error_exit import run_command
from rocketpy.testing.cluster import ClusterThread
from tests.peer.apache import JVM
from tests.spark.fill import fill, stored
from tests.unit.spark.jobs.kit import in_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ("pay-eu", "pay-us")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("cluster")) as running:
        for topic in (*TOPICS, "repay-eu"):
            fill(running, topic, queues=1, count=60)
        yield running


@pytest.fixture
def signal_in_batch(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Send a signal to this process in each batch with messages, before files are moved."""
    to_come: list[int] = []
    commit = ArchiveLog.commit

    def interrupted(log: ArchiveLog, query: str, batch: int, pieces: Sequence[Any],
                    *more: Any) -> Manifest:  # fmt: skip
        if pieces and to_come:
            os.kill(os.getpid(), to_come.pop(0))
        return commit(log, query, batch, pieces, *more)

    monkeypatch.setattr(ArchiveLog, "commit", interrupted)
    yield to_come
    assert not to_come


def run(
    capsys: pytest.CaptureFixture[str], cluster: ClusterThread, root: Path, *words: str
) -> tuple[int, dict[str, Any], str]:
    """Run the command; return exit code, summary and standard error."""
    with pytest.raises(SystemExit) as ended:
        run_command(
            archive.command,
            "rocketpy spark archive",
            [*words, "-n", cluster.namesrv, "--to", str(root), "-o", "json"],
        )
    out, err = capsys.readouterr()
    (row,) = json.loads(out) if out else [{}]
    assert isinstance(ended.value.code, int)
    return ended.value.code, row, err


def places(cluster: ClusterThread, *topics: str) -> Any:
    return {(each, *row[:3]) for each in topics for row in stored(cluster, each)}


def test_archive_after_a_signal_ends_with_the_current_batch(
    spark: "SparkSession",
    cluster: ClusterThread,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    signal_in_batch: list[int],
) -> None:
    words = ["--pattern", "pay-.*", "--batch-rows", "40", "--compact-every", "0"]
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = [signal.getsignal(each) for each in numbers]

    signal_in_batch.append(signal.SIGTERM)
    code, done, _ = run(capsys, cluster, tmp_path, *words, "--every", "1")
    assert (code, done["messages"], done["stopped_by"]) == (0, 40, "SIGTERM")
    assert len(in_archive(tmp_path)) == 40

    signal_in_batch.append(signal.SIGINT)
    code, done, _ = run(capsys, cluster, tmp_path, *words)
    assert (code, done["messages"], done["stopped_by"]) == (130, 40, "SIGINT")
    assert handlers == [signal.getsignal(each) for each in numbers]

    code, done, _ = run(capsys, cluster, tmp_path, *words)
    assert (code, done["messages"], done["stopped_by"]) == (0, 40, "")
    found = in_archive(tmp_path)
    assert found.keys() == places(cluster, *TOPICS)
    assert found.total() == 120

    before = len(archived_files(tmp_path))
    code, done, _ = run(capsys, cluster, tmp_path, "--only-compact")
    assert (code, done["files_before"], done["files_after"]) == (0, before, 2)
    assert in_archive(tmp_path) == found


def test_archive_to_delta_without_a_matching_jar_fails(
    spark: "SparkSession",
    cluster: ClusterThread,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, _, err = run(capsys, cluster, tmp_path, "pay-eu", "--format", "delta")
    assert code == 1
    assert f"Delta's jar is missing: give --conf spark.jars.packages={archive._DELTA}" in err
    assert f"made for Spark {spark.version}" in err

    def of_another_spark(*_: object) -> None:
        raise JobError("it failed") from Exception("java.lang.NoSuchMethodError: 'void x'")

    monkeypatch.setattr(archive, "_need_delta", lambda _: None)
    monkeypatch.setattr(archive, "archive_to_delta", of_another_spark)
    code, _, err = run(capsys, cluster, tmp_path, "pay-eu", "--format", "delta")
    assert code == 1
    assert f"Delta's jar is not for Spark {spark.version}" in err
    assert spark.sql("SELECT 1").count() == 1, "the session still works without Delta"


@pytest.mark.parametrize("words", [[], ["a", "--pattern", "b"]])
def test_archive_requires_topics_or_a_pattern(
    words: list[str], cluster: ClusterThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, cluster, tmp_path, *words)
    assert code == 2
    assert "give TOPICS or --pattern" in err


def test_archive_error_is_one_sentence(cluster: ClusterThread, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rocketpy.spark.jobs.archive", "nosuch", "-n", cluster.namesrv]
    command += ["--to", str(tmp_path), "--master", "local[2,3]"]
    command += ["--conf", "spark.driver.host=127.0.0.1"]
    command += ["--conf", f"spark.driver.extraJavaOptions={JVM}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("rocketpy spark archive: ")
    assert "no topic nosuch" in done.stderr
    for noise in ("Traceback", "\tat org.apache.spark", " ERROR ", " WARN "):
        assert noise not in done.stderr, done.stderr
