"""Broken installations, misspelt options, and progress of streams."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rocketpy.spark
from rocketpy.spark.lag import StreamLag
from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("cluster")) as running:
        fill(running, "T", queues=2, count=500)
        yield running


@pytest.mark.parametrize("broken", ["rocketpy", "numpy", "pyarrow"])
@pytest.mark.parametrize(
    ("package", "name"),
    [("pyspark_rocketmq", "rocketmq"), ("pyspark_rocketmq_store", "rocketmq.store")],
)
def test_broken_installation_leaves_other_data_sources_usable(
    tmp_path: Path, broken: str, package: str, name: str
) -> None:
    (tmp_path / f"{broken}.py").write_text("raise RuntimeError('broken')")
    code = f"import {package} as m; print(m.DefaultSource.name())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == f"{name}\n", done.stderr


def test_misspelt_option_and_unknown_topic_are_reported(
    spark: "SparkSession", cluster: ClusterThread
) -> None:
    reader = spark.read.format("rocketmq").option("nameservers", cluster.namesrv)
    with pytest.raises(Exception, match="startingofsets: no such option; did you mean starting"):
        reader.options(subscribe="T", startingOfsets="earliest").load().count()
    reader = spark.read.format("rocketmq").option("nameservers", cluster.namesrv)
    with pytest.raises(Exception, match="no topic Nowhere"):
        reader.option("subscribe", "Nowhere").load().count()


def test_stream_progress_has_the_lag(
    spark: "SparkSession", cluster: ClusterThread, tmp_path: Path
) -> None:
    found: list[StreamLag] = []
    listener = rocketpy.spark.lag_listener(found.append)
    spark.streams.addListener(listener)
    try:
        frame = spark.readStream.format("rocketmq").options(
            nameservers=cluster.namesrv,
            subscribe="T",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="200",
        )
        writer = frame.load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)

    assert [lag.total for lag in found][:4] == [500, 300, 100, 0]
