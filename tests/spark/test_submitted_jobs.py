"""Every job as a file under `spark-submit`, with its command line."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill, stored
from tests.spark.local_spark import ROOT, home_environment, make_home
from tests.spark.submitted import JOBS
from tests.unit.spark.jobs.kit import in_archive

PROGRAM = Path(__file__).with_name("submitted.py")
COUNT = 60

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[ClusterThread]:
    with ClusterThread(folder) as running:
        for topic in ("orders", "%DLQ%readers"):
            fill(running, topic, queues=2, count=COUNT, body=lambda n: b"body-%d" % n)
        running.create_topic("again", 1)
        running.create_topic("RMQ_SYS_TRACE_TOPIC", 1)
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


def submit(home: Path, file: Path, *words: str) -> str:
    """Run a file; return its output. Spark gives it one pipe for output and errors."""
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--master", "local[2,3]", file, *words],
        cwd=ROOT, env=home_environment(home), capture_output=True, text=True, timeout=850,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.long
def test_single_job_under_spark_submit(home: Path, cluster: ClusterThread, tmp_path: Path) -> None:
    words = ["orders", "--to", str(tmp_path), "-n", cluster.namesrv, "-o", "json"]
    (row,) = json.loads(submit(home, JOBS / "archive.py", *words))
    assert row["messages"] == in_archive(tmp_path).total() == COUNT


def test_all_jobs_under_spark_submit(
    home: Path, cluster: ClusterThread, folder: Path, tmp_path: Path
) -> None:
    servers = ["-n", cluster.namesrv]
    jobs = [
        ["archive", "orders", "--to", str(tmp_path), *servers],
        ["replay", "orders", "--to", "again", "--conf", "rocketmq.inflight=7", *servers],
        ["dlq", "readers", *servers],
        ["trace", *servers],
        ["audit", str(folder / "broker-a")],
        ["lag", *servers],
    ]
    lines = submit(home, PROGRAM, json.dumps(jobs)).splitlines()
    ended = dict(zip([job[0] for job in jobs], map(json.loads, lines), strict=True))
    assert {code for code, _ in ended.values()} == {0}, ended
    rows = {name: found for name, (_, found) in ended.items()}

    assert rows["archive"][0]["messages"] == in_archive(tmp_path).total() == COUNT
    assert rows["replay"][0]["messages"] == COUNT
    crcs = [sorted(each[3] for each in stored(cluster, topic)) for topic in ("orders", "again")]
    assert crcs[0] == crcs[1]
    assert sum(row["letters"] for row in rows["dlq"]) == COUNT
    assert rows["audit"][0]["messages"] >= 3 * COUNT
    assert rows["audit"][0]["findings"] == []
    assert rows["trace"] == rows["lag"] == []
