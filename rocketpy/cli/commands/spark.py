"""`rocketpy spark`: jobs of the data pipeline, each imported when it is called."""

import importlib
from typing import Final

import click

from rocketpy.terminal.common import CONTEXT
from rocketpy.terminal.suggestions import HintingGroup

JOBS: Final[dict[str, str]] = {
    "archive": "Write topics to Parquet files, each message once.",
    "audit": "Check a store directory: checksums, queues, gaps.",
    "dlq": "Report dead letters, or send them again.",
    "lag": "Report the lag of consumer groups.",
    "replay": "Send an archive or part of a topic to a topic.",
    "trace": "Report latencies and failures of a trace topic.",
}


class Jobs(HintingGroup):
    """Command group that imports a job when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the names, sorted."""
        return sorted(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one job, or None."""
        if cmd_name not in JOBS:
            return None
        found = importlib.import_module(f"rocketpy.spark.jobs.{cmd_name}").command
        assert isinstance(found, click.Command), cmd_name
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and summaries without importing the jobs."""
        with formatter.section("Jobs"):
            formatter.write_dl([(name, JOBS[name]) for name in self.list_commands(ctx)])


@click.group(
    "spark",
    cls=Jobs,
    context_settings=CONTEXT,
    epilog="Example: rocketpy spark archive orders --to ./archive",
)
def command() -> None:
    """Run jobs on topics, archives and store directories; most need Spark.

    Each also runs as `python -m rocketpy.spark.jobs.JOB`, and that file under spark-submit.
    """
