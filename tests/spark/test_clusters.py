"""One job as users run it: its executors are other processes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill
from tests.spark.kills import QUEUES, TOPIC, in_store, written
from tests.spark.local_spark import ARCHIVE, Program, make_home
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
    assert f"\narchived {COUNT} rows\ncounted {2 * QUEUES} queues\n" in job.text
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
