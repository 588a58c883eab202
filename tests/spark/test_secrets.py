"""A secret given as a plain option is in no plan, no page of the UI and no error."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "s3cr3t-4711"


def plans_in_the_ui(spark: "SparkSession") -> str:
    """Return the descriptions of all executed queries, as the UI shows them."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    each = [found.apply(number) for number in range(found.size())]
    return "\n".join(f"{one.description()}\n{one.physicalPlanDescription()}" for one in each)


def test_plain_secret_is_in_no_plan_ui_or_error(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = {"accessKey": "shop", "secretKey": SECRET, "securityToken": SECRET}
    with ClusterThread(tmp_path / "cluster") as cluster:
        fill(cluster, "T", queues=1, count=20, body=lambda n: b"%d" % n)
        cluster.create_topic("W", 1)
        options = {"nameservers": cluster.namesrv, **account}
        reader = spark.read.format("rocketmq").options(**options, subscribe="T")
        frame = reader.load().select("body")
        assert frame.count() == 20
        frame.explain("extended")
        frame.explain("formatted")
        shown = frame._jdf.queryExecution().toString()
        writer = frame.write.format("rocketmq").mode("append")
        writer.options(**options, topic="W").save()
        stream = spark.readStream.format("rocketmq").options(
            **options, subscribe="T", startingOffsets="earliest"
        )
        query = (
            stream.load()
            .select("body")
            .writeStream.format("rocketmq")
            .options(**options, topic="W", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(extended=True)
        shown += "".join(each.json for each in query.recentProgress)
        with pytest.raises(PySparkException) as caught:
            spark.read.format("rocketmq").options(**options, subscribe="None").load().count()
        shown += str(caught.value)
    output = capsys.readouterr()
    shown += output.out + output.err + plans_in_the_ui(spark)
    assert "rocketmq" in shown
    assert SECRET not in shown
