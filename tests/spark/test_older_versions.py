"""Older versions of PySpark, from environments that `ROCKETPY_PYSPARKS` names.

It has the Python of each version, separated by colons: each environment needs PySpark, pyarrow,
numpy, pandas and the dependencies of RocketPy.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from rocketpy.store import to_arrow
from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill
from tests.spark.settings import environment

ROOT = Path(__file__).parent.parent.parent
PYTHONS = [each for each in os.environ.get("ROCKETPY_PYSPARKS", "").split(":") if each]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS or [pytest.param("", id="none")])
def test_formats_with_an_older_version(python: str, tmp_path: Path) -> None:
    if not python:
        pytest.skip("ROCKETPY_PYSPARKS names no environment")
    with ClusterThread(tmp_path / "cluster") as cluster:
        fill(cluster, "T", queues=2, count=100, body=lambda n: b"%d" % n)
        cluster.create_topic("W", 2)
        store = tmp_path / "cluster" / "broker-a"
        home = tmp_path / "home"
        env = {
            **os.environ,
            **environment(home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "PYTHONPATH": str(ROOT),
        }
        program = str(Path(__file__).with_name("older_versions.py"))
        done = subprocess.run(
            [python, program, cluster.namesrv, str(store), str(home)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        found = json.loads(done.stdout.splitlines()[-1])
        written = Counter(
            row["body"] for row in to_arrow(store, topics=["W"]).read_all().to_pylist()
        )
    assert found["batch"] == found["store"] == 100
    assert found["all rows"] == found["limited rows"] == [100, 100]
    assert max(found["limited"]) <= (100 if found["version"] >= "4.2" else 40)
    assert written == dict.fromkeys((b"%d" % number for number in range(100)), 2)
