"""`--version` of the program and of each server."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketpy import __version__

F = TypeVar("F", bound=Callable[..., Any])


def show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Print name and version, and whether plain sends are compiled, and end."""
    if value:
        from rocketpy.broker.fast_path.compiled_path import is_compiled  # noqa: PLC0415

        path = "compiled" if is_compiled() else "python"
        click.echo(f"{ctx.command_path}, version {__version__} (plain sends: {path})")
        ctx.exit()


def version_option(function: F) -> F:
    """Add the `--version` option to a command."""
    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show_version,
        help="Show the version, and whether compiled modules are used.",
    )(function)
