"""`rocketpy spark lag`: samples the lag of consumer groups, once or periodically, without Spark.

The numbers are those of the brokers (GET_CONSUME_STATS), as in `mqadmin consumerProgress`, or those
of a store directory (`config/consumerOffset.json` and the ends of its queues).
"""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.errors import JobError, RocketPyError, ServersFailedError
from rocketpy.spark.jobs.job_cli import Progress, main, summary
from rocketpy.spark.jobs.session import need_extra
from rocketpy.terminal.common import CONTEXT, namesrv_option, output_option, run
from rocketpy.terminal.parameters import NonEmptyPath
from rocketpy.terminal.render import iso, show
from rocketpy.terminal.stdio import until_reader_is_gone

EXIT_ALERT: Final = 3
"""Exit code when the lag of a group exceeds `--max-lag`."""

Row = dict[str, object]


async def sample(namesrv: str, groups: Sequence[str], topic: str, now_ms: int) -> list[Row]:
    """Return a row for every queue in which a group has an offset.

    Args:
        namesrv: name servers of the cluster.
        groups: only these; empty: all except system groups.
        topic: only this one; empty: all.
        now_ms: wall time, for the column `time_ms`.

    Raises:
        SubscriptionGroupNotExistError: a named group does not exist.
        ServersFailedError: a broker does not answer; `done` has the rows of the others, by broker.
    """
    failures: dict[str, RocketPyError] = {}
    async with rocketpy_admin.connect(namesrv) as admin:
        names = list(groups) or await admin.group_names()
        found = await asyncio.gather(*(admin.group_lag(name, topic) for name in names))
        for each in found:
            failures |= each.failures
            if groups and not each.queues and not each.failures:
                await admin.check_group(each.group)  # raises if the group does not exist
    rows: list[Row] = [
        {
            "time_ms": now_ms,
            "group": each.group,
            "topic": queue.queue.topic,
            "broker": queue.queue.broker_name,
            "queue": queue.queue.queue_id,
            "broker_offset": queue.broker_offset,
            "consumer_offset": queue.consumer_offset,
            "lag": queue.lag,
            "last_consumed_ms": queue.last_consumed_ms,
        }
        for each in found
        for queue in each.queues
    ]
    if failures:  # the lag of some queues would look like that of all
        brokers = sorted({str(row["broker"]) for row in rows})
        done = {name: [row for row in rows if row["broker"] == name] for name in brokers}
        raise ServersFailedError(done, failures)
    return rows


def sample_store(directory: Path, groups: Sequence[str], topic: str, now_ms: int) -> list[Row]:
    """Return the same rows from a store directory; no broker needs to run.

    The directory's name stands for the broker's, which no file contains. The time of the last
    consumption is unknown. Queues of deleted topics are left out.

    Args:
        directory: `storePathRootDir` of a broker, ours or Apache's.
        groups: only these; empty: all.
        topic: only this one; empty: all.
        now_ms: wall time, for the column `time_ms`.

    Raises:
        JobError: a named group has no offset there.
        StoreFormatError: it is not a store directory.
    """
    from rocketpy.store.scan.directory import StoreDirectory  # noqa: PLC0415 - needs pyarrow
    from rocketpy.store.scan.tables import table  # noqa: PLC0415 - needs pyarrow

    opened = StoreDirectory(directory)
    known = opened.known_topics() or ()
    found = table(opened, "offsets").to_pylist()
    missing = sorted(set(groups) - {row["group"] for row in found})
    if missing:
        raise JobError(f"{directory} has no offset of {', '.join(missing)}")
    return [
        {
            "time_ms": now_ms,
            "group": row["group"],
            "topic": row["topic"],
            "broker": directory.absolute().name,
            "queue": row["queueId"],
            "broker_offset": row["maxOffset"] or 0,
            "consumer_offset": row["consumerOffset"],
            "lag": row["lag"] or 0,
            "last_consumed_ms": 0,
        }
        for row in found
        if (row["maxOffset"] is not None or row["topic"] in known)
        and (not groups or row["group"] in groups)
        and topic in {"", row["topic"]}
    ]


def write_sample(rows: Sequence[Row], folder: Path) -> Path:
    """Add a sample to a table of Parquet files, `date=2026-01-31/lag-<ms>.parquet`.

    Args:
        rows: of one sample, at least one.
        folder: of the table.
    """
    import pyarrow as pa  # noqa: PLC0415 - only with --to
    import pyarrow.parquet as pq  # noqa: PLC0415 - only with --to

    time_ms = rows[0]["time_ms"]
    assert isinstance(time_ms, int)
    date = datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()
    target = folder / f"date={date}" / f"lag-{time_ms}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    unknown = {"last_consumed_ms": None}
    table = pa.Table.from_pylist(
        [row if row["last_consumed_ms"] else row | unknown for row in rows]
    )
    for name in ("time_ms", "last_consumed_ms"):
        stamps = table.column(name).cast(pa.timestamp("ms", "UTC"))
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name.removesuffix("_ms"), stamps)
    part = target.with_name(f"_{target.name}.{os.getpid()}")
    pq.write_table(table, part)
    part.replace(target)
    return target


