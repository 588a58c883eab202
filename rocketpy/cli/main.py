"""The `rocketpy` command: a group of sub-commands, each imported when it is used.

To add a command: write a module with a click command, and one line in `COMMANDS`.
"""

import importlib
import os
from typing import TYPE_CHECKING, Final

import click

from rocketpy.cli.version import version_option
from rocketpy.terminal.cluster_selection import METAVAR, cluster_options, given
from rocketpy.terminal.error_exit import run_command
from rocketpy.terminal.suggestions import HintingGroup

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # name: (module:attribute, one line for --help)
    "bench": ("rocketpy.cli.commands.bench:command", "Measure sending and receiving."),
    "broker": ("rocketpy.cli.servers.broker:command", "Run a broker."),
    "broker-config": (
        "rocketpy.cli.commands.server_config:broker_command",
        "Read and change the configuration of running brokers.",
    ),
    "check": ("rocketpy.cli.commands.cluster:check_command", "Check a cluster, for monitoring."),
    "cluster": ("rocketpy.cli.commands.cluster:command", "Show brokers and name servers."),
    "completion": (
        "rocketpy.cli.commands.completion:command",
        "Print a shell script that completes commands, topics, groups and brokers.",
    ),
    "consume": (
        "rocketpy.cli.commands.consume:command",
        "Receive messages of topics as a member of a group and print them.",
    ),
    "context": (
        "rocketpy.cli.commands.context:command",
        "Manage named clusters, and select the one that commands use.",
    ),
    "controller": (
        "rocketpy.cli.servers.controller:command",
        "Run a controller, which names the master of each broker group.",
    ),
    "group": (
        "rocketpy.cli.commands.group:command",
        "Show, create, change, move and delete consumer groups.",
    ),
    "message": ("rocketpy.cli.commands.message:command", "Find messages."),
    "namesrv": ("rocketpy.cli.servers.namesrv:command", "Run a name server."),
    "namesrv-config": (
        "rocketpy.cli.commands.server_config:namesrv_command",
        "Read and change the configuration of running name servers.",
    ),
    "spark": (
        "rocketpy.cli.commands.spark:command",
        "Run jobs on topics, archives and store directories; most need Spark.",
    ),
    "run": ("rocketpy.cli.commands.run:command", "Run the handlers of a `rocketpy.App`."),
    "send": ("rocketpy.cli.commands.send:command", "Send messages."),
    "standalone": (
        "rocketpy.cli.servers.standalone:command",
        "Run a name server and a broker in one process.",
    ),
    "store": (
        "rocketpy.cli.commands.store:command",
        "Back up, restore and resynchronise store directories.",
    ),
    "top": (
        "rocketpy.cli.commands.top:command",
        "Watch brokers, the busiest topics and the groups furthest behind.",
    ),
    "topic": ("rocketpy.cli.commands.topic:command", "Create, show, change and delete topics."),
}


_WITHOUT_CLUSTER: Final = frozenset(
    {"broker", "completion", "context", "controller", "namesrv", "run", "standalone", "store"}
)


class LazyGroup(HintingGroup):
    """Command group that imports a command when it is called or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one command, or None."""
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(found, click.Command), cmd_name
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete names without importing the commands, and the options."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - a server has no shell

        names = [
            CompletionItem(name, help=COMMANDS[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and summaries without importing the commands."""
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rocketpy standalone --data ./data",
)
@version_option
@cluster_options
@click.pass_context
def command(ctx: click.Context, *, namesrv: str | None, context: str | None) -> None:
    """Apache RocketMQ in Python: its protocol and its files, without a JVM."""
    if namesrv and context and given(ctx, "context"):
        raise click.UsageError("-n and --context both name a cluster")
    if ctx.invoked_subcommand in _WITHOUT_CLUSTER and (
        given(ctx, "namesrv") or given(ctx, "context")
    ):
        name = ctx.invoked_subcommand
        found = command.get_command(ctx, name)
        has_option = found is not None and any(each.name == "namesrv" for each in found.params)
        advice = f"write rocketpy {name} -n {METAVAR} ..." if has_option else "leave them out"
        raise click.UsageError(f"{name} does not take the program's -n or --context: {advice}")


def main() -> None:
    """Run `rocketpy`, or answer a completion request of a shell."""
    if "_ROCKETPY_COMPLETE" in os.environ:
        from rocketpy.terminal.completion import complete  # noqa: PLC0415 - only then

        complete(command, "rocketpy")
    run_command(command, "rocketpy")
