"""Archives have each message once for any reader, wherever their writer stops."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketpy.errors import JobError
from rocketpy.spark.jobs.archive import Archived, ArchiveRequest, archive
from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog, archived_files
from rocketpy.spark.jobs.replay import archive_frame, counts, rates_of, send, to_send
from rocketpy.spark.jobs.rows import collected
from rocketpy.store import to_arrow
from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill, stored
from tests.spark.local_spark import gave_up
from tests.unit.spark.jobs.kit import Killer, in_archive, rows, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[ClusterThread]:
    with ClusterThread(folder, brokers=2) as running:
        fill(running, "A", queues=2, count=400)
        yield running


def run(
    spark: "SparkSession", cluster: ClusterThread, root: Path, topic: str = "A", rows: int = 150
) -> Archived:
    wanted = ArchiveRequest(
        topics=topic, namesrv=cluster.namesrv, root=root, batch_rows=rows, compact_every=2
    )
    with ArchiveLog(root) as log:
        return archive(spark, wanted, log, lambda _: None)


def places(cluster: ClusterThread, topic: str) -> Counter[tuple[str, str, int, int]]:
    """Return the locations of all messages of the brokers."""
    return Counter((topic, *row[:3]) for row in stored(cluster, topic).elements())


def test_archive_has_every_message_once_and_continues(
    spark: "SparkSession", cluster: ClusterThread, tmp_path: Path
) -> None:
    fill(cluster, "N", queues=2, count=200)
    done = run(spark, cluster, tmp_path, "N")
    assert (done.messages, done.batches) == (200, 2)
    assert done.merged >= 4
    assert in_archive(tmp_path) == places(cluster, "N")
    fill(cluster, "N", queues=2, count=50, first=200)
    assert run(spark, cluster, tmp_path, "N").messages == 50
    assert in_archive(tmp_path) == places(cluster, "N")
    assert run(spark, cluster, tmp_path, "N").messages == 0
    # Without Spark's commit of the last batch, the batch is repeated.
    commits = (tmp_path / "_checkpoint" / "commits").glob("[0-9]*")
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()  # otherwise Spark treats it as another query's
    assert run(spark, cluster, tmp_path, "N").messages == 0
    assert in_archive(tmp_path) == places(cluster, "N")
    # Without its checkpoint the job resumes from the manifests.
    shutil.rmtree(tmp_path / "_checkpoint")
    fill(cluster, "N", queues=2, count=50, first=250)
    assert run(spark, cluster, tmp_path, "N").messages == 50
    assert in_archive(tmp_path) == places(cluster, "N")
    assert not [path for path in (tmp_path / "_staging").rglob("*") if path.is_file()]


def test_archive_killed_before_any_change_recovers(
    spark: "SparkSession",
    cluster: ClusterThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like kill -9 before a change of the file system, and once before Spark's commit."""
    everything = places(cluster, "A")
    stopped = 0
    for before in (2, 3, 5, 8):
        killer = Killer(before, LookupError)
        with monkeypatch.context() as patch:
            for owner, name in (
                (Path, "replace"),
                (Path, "rename"),
                (Path, "unlink"),
                (os, "link"),
            ):
                patch.setattr(owner, name, killer.wrap(getattr(owner, name)))
            try:
                run(spark, cluster, tmp_path)
            except (JobError, LookupError):
                stopped += 1
        assert not in_archive(tmp_path) - everything
    assert stopped >= 2
    for commit in (tmp_path / "_checkpoint" / "commits").glob("[0-9]*"):
        commit.unlink()
    run(spark, cluster, tmp_path)
    assert in_archive(tmp_path) == everything
    assert len(archived_files(tmp_path)) == len(list(tmp_path.rglob("part-*.parquet")))


@pytest.mark.long
def test_archive_killed_by_sigkill_recovers(cluster: ClusterThread, tmp_path: Path) -> None:
    """Driver, JVM and workers get SIGKILL while batches are written; the command runs again."""
    command = [sys.executable, "-m", "rocketpy.spark.jobs.archive", "A", "-n", cluster.namesrv]
    command += ["--to", str(tmp_path), "--batch-rows", "20", "--master", "local[2,3]"]
    command += ["--conf", "spark.driver.host=127.0.0.1"]
    job = begun(command, tmp_path.parent / "killed.log")
    manifests = tmp_path / "_manifests"
    deadline = time.monotonic() + 200
    while len(list(manifests.glob("*.json"))) < 3:
        if job.poll() is not None:  # on a busy machine Spark may give up waiting for planners
            said = (tmp_path.parent / "killed.log").read_text()
            assert gave_up(said), said
            job = begun(command, tmp_path.parent / "killed.log")
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    everything = places(cluster, "A")
    seen = in_archive(tmp_path)
    assert 0 < seen.total() < everything.total()
    assert not seen - everything
    deadline = time.monotonic() + 280
    while True:
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        if done.returncode == 0 or not gave_up(done.stderr) or time.monotonic() > deadline:
            break
    assert done.returncode == 0, done.stderr
    assert in_archive(tmp_path) == everything


def begun(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command in a new process group."""
    with log.open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def test_replay_of_an_archive_keeps_all_parts_of_messages(
    spark: "SparkSession", cluster: ClusterThread, folder: Path, tmp_path: Path
) -> None:
    fill(cluster, "R", queues=2, count=120, body=lambda number: f"body-{number}".encode())
    run(spark, cluster, tmp_path, "R")
    cluster.create_topic("R2", 2)
    messages = archive_frame(spark, tmp_path, "R", "earliest", "latest")
    rates = rates_of(spark, collected(counts(messages)), 1000, 2)
    frame = to_send(messages, "R2", 2)
    send(frame, cluster.namesrv, new_ids=False, options={}, rates=rates)
    assert sent(folder, "R2") == sent(folder, "R")
    assert sent(folder, "R").total() == 120


def test_replay_of_a_cut_queue_keeps_the_order_of_lives(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The broker lost its last messages twice, and assigned their offsets again."""
    queue = ("T", "broker-a-1.5", 0)
    lives = [range(6), range(4, 8), range(7, 9)]
    with ArchiveLog(tmp_path) as log:
        for life, offsets in enumerate(lives):
            pieces = staged(tmp_path, rows("T", 0, offsets, broker=queue[1]))
            log.commit("q", 2 * life, pieces, [(*queue, offsets.stop)])
            log.commit("q", 2 * life + 1, [], [(*queue, offsets.stop - 1)], [queue])
    frame = archive_frame(spark, tmp_path, "T", "earliest", "latest")
    assert frame.count() == 6 + 4 + 2
    parts = to_send(frame, "U", 2).rdd.glom().collect()
    sent_bodies = [bytes(row.body).decode() for part in parts for row in part]
    assert sent_bodies == [f"T/0/{each}" for offsets in lives for each in offsets]


def sent(folder: Path, topic: str) -> Counter[tuple[object, ...]]:
    """Return body, tag, keys and the sender's properties of each message in the stores."""
    found: Counter[tuple[object, ...]] = Counter()
    for broker in ("broker-a", "broker-b"):
        for row in to_arrow(folder / broker).read_all().to_pylist():
            if row["topic"] != topic:  # this broker may have none of them
                continue
            own = dict(row["properties"])["number"]
            found[row["body"], row["tags"], row["keys"], own] += 1
    return found
