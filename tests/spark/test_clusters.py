"""Jobs as users run them: executors in other processes, spark-submit on a cluster, Connect.

The cluster also uses speculative execution: a slow task runs twice, and the output of its slower
attempt must not count.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill
from tests.spark.fill import stored as rows_in_store
from tests.spark.kills import QUEUES, TOPIC, written
from tests.spark.local_spark import ARCHIVE, Program, connect_server, make_home, standalone
from tests.spark.sink_kit import assert_equal_ids_are_equal_rows, stored
from tests.spark.speculation import ROWS
from tests.spark.test_flights_demo import write_tables
from tests.unit.spark.jobs.kit import in_archive

SPECULATION = Path(__file__).with_name("speculation.py")
FLIGHTS = ARCHIVE.with_name("flights_spark_job.py")
COUNT = 2000
_LIMIT_S = 500.0

CONNECT = """
import sys
from pyspark.sql import SparkSession
import rocketpy.spark

address, namesrv, topic, home = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
options = {"nameservers": namesrv, "subscribe": topic}
found = spark.read.format("rocketmq").options(**options).load().count()
rocketpy.spark.register(spark)
stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **options).load()
writer = stream.select("brokerName", "queueId", "queueOffset").writeStream
writer = writer.option("checkpointLocation", home + "/c")
writer.trigger(availableNow=True).start(home + "/out", format="parquet").awaitTermination()
print("FOUND", found)
spark.stop()
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("store"), brokers=2) as found:
        fill(found, TOPIC, queues=QUEUES, count=COUNT, body=lambda n: b"body-%d" % n)
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


class Workers(NamedTuple):
    """Master with two workers."""

    master: str
    directory: Path

    def runs(self) -> Counter[str]:
        """Count the executors that each worker has run so far."""
        places = self.directory.glob("work-*/app-*/*/stderr")
        return Counter(each.relative_to(self.directory).parts[0] for each in places)


