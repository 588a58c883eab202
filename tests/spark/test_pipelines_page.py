"""The Python code of docs/spark-pipelines.md runs, one block after the other."""

import re
from collections import Counter
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from rocketpy.store import to_arrow
from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "spark-pipelines.md"
ADDRESS = "127.0.0.1:9876"
TOPICS = ("orders-upper", "orders-slow")


def run_block(source: CodeType, names: dict[str, Any]) -> None:
    """Run a block; repeat it when Spark gave up waiting, as it does on a busy machine."""
    while True:
        try:
            exec(source, names)
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return


@pytest.mark.timeout(900)
def test_page_runs(spark: "SparkSession", tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    home = tmp_path / "home"
    names: dict[str, Any] = {"spark": spark, "home": str(home)}
    with ClusterThread(tmp_path / "cluster") as cluster:
        fill(cluster, "orders", queues=2, count=60, body=lambda n: b"body-%d" % n)
        for topic in TOPICS:
            cluster.create_topic(topic, 1)
        for number, code in enumerate(blocks):
            source = compile(code.replace(ADDRESS, cluster.namesrv), f"block {number}", "exec")
            run_block(source, names)

    by_batch = [pq.read_table(each) for each in (home / "by-batch").iterdir()]
    assert sum(each.num_rows for each in by_batch) == 60
    rows = to_arrow(tmp_path / "cluster" / "broker-a").read_all().to_pylist()
    assert Counter(row["topic"] for row in rows) == {
        "orders": 60, "orders-upper": 60, "orders-slow": 20 + 5,
    }  # fmt: skip
    assert {row["body"] for row in rows if row["topic"] == "orders-upper"} == {
        b"BODY-%d" % number for number in range(60)
    }
    slow = [r["storeTimestamp"].timestamp() for r in rows if r["topic"] == "orders-slow"][:20]
    assert max(slow) - min(slow) >= 0.8 * (20 - 5) / 50  # rows of a tenth of a second come at once
    # Events reach listeners later, perhaps after the block has removed its listener.
    assert all(name == "watched" and lag >= 0 for name, lag in names["lags"])
