"""Command `rocketpy spark archive --format delta`, if Delta has a jar for this Spark."""

import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pyspark
import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import Row, fill, stored
from tests.spark.local_spark import Program, make_home

DELTA = {"4.2": "4.4.0"}
"""Delta's release for each release of Spark: a jar refuses any other."""
POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rocketpy</groupId><artifactId>test-delta</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>io.delta</groupId><artifactId>delta-spark_{spark}_2.13</artifactId>
    <version>{delta}</version>
  </dependency></dependencies>
</project>
"""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Delta's jars from Maven Central."""
    spark = ".".join(pyspark.__version__.split(".")[:2])
    if spark not in DELTA:
        pytest.skip(f"there is no Delta for Spark {spark}, only for {', '.join(DELTA)}")
    if shutil.which("mvn") is None:
        pytest.skip("Delta's jars need Maven")
    home = tmp_path_factory.mktemp("jars")
    (home / "pom.xml").write_text(POM.format(spark=spark, delta=DELTA[spark]))
    command = ["mvn", "-q", "-B", "-f", str(home / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={home}", "-DincludeGroupIds=io.delta"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Maven does not resolve Delta: {done.stdout[-300:]}")
    return sorted(home.glob("*.jar"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("store"), brokers=2) as running:
        fill(running, "T", queues=2, count=500)
        yield running


def table(root: Path) -> Counter[Row]:
    """Read a Delta table by its log, without Delta and without Spark."""
    live: set[str] = set()
    for entry in sorted((root / "_delta_log").glob("*.json")):
        for line in map(json.loads, entry.read_text().splitlines()):
            live |= {line["add"]["path"]} if "add" in line else set()
            live -= {line["remove"]["path"]} if "remove" in line else set()
    found: Counter[Row] = Counter()
    for path in live:
        assert re.match(r"topic=T/date=\d{4}-\d\d-\d\d/", path)
        for row in pq.ParquetFile(root / unquote(path)).read().to_pylist():
            crc = zlib.crc32(row["body"])
            found[row["brokerName"], row["queueId"], row["queueOffset"], crc] += 1
    return found


def test_delta_table_with_a_repeated_batch_has_each_message_once(
    cluster: ClusterThread, jars: list[Path], tmp_path: Path
) -> None:
    root, home = tmp_path / "table", make_home(tmp_path)

    def archived() -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "rocketpy.spark.jobs.archive", "T", "--format", "delta"]
        command += ["-n", cluster.namesrv, "--to", str(root), "--batch-rows", "200"]
        command += ["--master", "local[2,3]", "--conf", f"spark.jars={','.join(map(str, jars))}"]
        with Program(command, home, tmp_path / "job.log") as program:
            assert program.wait(400) == 0, program.text[-4000:]
        return [
            line["txn"]
            for entry in sorted((root / "_delta_log").glob("*.json"))
            for line in map(json.loads, entry.read_text().splitlines())
            if "txn" in line
        ]

    before = archived()
    assert table(root) == stored(cluster, "T")
    commits = root / "_checkpoint" / "commits"
    last = max(int(each.name) for each in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()  # like a kill after Delta committed the batch
    (commits / f".{last}.crc").unlink()
    fill(cluster, "T", queues=2, count=130, first=500)
    after = archived()

    assert table(root) == stored(cluster, "T")
    assert {each["appId"] for each in after} == {before[0]["appId"]}
    versions = [each["version"] for each in after]
    assert versions == sorted(set(versions))
    assert versions[: len(before)] == [each["version"] for each in before]
