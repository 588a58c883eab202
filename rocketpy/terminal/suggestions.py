"""Command groups that import commands when called, and suggest names for misspelt ones."""

import click


class HintingGroup(click.Group):
    """Command group that suggests the nearest name for an unknown command.

    click itself suggests imported commands only.
    """

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
            import difflib  # noqa: PLC0415 - for misspelt commands only

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            words = f"No such command {args[0]!r}. Did you mean {near[0]!r}?"
            raise click.UsageError(words, ctx) from None
