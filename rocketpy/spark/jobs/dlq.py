"""`rocketpy spark dlq`: reports dead letters, and sends them back to their topics."""

from typing import TYPE_CHECKING, Final

import click

from rocketpy.admin.dead_letters import NOT_REQUEUED, ORIGIN_ID, ORIGIN_TOPIC, REQUEUED_FROM
from rocketpy.errors import JobError
from rocketpy.proto.topic_names import DLQ_PREFIX
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
from rocketpy.terminal.common import (
    CONTEXT,
    Position,
    confirm,
    key_values,
    namesrv_option,
    output_option,
    yes_option,
)
from rocketpy.terminal.parameters import FiniteRange
from rocketpy.terminal.render import show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REASONS: Final = ("exception", "EXCEPTION", "error", "ERROR", "reason", "_spark_error")


def dead_letters(messages: "DataFrame") -> "DataFrame":
    """Return the messages of dead letter topics, with columns for their analysis.

    Beside the columns of a read with every include these are `group`, `originTopic`, `originMsgId`
    (the broker's id of the first delivery) and `exception` (the first of the properties
    `exception`, `error`, `reason`; null without one). Neither Apache nor RocketPy records why a
    message failed; applications may write such a property before they return the message.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    def of(*names: str) -> "f.Column":  # type: ignore[name-defined]
        return f.coalesce(*(f.element_at("properties", name) for name in names))

    return (
        messages.withColumn("group", f.expr(f"substring(topic, {len(DLQ_PREFIX) + 1})"))
        .withColumn("originTopic", f.coalesce(of(*ORIGIN_TOPIC), f.col("topic")))
        .withColumn("originMsgId", f.coalesce(of(*ORIGIN_ID), f.col("msgId")))
        .withColumn("exception", of(*_REASONS))
    )


def triage(letters: "DataFrame") -> "DataFrame":
    """Count dead letters by group, origin topic, tag and exception, with their first time."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return (
        letters.groupBy("group", "originTopic", "tags", "exception")
        .agg(
            f.count("*").alias("letters"),
            f.countDistinct("originMsgId").alias("messages"),
            f.min("storeTimestamp").alias("first_seen"),
            f.max("storeTimestamp").alias("last_seen"),
            f.max("reconsumeTimes").alias("max_tries"),
            f.min("originMsgId").alias("example"),
        )
        .orderBy(f.desc("letters"), "group", "originTopic", "tags", "exception")
    )


def to_requeue(letters: "DataFrame") -> "DataFrame":
    """Return rows for the sink: each letter for its origin topic, with its location as property.

    A message keeps the properties that `rocketpy.admin` keeps.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    place = f.concat_ws("/", "group", "brokerName", "queueId", "queueOffset")
    own = f.map_filter("properties", lambda name, _: ~name.isin(*sorted(NOT_REQUEUED)))
    properties = f.map_concat(own, f.create_map(f.lit(REQUEUED_FROM), place))
    return letters.select(
        f.col("originTopic").alias("topic"),
        "keys",
        "tags",
        "body",
        "flag",
        properties.alias("properties"),
        "msgId",
    )


@click.command(
    "dlq",
    context_settings=CONTEXT,
    epilog="Example: rocketpy spark dlq readers --requeue --where \"exception like '%timeout%'\"",
)
@click.argument("group")
@time_options
@click.option(
    "--where",
    default="",
    metavar="SQL",
    help="Only letters that meet a condition on the columns of a read, originTopic, originMsgId "
    "and exception.",
)
@click.option("--requeue", is_flag=True, help="Send the letters back to their origin topics.")
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    metavar="N",
    help="With --requeue: messages per second.",
)
@yes_option
@spark_options
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - an option each
    *,
    group: str,
    start: Position,
    end: Position,
    where: str,
    requeue: bool,
    rate: float | None,
    yes: bool,
    conf: tuple[str, ...],
    master: str,
    namesrv: str,
    output: str,
) -> int:
    """Report the dead letters of a consumer GROUP; with --requeue send them back.

    Letters stay in their topic until they expire, so the next --requeue sends them again: select
    with --where or --from. Each copy keeps the message id, and its property REQUEUED_FROM is the
    location of the letter. Every group of the origin topic receives the copies.
    """
    if rate is not None and not requeue:
        raise click.UsageError("--rate needs --requeue")
    need_extra()  # parsing options needs pyarrow
    progress = progress_for(output)
    settings, options = split_conf(key_values(conf, "--conf"))
    of_reader, of_sink = deal_options(options, namesrv)
    spark = spark_session("dlq", master=master, conf=settings)
    progress("Spark started")
    with plain_errors():
        topic = group if group.startswith(DLQ_PREFIX) else DLQ_PREFIX + group
        letters = dead_letters(topic_frame(spark, namesrv, topic, start, end, of_reader))
        if where:
            letters = letters.where(where)
        rows = collected(triage(letters))
    total = sum(int(str(row["letters"])) for row in rows)
    progress(f"{total:,} dead letters")
    if not requeue:
        show(rows, output, empty=f"group {group} has no such dead letters")
        return 0
    if not total:
        raise JobError(f"group {group} has no such dead letters")
    topics = ", ".join(sorted({str(row["originTopic"]) for row in rows}))
    confirm(f"Send {total:,} dead letters back to {topics}?", yes=yes)
    with plain_errors():
        sent = to_requeue(letters)
        if rate is not None:  # in one task, which has the whole rate
            sent, of_sink = sent.coalesce(1), of_sink | {"rowsPerSecond": str(rate)}
        writer = sent.write.format("rocketmq").mode("append").options(**of_sink)
        writer.option("nameservers", namesrv).option("messageId", "column").save()
    summary({"requeued": total, "to": topics, "seconds": progress.seconds}, output)
    return 0


if __name__ == "__main__":
    main(command)
