"""Command groups that import commands when called, and suggestions for misspelt names."""

from collections.abc import Collection, Iterable

import click

from rocketpy.runtime.config.suggestions import hint, nearest
from rocketpy.terminal.parameters import TextCommand


class HintingGroup(click.Group):
    """Command group that suggests the nearest name for an unknown command.

    click itself suggests imported commands only.
    """

    command_class: type[click.Command] | None = TextCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the given words.

        Raises:
            click.UsageError: the command does not exist; suggests the nearest one.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = nearest(args[0], self.list_commands(ctx))
            if near is None:
                raise
            words = f"No such command {args[0]!r}. Did you mean {near!r}?"
            raise click.UsageError(words, ctx) from None


def check_keys(keys: Iterable[str], tables: Iterable[Collection[str]]) -> None:
    """Check that a server has each of the keys that a command is asked for.

    Args:
        keys: given by the user.
        tables: keys of each server that answered; without one, nothing can be said.

    Raises:
        click.ClickException: no server has a key; suggests the nearest one.
    """
    known = dict.fromkeys(key for table in tables for key in table)
    unknown = [key for key in keys if key not in known]
    if unknown and known:
        raise click.ClickException(f"unknown key {', '.join(unknown)}{hint(unknown[0], known)}")
