"""`rocketpy spark replay`: sends messages of an archive, or of a topic, to a topic again."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketpy.errors import JobError
from rocketpy.spark.jobs.job_cli import (
    deal_options,
    main,
    progress_for,
    spark_options,
    split_conf,
    summary,
)
from rocketpy.spark.jobs.rows import collected, time_options, topic_frame
from rocketpy.spark.jobs.session import need_extra, plain_errors, spark_session
from rocketpy.terminal.common import CONTEXT, Position, key_values, namesrv_option, output_option
from rocketpy.terminal.parameters import FiniteRange, NonEmptyPath
from rocketpy.terminal.render import show

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SENT = ("topic", "keys", "tags", "body", "flag", "properties", "msgId")
_LIFE = "_life"
_QUEUE = ("brokerName", "queueId")
_ORDER = (*_QUEUE, _LIFE, "queueOffset")


def archive_frame(
    spark: "SparkSession", root: Path, topic: str, start: Position, end: Position
) -> "DataFrame":
    """Return the messages of a topic in an archive, in a range of time.

    Offsets may appear twice in a queue that lost messages, for different messages: the column
    `_life` is the number of such losses before the message was stored.

    Raises:
        JobError: the archive, or the topic in it, does not exist.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from rocketpy.spark.jobs.parquet_archive.files import LIFE_IN_NAME  # noqa: PLC0415
    from rocketpy.spark.jobs.parquet_archive.manifest import archived_files  # noqa: PLC0415

    paths = [str(root / each.path) for each in archived_files(root) if each.topic == topic]
    if not paths:
        raise JobError(f"the archive {root} has no messages of topic {topic}")
    life = f.regexp_extract("_metadata.file_name", LIFE_IN_NAME, 1)
    columns = {"topic": f.lit(topic), _LIFE: f.coalesce(life.try_cast("int"), f.lit(0))}
    frame = spark.read.parquet(*paths).withColumns(columns)
    stored = f.col("storeTimestamp")
    if isinstance(start, datetime):
        frame = frame.where(stored >= f.lit(start))
    if isinstance(end, datetime):
        frame = frame.where(stored < f.lit(end))
    return frame


def task_of(tasks: int) -> "Column":
    """Return the number of the task, below `tasks`, that sends the rows of a queue.

    It is that of `repartition` by the queue.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.pmod(f.hash(*_QUEUE), f.lit(tasks))


def rates_of(
    spark: "SparkSession", queues: Sequence[Mapping[str, object]], rate: float, tasks: int
) -> list[float]:
    """Divide a rate among tasks in proportion to their messages.

    So the tasks end together, and keep the rate until the end.

    Args:
        spark: the session.
        queues: rows of `counts`.
        rate: messages per second in all.
        tasks: number of parallel tasks.
    """
    rows = [(each["brokerName"], each["queueId"], each["messages"]) for each in queues]
    frame = spark.createDataFrame(rows, "brokerName string, queueId int, messages bigint")
    loads = [0] * tasks
    for task, messages in frame.select(task_of(tasks), "messages").collect():
        loads[task] += messages
    return [rate * load / sum(loads) for load in loads]


def to_send(messages: "DataFrame", topic: str, tasks: int) -> "DataFrame":
    """Return rows for the sink; one task sends all rows of a queue, in order.

    Args:
        messages: rows of the format `rocketmq`, or of `archive_frame`.
        topic: the target.
        tasks: number of parallel tasks.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    order = [name for name in _ORDER if name in messages.columns]
    frame = messages.repartition(tasks, *_QUEUE).sortWithinPartitions(*order)
    return frame.withColumn("topic", f.lit(topic)).select(*_SENT)


