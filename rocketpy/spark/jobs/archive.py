"""`rocketpy spark archive`: writes topics to Parquet files, each message exactly once."""

import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rocketpy.errors import JobError
from rocketpy.spark.jobs.job_cli import (
    Progress,
    main,
    progress_for,
    spark_options,
    split_conf,
    summary,
)
from rocketpy.spark.jobs.rows import range_options
from rocketpy.spark.jobs.session import need_extra, spark_session
from rocketpy.spark.jobs.stream_run import exit_code, run_stream
from rocketpy.terminal.common import CONTEXT, Position, key_values, namesrv_option, output_option
from rocketpy.terminal.common import position as position_type
from rocketpy.terminal.parameters import NonEmptyPath, is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog

BATCH_ROWS: Final = 2_000_000
_QUERY_ID: Final = "sql.streaming.queryId"
_DELTA: Final = "io.delta:delta-spark_2.13"
_OTHER_SPARK: Final = re.compile(
    r"java\.lang\.(NoSuch(Method|Field)|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error"
)
"""Errors of a jar that was compiled against another version of Spark."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ArchiveRequest:
    """Parameters of an archive run.

    Attributes:
        topics: comma-separated names; empty for a pattern in `options`.
        namesrv: name servers of the cluster.
        root: directory of the archive, which must have this path on every worker; for Delta also
            a URL.
        every_s: seconds between batches; None: archive the current messages, then end.
        batch_rows: most messages of a batch.
        compact_every: small files are merged after this many batches, and at the end; 0: never.
        compression: of Parquet.
        options: more options of the reader.
    """

    topics: str
    namesrv: str
    root: Path | str
    every_s: int | None = None
    batch_rows: int = BATCH_ROWS
    compact_every: int = 20
    compression: str = "snappy"
    options: Mapping[str, str] = field(default_factory=dict)

    def reader_options(self) -> dict[str, str]:
        """Return the options of the stream."""
        found = {
            "nameservers": self.namesrv,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.batch_rows),
        }
        if self.topics:
            found["subscribe"] = self.topics
        if any(name.lower().startswith("starting") for name in self.options):
            del found["startingOffsets"]
        return found | dict(self.options)


@dataclass(slots=True)
class Archived:
    """Result of an archive run.

    Attributes:
        messages: archived messages.
        files: written files, before compaction.
        size_bytes: of those files.
        batches: batches with messages.
        merged: small files that were merged.
        stopped_by: signal that ended the run early.
    """

    messages: int = 0
    files: int = 0
    size_bytes: int = 0
    batches: int = 0
    merged: int = 0
    stopped_by: int | None = None


def archive(spark: "SparkSession", wanted: ArchiveRequest, log: "ArchiveLog", say: Say) -> Archived:
    """Archive the current messages of topics, or new ones too until the query is stopped.

    Args:
        spark: the session; classic, not Connect.
        wanted: topics, directory and options.
        log: of the archive.
        say: called with a line about each batch.

    Raises:
        JobError: the query failed; the next run resumes where this one ended.
    """
    from rocketpy.spark.jobs.parquet_archive.compaction import compact  # noqa: PLC0415
    from rocketpy.spark.jobs.parquet_archive.source import (  # noqa: PLC0415
        COMPRESSION,
        FORMAT,
        ROOT,
        ArchiveSource,
        reported,
    )

    done = Archived()

    def merge() -> None:
        merged = compact(log, compression=wanted.compression)
        done.merged += merged.files_before
        if merged.files_before:
            say(f"{merged.files_before} small files became {merged.files_after}")

    def take(frame: "DataFrame", batch: int) -> None:
        query = _query_id(frame)
        if log.has(
            query, batch
        ):  # an earlier run was killed between the manifest and Spark's commit
            return
        pieces, ends, cut = reported(frame.collect())
        log.commit(query, batch, pieces, ends, cut)
        rows = sum(each.file.rows for each in pieces)
        done.messages += rows
        done.files += len(pieces)
        done.size_bytes += sum(each.file.size_bytes for each in pieces)
        done.batches += bool(rows)
        if rows:
            say(
                f"batch {batch}: {rows:,} messages in {len(pieces)} files, {done.messages:,} in all"
            )
        if wanted.compact_every and batch % wanted.compact_every == wanted.compact_every - 1:
            merge()

    spark.dataSource.register(ArchiveSource)
    options = wanted.reader_options() | {ROOT: str(wanted.root), COMPRESSION: wanted.compression}
    stream = spark.readStream.format(FORMAT).options(**options).load()
    done.stopped_by = run_stream(stream, take, wanted.root, wanted.every_s)
    if wanted.compact_every and done.stopped_by is None:
        merge()
    return done


def archive_to_delta(spark: "SparkSession", wanted: ArchiveRequest, say: Say) -> Archived:
    """Archive topics in a Delta table, partitioned by topic and date; needs Delta's jar.

    A repeated batch is written once: Delta stores the last batch of each application id, which is
    the id of the query.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    done = Archived()

    def take(frame: "DataFrame", batch: int) -> None:
        query = _query_id(frame)
        rows = frame.withColumn("date", f.to_date("storeTimestamp")).persist()
        writer = rows.write.format("delta").mode("append").partitionBy("topic", "date")
        writer = writer.option("txnAppId", query).option("txnVersion", batch)
        writer.save(str(wanted.root))
        count = rows.count()
        rows.unpersist()
        done.messages += count
        done.batches += bool(count)
        if count:
            say(f"batch {batch}: {count:,} messages, {done.messages:,} in all")

    options = wanted.reader_options() | {"include": "hosts,properties,msgId"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    done.stopped_by = run_stream(stream, take, wanted.root, wanted.every_s)
    return done


def _query_id(frame: "DataFrame") -> str:
    """Return the id of the stream that a batch belongs to; it is stable across restarts."""
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert found, "Spark sets it for every batch"
    return found


class _ArchiveRoot(NonEmptyPath):
    """Path, or URL of a Delta table, which the command refuses for other formats."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return a path, or the text of a URL."""
        text = os.fsdecode(value)
        return text.rstrip("/") if is_url(text) else super().convert(value, param, ctx)


@click.command(
    "archive",
    context_settings=CONTEXT,
    epilog="Example: rocketpy spark archive orders payments --to ./archive",
)
@click.argument("topics", nargs=-1)
@click.option(
    "--pattern", default="", metavar="REGEX", help="Topics with names that match completely."
)
@click.option(
    "--to",
    "root",
    required=True,
    type=_ArchiveRoot(file_okay=False, path_type=Path),
    help="Directory of the archive; workers on other machines need it under the same path. With "
    "--format delta also a URL, such as s3a://bucket/orders.",
)
@click.option(
    "--from",
    "start",
    type=position_type,
    default="earliest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="Where a new archive begins.",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Run until stopped, a batch every N seconds; default: the current messages, then end.",
)
@click.option("--batch-rows", type=click.IntRange(1), default=BATCH_ROWS, show_default=True)
@click.option(
    "--compact-every",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="BATCHES",
    help="Merge small files after this many batches, and at the end; 0: never.",
)
@click.option("--only-compact", is_flag=True, help="Only merge small files; needs no Spark.")
@click.option(
    "--compression",
    type=click.Choice(["snappy", "zstd", "lz4", "gzip", "none"]),
    default="snappy",
    show_default=True,
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help=f"delta needs its jar: spark-submit --packages {_DELTA}:VERSION.",
)
@spark_options
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - an option each
    *,
    topics: tuple[str, ...],
    pattern: str,
    root: Path | str,
    start: Position,
    every: int | None,
    batch_rows: int,
    compact_every: int,
    only_compact: bool,
    compression: str,
    kind: str,
    conf: tuple[str, ...],
    master: str,
    namesrv: str,
    output: str,
) -> int:
    """Write TOPICS to Parquet files, DIR/topic=T/date=D/, each message once.

    Run it again to continue: archived messages are not read again. After a run that was killed no
    message is missing or duplicated, for any reader of the files. The progress is stored in
    DIR/_manifests and DIR/_checkpoint; without the latter the manifests are used.

    SIGTERM, SIGINT and SIGHUP end it after the current batch: exit code 0 with --every, else 128
    plus the signal number, because messages remain to be archived.
    """
    # Report all missing requirements at once, before a directory is created.
    need_extra(*(("pyarrow", "numpy") if only_compact else ()))
    from rocketpy.spark.jobs.parquet_archive.files import check_names  # noqa: PLC0415
    from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog  # noqa: PLC0415

    progress = progress_for(output)
    if isinstance(root, str) and (kind != "delta" or only_compact):
        raise click.UsageError(
            f"--to: {root!r} is a URL, where the path of a directory is expected; only "
            f"--format delta writes to object stores"
        )
    if only_compact:
        with ArchiveLog(Path(root)) as log:
            _compact_only(log, compression, output, progress)
        return 0
    if bool(topics) == bool(pattern):
        raise click.UsageError("give TOPICS or --pattern")
    settings, options = split_conf(key_values(conf, "--conf"))
    if pattern:
        options["subscribePattern"] = pattern
    options = _starting(start) | options
    check_names((each.strip(), "", 0) for each in ",".join(topics).split(","))
    wanted = ArchiveRequest(
        topics=",".join(topics),
        namesrv=namesrv,
        root=root if isinstance(root, str) else root.absolute(),
        every_s=every,
        batch_rows=batch_rows,
        compact_every=compact_every,
        compression=compression,
        options=options,
    )
    if kind == "delta":
        done = _delta(wanted, master, settings, progress)
    else:
        with ArchiveLog(Path(wanted.root)) as log:
            spark = spark_session("archive", master=master, conf=settings)
            progress("Spark started")
            done = archive(spark, wanted, log, progress)
    _tell(done, root, output, progress)
    return exit_code(done.stopped_by, every)


