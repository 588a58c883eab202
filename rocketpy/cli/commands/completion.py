"""`rocketpy completion`: shell scripts that complete commands, topics and groups."""

import click
from click.shell_completion import get_completion_class

from rocketpy.terminal.common import CONTEXT
from rocketpy.terminal.completion import VARIABLE


@click.command(
    "completion", context_settings=CONTEXT, epilog='Example: eval "$(rocketpy completion bash)"'
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, *, shell: str) -> None:
    """Print a shell script that completes commands, topics, groups and brokers.

    For bash, add the example to ~/.bashrc; for zsh, the same with zsh to ~/.zshrc; for fish:
    rocketpy completion fish > ~/.config/fish/completions/rocketpy.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(ctx.find_root().command, {}, "rocketpy", VARIABLE).source())
