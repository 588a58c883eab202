"""``rocketpy spark``: the jobs of the data pipeline, each imported only when it is called."""

import importlib
from typing import Final

import click

from rocketpy.terminal.common import CONTEXT
from rocketpy.terminal.suggestions import HintingGroup

JOBS: Final[dict[str, str]] = {
    "archive": "Topics to Parquet files, each message once.",
    "audit": "Check a store directory: checksums, queues, holes.",
    "dlq": "Report on dead letters, send them back.",
    "lag": "How far consumer groups are behind.",
    "replay": "An archive or a part of a topic back to a topic.",
    "trace": "Latencies and failures from the trace topic.",
}


class Jobs(HintingGroup):
    """Knows the jobs by name."""

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
        """List names and lines without importing the jobs."""
        with formatter.section("Jobs"):
            formatter.write_dl([(name, JOBS[name]) for name in self.list_commands(ctx)])


@click.group(
    "spark",
    cls=Jobs,
    context_settings=CONTEXT,
    epilog="Example: rocketpy spark archive orders --to ./archive",
)
def command() -> None:
    """Jobs on topics, archives and store directories; most need Spark.

    Each also runs as `python -m rocketpy.spark.jobs.JOB`, and that file under spark-submit.
    """
