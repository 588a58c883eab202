"""`rocketpy spark audit`: checks records and queues of a store directory against each other."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rocketpy.spark.jobs.job_cli import main, progress_for, spark_options, split_conf, summary
from rocketpy.spark.jobs.session import LOCAL_MASTER, need_extra, plain_errors, spark_session
from rocketpy.terminal.common import CONTEXT, key_values, output_option
from rocketpy.terminal.parameters import NonEmptyPath
from rocketpy.terminal.render import show

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rocketpy.spark.jobs.audit_store import Audit, Store

EXIT_DAMAGED: Final = 4
"""Exit code of an audit with findings."""
_SHOWN_MAX: Final = 1000
_RESULT_DDL: Final = "result string"


def audit_here(store: "Store", say: Callable[[str], None]) -> "Audit":
    """Run all checks in this process, one after the other.

    Args:
        store: the directory.
        say: called with a line about the progress.
    """
    from rocketpy.spark.jobs.audit_store import Audit, run_task, tasks_of  # noqa: PLC0415

    done = Audit()
    tasks = tasks_of(store)
    for number, task in enumerate(tasks, 1):
        done.add(run_task(store, *task))
        say(f"{number} of {len(tasks)} files and queues, {done.records:,} messages")
    return done


def audit_with_spark(spark: "SparkSession", store: "Store") -> "Audit":
    """Run all checks as tasks of Spark; executors need the directory under the same path."""
    from rocketpy.spark.jobs.audit_store import Audit, tasks_of  # noqa: PLC0415

    def run(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        from rocketpy.spark.jobs.audit_store import run_task  # noqa: PLC0415

        for batch in batches:
            for task in batch.to_pylist():
                found = encode_audit(run_task(store, task["kind"], task["number"]))
                yield pa.RecordBatch.from_pydict({"result": [found]})

    tasks = tasks_of(store)
    frame = spark.createDataFrame(tasks, "kind string, number int")
    # Round robin, because tasks of queues are much cheaper than those of log files.
    results = frame.repartition(min(len(tasks), 256)).mapInArrow(run, _RESULT_DDL)
    done = Audit()
    for row in results.toLocalIterator():
        done.add(decode_audit(row["result"]))
    return done


def encode_audit(audit: "Audit") -> str:
    """Encode the result of a task as JSON."""
    from dataclasses import astuple  # noqa: PLC0415

    days = [[topic, day, size_bytes] for (topic, day), size_bytes in audit.days.items()]
    return json.dumps(
        [
            [astuple(each) for each in audit.findings],
            audit.records,
            audit.entries,
            audit.pending,
            audit.size_bytes,
            days,
        ]
    )


def decode_audit(text: str) -> "Audit":
    """Decode the result of `encode_audit`."""
    from rocketpy.spark.jobs.audit_store import Audit, Finding  # noqa: PLC0415

    findings, records, entries, pending, size_bytes, days = json.loads(text)
    return Audit(
        [Finding(*each) for each in findings],
        records,
        entries,
        pending,
        size_bytes,
        {(topic, day): size for topic, day, size in days},
    )


@click.command(
    "audit", context_settings=CONTEXT, epilog="Example: rocketpy spark audit ./data/store"
)
@click.argument("store", type=NonEmptyPath(exists=True, file_okay=False, path_type=Path))
@click.option("--here", is_flag=True, help="Run in this process, without Spark.")
@click.option("--days", is_flag=True, help="Also print bytes by topic and day.")
@spark_options
@output_option
def command(
    *, store: Path, here: bool, days: bool, conf: tuple[str, ...], master: str, output: str
) -> int:
    """Check a store directory of RocketPy or Apache, live or a copy. Nothing is changed.

    The audit checks the lengths and the checksum of every record in the commit log, that every
    entry of the consume queues points to a message of its topic, queue, offset and tag, and that
    the queue of every message has an entry for it. It prints a line for each damaged message;
    the exit code is 4 if there is any.

    Not checked: fields without a checksum (times, hosts, properties other than the tag), queues
    of batch topics, the index.
    """
    need_extra(*(("pyarrow", "numpy") if here else ()))
    if here and (conf or master != LOCAL_MASTER):
        raise click.UsageError("--here excludes --conf and --master")
    from rocketpy.spark.jobs.audit_store import Store, by_message  # noqa: PLC0415

    progress = progress_for(output)
    found = Store.find(store)
    progress(f"{len(found.logs)} files of the log, {len(found.queues)} queues")
    if here:
        done = audit_here(found, lambda line: progress(line, always=False))
    else:
        settings, options = split_conf(key_values(conf, "--conf"))
        if options:
            raise click.UsageError(f"--conf rocketmq.{min(options)}: no topic is read or written")
        spark = spark_session("audit", master=master, conf=settings)
        progress("Spark started")
        with plain_errors():
            done = audit_with_spark(spark, found)
    findings = by_message(done.findings)
    rows = [
        {
            "phy_offset": each.phy_offset,
            "topic": each.topic,
            "queue": each.queue_id,
            "offset": each.queue_offset,
            "problem": each.problem,
        }
        for each in findings[:_SHOWN_MAX]
    ]
    by_day = [
        {"topic": topic, "date": day, "bytes": size_bytes}
        for (topic, day), size_bytes in sorted(done.days.items())
    ]
    total = {
        "messages": done.records,
        "bytes": done.size_bytes,
        "entries": done.entries,
        "not_yet_in_a_queue": done.pending,
        "damaged": len(findings),
        "seconds": progress.seconds,
    }
    if output == "json":
        summary(total | {"findings": rows, "days": by_day if days else []}, output)
    else:
        show(rows, output)
        if days:
            show(by_day, output)
        summary(total, output)
    return EXIT_DAMAGED if findings else 0


if __name__ == "__main__":
    main(command)
