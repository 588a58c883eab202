"""What the commands of jobs share: options, progress lines, the summary, `python -m`."""

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
"""Takes a line about how far a job is."""


def spark_options(function: F) -> F:
    """Give a job the options about where Spark runs."""
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
            help="Where Spark runs; spark-submit's own --master goes first.",
        ),
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            callback=set_debug,
            help="Show Spark's log, and errors with their traces.",
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
    """Return the options for a reader, and those for the sink; what both have goes to both.

    Args:
        options: as `split_conf` has them.
        namesrv: name servers of the cluster that is written to.
        is_read: whether topics are read; else every option has to be one of the sink.

    Raises:
        ConfigError: one that the sink cannot use, when nothing is read.
    """
    from rocketpy.spark.options import options_of, parse_options  # noqa: PLC0415 - for two jobs
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
    """Says on standard error how far a job is, not more often than every second.

    Args:
        quiet: say nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._last = -1.0

    @property
    def seconds(self) -> float:
        """Since the job began."""
        return time.monotonic() - self._started

    def __call__(self, line: str, *, always: bool = True) -> None:
        """Say a line; one that need not be said always waits its turn."""
        now = self.seconds
        if not self._quiet and (always or now - self._last >= 1):
            self._last = now
            click.echo(f"[{now:6.1f} s] {line}", err=True)


def progress_for(output: str) -> Progress:
    """Return what says how far a job is; nothing where that would come between a program's rows.

    spark-submit gives a job one pipe for its output and its errors.

    Args:
        output: what the job's option `-o` says.
    """
    return Progress(quiet=output == "json" and _has_one_output())


def _has_one_output() -> bool:
    try:
        return os.path.sameopenfile(1, 2) and not os.isatty(1)
    except OSError:  # one of them is closed
        return False


def summary(row: Mapping[str, object], output: str) -> None:
    """Print what a job did: a line a value for people, an object in an array for programs."""
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
    """Run one job as `python -m rocketpy.spark.jobs.JOB`, and end the process."""
    run_command(job, f"rocketpy spark {job.name}")
