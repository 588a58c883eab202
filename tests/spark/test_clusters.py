"""One job as users run it: executors in other processes, spark-submit on a cluster, Connect."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill
from tests.spark.kills import QUEUES, TOPIC, in_store, written
from tests.spark.local_spark import ARCHIVE, Program, connect_server, make_home, standalone
from tests.spark.sink_kit import stored

COUNT = 2000
_LIMIT_S = 500.0

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("store"), brokers=2) as found:
        fill(found, TOPIC, queues=QUEUES, count=COUNT, body=lambda n: b"body-%d" % n)
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


def check(job: Program, cluster: ClusterThread, counts: str, directory: Path) -> None:
    """The job says what it did, and it is so: by pyarrow, and by what the broker holds."""
    code = job.wait(_LIMIT_S)
    assert code == 0, job.text[-4000:]
    said = job.text.splitlines()  # between lines of Spark's log, where that is on the console
    assert f"archived {COUNT} rows" in said
    assert f"counted {2 * QUEUES} queues" in said
    assert written(directory / "parquet") == in_store(cluster)
    counted = {message.keys[0]: int(message.body) for message in stored(cluster, counts)}
    assert counted == {
        f"{broker}:{queue}": COUNT // 4
        for broker in ("broker-a", "broker-b")
        for queue in range(QUEUES)
    }


def arguments(cluster: ClusterThread, counts: str, directory: Path) -> list[str]:
    cluster.create_topic(counts, 1)
    more = ["--counts", counts, "--batch-rows", "1000"]
    return [cluster.namesrv, TOPIC, str(directory), *more]


def test_executors_in_other_processes(home: Path, cluster: ClusterThread, tmp_path: Path) -> None:
    job = arguments(cluster, "local_cluster", tmp_path / "out")
    command = [sys.executable, str(ARCHIVE), *job, "--master", "local-cluster[2,1,1024]"]
    with Program(command, home, tmp_path / "job.log") as program:
        check(program, cluster, "local_cluster", tmp_path / "out")


def test_submitted_to_a_master_with_two_workers(
    home: Path, cluster: ClusterThread, tmp_path: Path
) -> None:
    job = arguments(cluster, "standalone", tmp_path / "out")
    with standalone(home, tmp_path) as master:
        command = [str(home / "bin" / "spark-submit"), "--master", master,
                   "--executor-memory", "512m", str(ARCHIVE), *job]  # fmt: skip
        with Program(command, home, tmp_path / "job.log") as program:
            check(program, cluster, "standalone", tmp_path / "out")
    for number in range(2):
        assert list(tmp_path.glob(f"work-{number}/app-*/*/stderr")), "a worker had nothing to do"


def test_over_spark_connect(home: Path, cluster: ClusterThread, tmp_path: Path) -> None:
    """The client is a process without a JVM."""
    job = arguments(cluster, "connect", tmp_path / "out")
    with connect_server(home, tmp_path) as address:
        command = [sys.executable, str(ARCHIVE), *job, "--remote", address]
        with Program(command, home, tmp_path / "job.log") as program:
            check(program, cluster, "connect", tmp_path / "out")
            assert "java" not in "".join(program.family().values())