def behind(rows: Sequence[Row]) -> dict[str, int]:
    """Return the lag of each group, in all its queues."""
    found: dict[str, int] = {}
    for row in rows:
        lag, group = row["lag"], str(row["group"])
        assert isinstance(lag, int)
        found[group] = found.get(group, 0) + lag
    return found


@click.command(
    "lag",
    context_settings=CONTEXT,
    epilog="Example: rocketpy spark lag --once --group readers --max-lag 10000",
)
@click.option(
    "--once/--no-once", "once", default=None, help="Take one sample, then end (the default)."
)
@click.option(
    "--every",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Take a sample every SECONDS, until stopped.",
)
@click.option(
    "--samples", type=click.IntRange(1), help="End after this many samples; needs --every."
)
@click.option("--group", "groups", multiple=True, help="Only this group; may be repeated.")
@click.option("--topic", default="", help="Only this topic.")
@click.option(
    "--to",
    "folder",
    type=NonEmptyPath(file_okay=False, path_type=Path),
    help="Add each sample to this table of Parquet files, instead of printing it.",
)
@click.option(
    "--store",
    type=NonEmptyPath(exists=True, file_okay=False, path_type=Path),
    help="Read this store directory instead of a live cluster.",
)
@click.option(
    "--max-lag",
    type=click.IntRange(0),
    help=f"Largest lag of a group, messages; exit code {EXIT_ALERT} above it.",
)
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - an option each
    *,
    once: bool | None,
    every: int | None,
    samples: int | None,
    groups: tuple[str, ...],
    topic: str,
    folder: Path | None,
    store: Path | None,
    max_lag: int | None,
    namesrv: str,
    output: str,
) -> int:
    """Show the lag of consumer groups by topic and queue. Spark is not started.

    A sample has a row for each queue. With --to each sample becomes a file of a Parquet table.
    --every ends with SIGINT, SIGTERM, or after --samples.
    """
    if once and every:
        raise click.UsageError("--once excludes --every")
    if samples and not every:
        raise click.UsageError("--samples needs --every")
    if folder is not None or store is not None:
        need_extra("pyarrow", "numpy")
    progress = Progress(quiet=every is None)
    left = (samples or -1) if every else 1
    rows: list[Row] = []
    too_far: dict[str, int] = {}
    written = 0
    while left:
        now_ms = time.time_ns() // 1_000_000
        if store is None:
            # A table would keep the sample of some brokers as if it were complete.
            shown = None if folder is not None else output
            rows = _live_sample(namesrv, groups, topic, now_ms, shown)
        else:
            rows = sample_store(store, groups, topic, now_ms)
        too_far = {g: n for g, n in behind(rows).items() if max_lag is not None and n > max_lag}
        if folder is None:
            _print(rows, output)
        elif rows:
            write_sample(rows, folder)
            written += len(rows)
        progress(f"{len(rows)} queues, {sum(behind(rows).values()):,} messages behind")
        for name, lag in sorted(too_far.items()):
            click.echo(f"alert: group {name} is {lag:,} messages behind", err=True)
        left -= 1
        if left and every and not run(_pause(every, is_printed=folder is None)):
            break
    if folder is not None:
        summary({"queues": len(rows), "rows_written": written, "table": str(folder)}, output)
    return EXIT_ALERT if too_far else 0


async def _pause(seconds: float, *, is_printed: bool) -> bool:
    """Wait before the next sample; return whether it is wanted.

    Printed samples are not, once nothing reads standard output any more.
    """
    if not is_printed:
        await asyncio.sleep(seconds)
        return True
    gone = asyncio.get_running_loop().create_task(until_reader_is_gone())
    done, _ = await asyncio.wait({gone}, timeout=seconds)
    gone.cancel()
    return not done


def _live_sample(
    namesrv: str, groups: Sequence[str], topic: str, now_ms: int, output: str | None
) -> list[Row]:
    """Return a `sample`; if a broker does not answer, print the rows of the others and raise."""
    try:
        return run(sample(namesrv, groups, topic, now_ms))
    except ServersFailedError as error:
        if output is not None:
            answered: dict[str, list[Row]] = error.done  # type: ignore[assignment]
            _print([row for each in answered.values() for row in each], output)
        raise


def _print(rows: Sequence[Row], output: str) -> None:
    shown = []
    for row in rows:
        times = {name.removesuffix("_ms"): row[name] for name in ("time_ms", "last_consumed_ms")}
        plain = {name: value for name, value in row.items() if not name.endswith("_ms")}
        shown.append(plain | {name: iso(int(str(value))) for name, value in times.items()})
    show(shown, output, empty="no group has an offset")
    if output == "table" and rows:
        for name, lag in sorted(behind(rows).items()):
            click.echo(f"{name}: {lag:,} messages behind")


if __name__ == "__main__":
    main(command)
