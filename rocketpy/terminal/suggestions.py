"""Command groups that import commands when called, and suggestions for misspelt names."""

from collections.abc import Iterable

import click

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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another one, None if none is."""
    import difflib  # noqa: PLC0415 - for misspelt names only

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests a known name; empty without one."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near}?"