def _tell(done: Archived, root: Path | str, output: str, progress: Progress) -> None:
    summary(
        {
            "messages": done.messages,
            "files": done.files,
            "bytes": done.size_bytes,
            "batches": done.batches,
            "small_files_merged": done.merged,
            "stopped_by": signal.Signals(done.stopped_by).name if done.stopped_by else "",
            "archive": str(root),
            "seconds": progress.seconds,
        },
        output,
    )


def _starting(start: Position) -> dict[str, str]:
    if start == "latest":
        return {"startingOffsets": "latest"}
    return range_options(start, "latest")


def _compact_only(log: "ArchiveLog", compression: str, output: str, progress: Progress) -> None:
    from rocketpy.spark.jobs.parquet_archive.compaction import compact  # noqa: PLC0415

    done = compact(log, compression=compression)
    row = {"files_before": done.files_before, "files_after": done.files_after}
    summary(row | {"seconds": progress.seconds}, output)


def _delta(
    wanted: ArchiveRequest, master: str, settings: Mapping[str, str], progress: Progress
) -> Archived:
    of_delta = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    spark = spark_session("archive", master=master, conf=of_delta | dict(settings))
    try:
        _need_delta(spark)
        progress("Spark started")
        return archive_to_delta(spark, wanted, progress)
    except JobError as error:
        # Without the jar this catalog fails every query of the session, which the caller may share.
        spark.conf.unset("spark.sql.catalog.spark_catalog")
        if _OTHER_SPARK.search(str(error.__cause__)):
            raise JobError(
                f"Delta's jar is not for Spark {spark.version}: give the version "
                f"for this one, or leave out --format delta for an archive of Parquet files"
            ) from error
        raise


def _need_delta(spark: "SparkSession") -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - no other way
    assert jvm is not None
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass("io.delta.tables.DeltaTable")
    except Exception:  # noqa: BLE001 - of py4j
        raise JobError(
            f"Delta's jar is missing: give --conf spark.jars.packages={_DELTA}:VERSION, with the "
            f"version made for Spark {spark.version}"
        ) from None


if __name__ == "__main__":
    main(command)
