"""Input and output of jobs: messages of topics by time, and rows of small results."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketpy.terminal.common import Position, position
from rocketpy.terminal.render import iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

F = TypeVar("F", bound=Callable[..., Any])


def time_options(function: F) -> F:
    """Add the options --from and --until to a command."""
    for option in (
        click.option(
            "--until",
            "end",
            type=position,
            default="latest",
            show_default=True,
            metavar="latest|TIME",
            help="End of the range.",
        ),
        click.option(
            "--from",
            "start",
            type=position,
            default="earliest",
            show_default=True,
            metavar="earliest|TIME",
            help="Start of the range: ISO 8601, ms since 1970, or 30m (ago).",
        ),
    ):
        function = option(function)
    return function


def range_options(start: Position, end: Position) -> dict[str, str]:
    """Return the options of the reader for a range of time.

    Raises:
        click.UsageError: the range is empty.
    """
    if start == "latest" or end == "earliest":
        raise click.UsageError("--from latest and --until earliest leave nothing to read")
    if isinstance(start, datetime) and isinstance(end, datetime) and start > end:
        raise click.UsageError("--until is before --from")
    options: dict[str, str] = {}
    if isinstance(start, datetime):
        options["startingTimestamp"] = _ms(start)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if isinstance(end, datetime):
        options["endingTimestamp"] = _ms(end)
    return options


def _ms(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def topic_frame(
    spark: "SparkSession",
    namesrv: str,
    topics: str,
    start: Position = "earliest",
    end: Position = "latest",
    options: Mapping[str, str] | None = None,
    *,
    columns: Sequence[str] = (),
) -> "DataFrame":
    """Return the messages of topics in a range of time.

    Args:
        spark: the session.
        namesrv: name servers of the cluster.
        topics: comma-separated names.
        start: start of the range.
        end: end of the range.
        options: more options of the reader, which take precedence.
        columns: only these; empty: all.
    """
    wanted = {"nameservers": namesrv, "subscribe": topics, **range_options(start, end)}
    wanted["include"] = "hosts,properties,msgId"
    if columns:
        wanted["columns"] = ",".join(columns)
    return spark.read.format("rocketmq").options(**(wanted | dict(options or {}))).load()


def collected(frame: "DataFrame") -> list[dict[str, object]]:
    """Return the rows of a small result; times as ISO 8601 in UTC.

    Spark returns times without a time zone, in the local one of this process.
    """
    return [
        {
            name: iso(int(_ms(value))) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }
        for row in frame.collect()
    ]