def counts(messages: "DataFrame") -> "DataFrame":
    """Return a row for each queue: messages, bytes of bodies, first and last time."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return (
        messages.groupBy("brokerName", "queueId")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.octet_length("body")).alias("body_bytes"),
            f.min("storeTimestamp").alias("first_stored"),
            f.max("storeTimestamp").alias("last_stored"),
        )
        .orderBy("brokerName", "queueId")
    )


def send(
    frame: "DataFrame",
    namesrv: str,
    *,
    new_ids: bool,
    options: Mapping[str, str],
    rates: Sequence[float] = (),
) -> None:
    """Send rows, and wait until brokers have acknowledged all of them.

    Args:
        frame: rows of `to_send`.
        namesrv: name servers of the target cluster.
        new_ids: whether to assign new message ids.
        options: more options of the sink.
        rates: messages per second of each task; empty: no limit.
    """
    writer = frame.write.format("rocketmq").mode("append").options(**options)
    writer = writer.option("messageId", "auto" if new_ids else "column")
    if rates:
        writer = writer.option("rowsPerSecond", ",".join(map(str, rates)))
    writer.option("nameservers", namesrv).save()


@click.command(
    "replay",
    context_settings=CONTEXT,
    epilog="Example: rocketpy spark replay orders --archive ./archive --to orders-again "
    "--rate 5000",
)
@click.argument("topic")
@click.option(
    "--archive",
    "root",
    type=NonEmptyPath(exists=True, file_okay=False, path_type=Path),
    help="Read this archive; without it the topic itself.",
)
@click.option("--to", "target", metavar="TOPIC", help="Target topic; default: the same topic.")
@click.option(
    "--to-namesrv",
    metavar="HOST:PORT[;...]",
    help="Name servers of the target cluster, if it is another one.",
)
@time_options
@click.option(
    "--where", default="", metavar="SQL", help="Only messages that meet a condition on the columns."
)
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    metavar="N",
    help="Messages a second of all tasks together.",
)
@click.option(
    "--tasks", type=click.IntRange(1), default=4, show_default=True, help="Number of sending tasks."
)
@click.option("--new-ids", is_flag=True, help="Assign new message ids.")
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
@spark_options
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - an option each
    *,
    topic: str,
    root: Path | None,
    target: str | None,
    to_namesrv: str | None,
    start: Position,
    end: Position,
    where: str,
    rate: float | None,
    tasks: int,
    new_ids: bool,
    dry_run: bool,
    conf: tuple[str, ...],
    master: str,
    namesrv: str,
    output: str,
) -> int:
    """Send the messages of TOPIC once more, with their keys, tags, properties and ids.

    Delivery is at least once: a repeated task sends its messages again, with the same property
    _spark_id. The range of messages is fixed when the job starts, so a replay into the same topic
    ends.
    """
    need_extra()  # parsing options needs pyarrow
    progress = progress_for(output)
    settings, options = split_conf(key_values(conf, "--conf"))
    to_servers = to_namesrv or namesrv
    of_reader, of_sink = deal_options(options, to_servers, is_read=root is None)
    spark = spark_session("replay", master=master, conf=settings)
    progress("Spark started")
    with plain_errors():
        if root is not None:
            messages = archive_frame(spark, root, topic, start, end)
        else:
            messages = topic_frame(spark, namesrv, topic, start, end, of_reader)
        if where:
            messages = messages.where(where)
        rows = collected(counts(messages))
        total = sum(int(str(row["messages"])) for row in rows)
        progress(f"{total:,} messages in {len(rows)} queues")
        if dry_run:
            show(rows, output, empty="nothing would be sent")
            return 0
        if not total:
            raise JobError(f"topic {topic} has no messages to send")
        if rate is not None:  # tasks that wait for others would not use their share of the rate
            tasks = min(tasks, spark.sparkContext.defaultParallelism)
        rates = [] if rate is None else rates_of(spark, rows, rate, tasks)
        frame = to_send(messages, target or topic, tasks)
        send(frame, to_servers, new_ids=new_ids, options=of_sink, rates=rates)
    summary(
        {
            "messages": total,
            "from": f"{root or namesrv} {topic}",
            "to": f"{to_servers} {target or topic}",
            "seconds": progress.seconds,
        },
        output,
    )
    return 0


if __name__ == "__main__":
    main(command)
