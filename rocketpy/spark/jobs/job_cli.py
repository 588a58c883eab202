"""Command-line helpers of jobs: options, progress lines, summaries, `python -m`."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from rocketpy.spark.jobs.session import LOCAL_MASTER, set_debug
from rocketpy.terminal.error_exit import run_command
from rocketpy.terminal.render import show

F = TypeVar("F", bound=Callable[..., Any])

Say = Callable[[str], None]
"""Called with a line about the progress of a job."""


def spark_options(function: F) -> F:
    """Add the options for the Spark session to a command."""
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark, or an option of reader and sink (rocketmq.OPTION=VALUE).",
        ),
        click.option(
            "--master",
            default=LOCAL_MASTER,
            show_default=True,
            help="Where Spark runs; --master of spark-submit takes precedence.",
        ),
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            callback=set_debug,
            help="Show Spark's log, and errors with tracebacks.",
        ),
    ):
        function = option(function)
    return function


def split_conf(pairs: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return settings of Spark, and options of the reader (given as `rocketmq.OPTION`)."""
    ours = {k.removeprefix("rocketmq."): v for k, v in pairs.items() if k.startswith("rocketmq.")}
    return {k: v for k, v in pairs.items() if not k.startswith("rocketmq.")}, ours


def deal_options(
    options: Mapping[str, str], namesrv: str, *, is_read: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """Divide options between reader and sink; common ones go to both.

    Args:
        options: from `split_conf`.
        namesrv: name servers of the target cluster.
        is_read: whether topics are read; otherwise all options must be those of the sink.

    Raises:
        ConfigError: without a reader, an option that the sink does not have.
    """
    from rocketpy.spark.options import options_of, parse_options  # noqa: PLC0415 - used by two jobs
    from rocketpy.spark.read_options import BatchOptions  # noqa: PLC0415 - the same
    from rocketpy.spark.sink.options import SinkOptions  # noqa: PLC0415 - the same

    if not is_read:
        parse_options({"nameservers": namesrv, **options}, SinkOptions)
        return {}, dict(options)
    of_reader, of_sink = (
        {name.lower() for each in options_of(kind) for name in each.names}
        for kind in (BatchOptions, SinkOptions)
    )
    sink = {name: value for name, value in options.items() if name.lower() in of_sink}
    reader = {
        name: value
        for name, value in options.items()
        if name not in sink or name.lower() in of_reader
    }
    return reader, sink


class Progress:
    """Prints the progress of a job on standard error, at most once per second.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._last = -1.0

    @property
    def seconds(self) -> float:
        """Seconds since the job started."""
        return time.monotonic() - self._started

    def __call__(self, line: str, *, always: bool = True) -> None:
        """Print a line; without `always` at most one per second."""
        now = self.seconds
        if not self._quiet and (always or now - self._last >= 1):
            self._last = now
            click.echo(f"[{now:6.1f} s] {line}", err=True)


def progress_for(output: str) -> Progress:
    """Return the progress printer of a job; a quiet one where it would mix with JSON output.

    spark-submit gives a job one pipe for its output and its errors.

    Args:
        output: value of the option `-o`.
    """
    return Progress(quiet=output == "json" and _has_one_output())


def _has_one_output() -> bool:
    try:
        return os.path.sameopenfile(1, 2) and not os.isatty(1)
    except OSError:  # one of the two is closed
        return False


def summary(row: Mapping[str, object], output: str) -> None:
    """Print the result of a job: a line for each value, or JSON with one object."""
    if output == "json":
        show([row], output)
        return
    width = max(len(name) for name in row)
    for name, value in row.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(value, float):
            shown = f"{value:,.1f}"
        click.echo(f"{name.replace('_', ' '):{width}}  {shown}")


def main(job: click.Command) -> None:
    """Run a job as `python -m rocketpy.spark.jobs.JOB`, and end the process."""
    run_command(job, f"rocketpy spark {job.name}")
