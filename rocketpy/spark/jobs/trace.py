"""`rocketpy spark trace`: latencies and failures, from the trace topic."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rocketpy.proto.trace import CONSUME_FAILED, CONSUME_RAISED, CONSUME_TIMED_OUT, TRACE_TOPIC
from rocketpy.spark.jobs.job_cli import main, progress_for, spark_options, split_conf, summary
from rocketpy.spark.jobs.rows import collected, time_options, topic_frame
from rocketpy.spark.jobs.session import plain_errors, spark_session
from rocketpy.terminal.common import CONTEXT, Position, key_values, namesrv_option, output_option
from rocketpy.terminal.parameters import NonEmptyPath
from rocketpy.terminal.render import show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OUTCOMES: Final = {
    "timed_out": CONSUME_TIMED_OUT,
    "raised": CONSUME_RAISED,
    "failed": CONSUME_FAILED,
}


def events_of(messages: "DataFrame") -> "DataFrame":
    """Return the distinct events of trace messages, with the columns of `trace_events.EVENTS`.

    Args:
        messages: rows with `body` and `bornHost`.
    """
    from rocketpy.spark.jobs.trace_events import EVENTS_DDL, decode_batches  # noqa: PLC0415

    decoded = messages.select("body", "bornHost").mapInArrow(decode_batches, EVENTS_DDL)
    return decoded.dropDuplicates()  # clients send a trace again when its acknowledgement is lost


def send_report(events: "DataFrame") -> "DataFrame":
    """Return sends, latencies and failures by topic and producer group."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return (
        events.where("kind = 'send'")
        .groupBy("topic", "group")
        .agg(
            f.count("*").alias("sent"),
            f.count_if(~f.col("success")).alias("failed"),
            *_percentiles("cost_ms", "send"),
        )
        .orderBy("topic", "group")
    )


def consume_report(events: "DataFrame") -> "DataFrame":
    """Return deliveries, latencies and failures by topic, consumer group and host.

    `store_to_consume` is the time from the end of the send to the start of the first delivery, by
    the clocks of both hosts; `handle` is the duration of the handler; `retried` counts deliveries
    after the first one. Messages without a recorded send have no topic and no latency.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    sends = (
        events.where("kind = 'send'")
        .groupBy("msg_id")
        .agg(f.first("topic").alias("topic"), f.min(f.expr("time_ms + cost_ms")).alias("stored_ms"))
    )
    ends = (
        events.where("kind = 'end'")
        .groupBy("request_id", "msg_id")
        .agg(
            f.max("cost_ms").alias("cost_ms"),
            f.max("outcome").alias("outcome"),
            f.min("success").alias("success"),
        )
    )
    begins = events.where("kind = 'begin'").select(
        "time_ms", "group", "msg_id", "request_id", "host", "retries"
    )
    spans = begins.join(ends, ["request_id", "msg_id"], "left").join(sends, "msg_id", "left")
    waited = f.when(f.col("retries") == 0, f.col("time_ms") - f.col("stored_ms"))
    counts = [f.count_if(f.col("outcome") == code).alias(name) for name, code in _OUTCOMES.items()]
    return (
        spans.withColumn("waited_ms", waited)
        .groupBy("topic", "group", "host")
        .agg(
            f.count("*").alias("deliveries"),
            f.count_if(f.col("retries") > 0).alias("retried"),
            f.count_if(f.col("success").isNull()).alias("unfinished"),
            f.count_if(~f.col("success")).alias("unsuccessful"),
            *counts,
            *_percentiles("waited_ms", "store_to_consume"),
            *_percentiles("cost_ms", "handle"),
        )
        .orderBy("topic", "group", "host")
    )


def _percentiles(column: str, name: str) -> list[Any]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return [
        f.round(f.percentile(column, percent / 100), 1).alias(f"{name}_p{percent}_ms")
        for percent in (50, 99)
    ]


@click.command(
    "trace", context_settings=CONTEXT, epilog="Example: rocketpy spark trace --from 1h -o json"
)
@click.option(
    "--topic", "trace_topic", default=TRACE_TOPIC, show_default=True, help="Topic with the traces."
)
@click.option("--of", "wanted", default="", metavar="TOPIC", help="Only messages of this topic.")
@time_options
@click.option(
    "--to",
    "folder",
    type=NonEmptyPath(file_okay=False, path_type=Path),
    help="Also write both reports as Parquet into this directory: sends/ and consumptions/.",
)
@spark_options
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - an option each
    *,
    trace_topic: str,
    wanted: str,
    start: Position,
    end: Position,
    folder: Path | None,
    conf: tuple[str, ...],
    master: str,
    namesrv: str,
    output: str,
) -> int:
    """Report latencies (median and 99th percentile) and failures of sends and consumptions.

    The reports cover clients with tracing enabled: trace=True, enableMsgTrace.
    """
    progress = progress_for(output)
    settings, options = split_conf(key_values(conf, "--conf"))
    spark = spark_session("trace", master=master, conf=settings)
    progress("Spark started")
    with plain_errors():
        messages = topic_frame(
            spark, namesrv, trace_topic, start, end, options, columns=["body", "bornHost"]
        )
        events = events_of(messages).cache()
        if wanted:
            ids = events.where(events.topic == wanted).select("msg_id").distinct()
            events = events.join(ids, "msg_id", "left_semi").cache()
        count = events.count()
        progress(f"{count:,} events")
        sends, consumptions = send_report(events), consume_report(events)
        if folder is not None:
            sends.write.mode("overwrite").parquet(str(folder / "sends"))
            consumptions.write.mode("overwrite").parquet(str(folder / "consumptions"))
        sent_rows, consumed_rows = collected(sends), collected(consumptions)
    if output == "json":
        rows = [{"report": "sends", **row} for row in sent_rows]
        rows += [{"report": "consumptions", **row} for row in consumed_rows]
        show(rows, output)
        return 0
    show(sent_rows, output, empty="no send was traced")
    click.echo("")
    show(consumed_rows, output, empty="no consumption was traced")
    click.echo("")
    summary({"events": count, "seconds": progress.seconds}, output)
    return 0


if __name__ == "__main__":
    main(command)
