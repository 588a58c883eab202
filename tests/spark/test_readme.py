"""The Spark code of the README runs unchanged in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rocketpy.store import to_arrow
from rocketpy.testing.cluster import ClusterThread
from tests.docs.test_readme import SPARK
from tests.spark.fill import fill
from tests.spark.local_spark import make_home
from tests.spark.settings import environment

SERVERS = "127.0.0.1:9876"

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("code", SPARK)
def test_readme_program_runs(code: str, tmp_path: Path) -> None:
    with ClusterThread(tmp_path / "cluster") as cluster:
        fill(cluster, "orders", queues=2, count=60, body=lambda n: b"%d" % n)
        cluster.create_topic("orders-copy", 2)
        home = make_home(tmp_path)
        places = {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(home / "conf")}
        env = {**os.environ, **environment(home), **places}
        assert SERVERS in code
        done = subprocess.run(
            [sys.executable, "-c", code.replace(SERVERS, cluster.namesrv)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "orders.parquet").num_rows == 60
    found = to_arrow(tmp_path / "cluster" / "broker-a").read_all().to_pylist()
    copies = [row for row in found if row["topic"] == "orders-copy"]
    assert sorted(int(row["body"]) for row in copies) == list(range(60))
    assert {row["tags"] for row in copies} == {"TagA", "TagB", "TagC"}