@pytest.fixture(scope="module")
def workers(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    directory = tmp_path_factory.mktemp("workers")
    with standalone(home, directory) as master:
        yield Workers(master, directory)


def check(job: Program, cluster: ClusterThread, counts: str, directory: Path) -> None:
    """Check the output of the job, by pyarrow and by the messages of the broker."""
    code = job.wait(_LIMIT_S)
    assert code == 0, job.text[-4000:]
    said = job.text.splitlines()  # among lines of Spark's log, where that is on the console
    assert f"archived {COUNT} rows" in said
    assert f"counted {2 * QUEUES} queues" in said
    assert written(directory / "parquet") == rows_in_store(cluster, TOPIC)
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


def test_job_with_executors_in_other_processes(
    home: Path, cluster: ClusterThread, tmp_path: Path
) -> None:
    job = arguments(cluster, "local_cluster", tmp_path / "out")
    command = [sys.executable, str(ARCHIVE), *job, "--master", "local-cluster[2,1,1024]"]
    with Program(command, home, tmp_path / "job.log") as program:
        check(program, cluster, "local_cluster", tmp_path / "out")


def submit(home: Path, workers: Workers, *words: str) -> list[str]:
    submit = str(home / "bin" / "spark-submit")
    return [submit, "--master", workers.master, "--executor-memory", "512m", *words]


@pytest.mark.long
def test_job_submitted_to_a_standalone_cluster(
    home: Path, cluster: ClusterThread, workers: Workers, tmp_path: Path
) -> None:
    before = workers.runs()
    job = arguments(cluster, "standalone", tmp_path / "out")
    with Program(submit(home, workers, str(ARCHIVE), *job), home, tmp_path / "job.log") as program:
        check(program, cluster, "standalone", tmp_path / "out")
    assert (workers.runs() - before).keys() == {"work-0", "work-1"}, "one had nothing to do"


@pytest.mark.long
def test_speculative_task_counts_once(
    home: Path, cluster: ClusterThread, workers: Workers, tmp_path: Path
) -> None:
    cluster.create_topic("sunk", 2)
    command = submit(home, workers, str(SPECULATION), cluster.namesrv, "sunk", TOPIC, str(tmp_path))
    with Program(command, home, tmp_path / "job.log") as program:
        assert program.wait(_LIMIT_S) == 0, program.text[-4000:]
        assert f"archived {COUNT}\n" in program.text
    for what in ("sink", "archive"):
        attempts = {each.name for each in tmp_path.glob(f"{what}-*")}
        assert attempts >= {f"{what}-0", f"{what}-1"}, attempts

    written_twice = stored(cluster, "sunk")
    assert_equal_ids_are_equal_rows(written_twice, ROWS)
    assert {int(message.body) for message in written_twice} == set(range(ROWS))
    once = Counter((TOPIC, *row[:3]) for row in rows_in_store(cluster, TOPIC))
    assert in_archive(tmp_path / "archive") == once


@pytest.fixture(scope="module")
def connect(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("grpc_status")
    with connect_server(home, tmp_path_factory.mktemp("connect")) as address:
        yield address


def test_job_over_spark_connect(
    home: Path, cluster: ClusterThread, connect: str, tmp_path: Path
) -> None:
    """The client is a process without a JVM."""
    job = arguments(cluster, "connect", tmp_path / "out")
    command = [sys.executable, str(ARCHIVE), *job, "--remote", connect]
    with Program(command, home, tmp_path / "job.log") as program:
        check(program, cluster, "connect", tmp_path / "out")
        assert "java" not in "".join(program.family().values())


@pytest.mark.long
def test_connect_reads_batches_and_registered_streams(
    home: Path, cluster: ClusterThread, connect: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CONNECT, connect, cluster.namesrv, TOPIC, str(tmp_path)]
    with Program(command, home, tmp_path / "job.log") as program:
        assert program.wait(_LIMIT_S) == 0, program.text[-4000:]
        assert f"FOUND {COUNT}\n" in program.text
    files = [pq.ParquetFile(each).read() for each in (tmp_path / "out").glob("*.parquet")]
    found = Counter(tuple(row.values()) for table in files for row in table.to_pylist())
    assert found == Counter(row[:3] for row in rows_in_store(cluster, TOPIC))


# ---- the jobs of `make demo-spark`


@pytest.fixture
def flights(tmp_path: Path) -> Iterator[ClusterThread]:
    """Broker with all departures, and their tables."""
    write_tables(tmp_path)
    lines = (tmp_path / "flights.csv").read_bytes().splitlines()[1:]
    with ClusterThread(tmp_path / "brokers") as running:
        fill(running, "departures", queues=4, count=len(lines), body=lines.__getitem__)
        running.create_topic("departure-delays", 1)
        yield running


@pytest.fixture(params=["local-cluster", "standalone", "connect"])
def flights_job(request: pytest.FixtureRequest, home: Path) -> list[str]:
    """Return the command for the job's file in each environment."""
    if request.param == "connect":
        return [sys.executable, str(FLIGHTS), "--remote", request.getfixturevalue("connect")]
    if request.param == "standalone":
        return submit(home, request.getfixturevalue("workers"), str(FLIGHTS))
    words = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=768m"]
    return [str(home / "bin" / "spark-submit"), *words, str(FLIGHTS)]


@pytest.mark.long
def test_flights_job_in_every_environment(
    home: Path, flights: ClusterThread, flights_job: list[str], tmp_path: Path
) -> None:
    table, results = tmp_path / "flights", tmp_path / "results.json"
    both = ["--namesrv", flights.namesrv]
    tables = ["--flights", str(table), "--tables", str(tmp_path)]
    for words in (
        ["stream", *both, "--to", str(table), "--batch-rows", "1000"],
        ["analyse", *both, "--to", str(results), *tables],
    ):
        with Program([*flights_job, *words], home, tmp_path / "job.log") as program:
            assert program.wait(_LIMIT_S) == 0, program.text[-4000:]

    found = ds.dataset(table, partitioning="hive", format="parquet")
    places = found.to_table(columns=["brokerName", "queueId", "queueOffset"]).to_pylist()
    wanted = Counter(row[:3] for row in rows_in_store(flights, "departures"))
    assert Counter(tuple(row.values()) for row in places) == wanted
    said = json.loads(results.read_text())
    assert said["executors"] == (0 if "--remote" in flights_job else 2)
    assert {row["airline"] for row in said["results"]["carrier"]} == {"United", "American"}
    in_results = {name: len(rows) for name, rows in said["results"].items()}
    assert said["in_topic"] == in_results
    assert len(stored(flights, "departure-delays")) == sum(in_results.values())
