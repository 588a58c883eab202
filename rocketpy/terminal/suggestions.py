"""Groups whose commands are imported when they are called, and that help with a misspelt one."""

import click


class HintingGroup(click.Group):
    """Names the nearest command when there is none of a name.

    click itself knows only commands that are imported already.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words name.

        Raises:
            click.UsageError: there is none; with the nearest one.
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
