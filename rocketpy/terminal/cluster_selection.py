"""Selection of the cluster of a command: options, context, environment, default.

In this order: `-n` after the command, `-n` or `--context` before it, `ROCKETPY_CONTEXT`,
`NAMESRV_ADDR`, the context in use, 127.0.0.1:9876.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from rocketpy.terminal import contexts

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
NAMESRV_ADDR: Final = "NAMESRV_ADDR"
METAVAR: Final = "HOST:PORT[;HOST:PORT...]"
_VARIABLES: Final = {
    "access_key": "ROCKETPY_ACCESS_KEY",
    "secret_key": "ROCKETPY_SECRET_KEY",
    "security_token": "ROCKETPY_SECURITY_TOKEN",
}


class NamesrvOption(click.Option):
    """Option `-n` of a command; falls back to the program's `-n`, then to contexts."""

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the addresses and their source.

        The account of a context is put into the environment until the program ends, where clients
        find it. It is never sent to another cluster.
        """
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.COMMANDLINE:
            return value, source
        given = ctx.find_root().params if ctx.parent is not None else {}
        if given.get("namesrv"):
            return given["namesrv"], ParameterSource.COMMANDLINE
        name = given.get("context")
        if not name:
            if source is ParameterSource.ENVIRONMENT:
                return value, source
            name = contexts.load().current
        if not name:
            return value, source
        cluster = contexts.load().get(name)
        if cluster.secret_key:
            _lend(ctx.find_root(), cluster)
        return cluster.namesrv, ParameterSource.DEFAULT_MAP


def lend_namesrv(ctx: click.Context, namesrv: str) -> None:
    """Set name servers in the environment until the command ends."""
    before = os.environ.get(NAMESRV_ADDR)
    ctx.call_on_close(lambda: _set(NAMESRV_ADDR, before))
    _set(NAMESRV_ADDR, namesrv)


def _lend(root: click.Context, cluster: contexts.Cluster) -> None:
    """Set a cluster's account in the environment while the program runs."""
    before = {name: os.environ.get(name) for name in _VARIABLES.values()}

    def restore() -> None:
        for name, text in before.items():
            _set(name, text)

    root.call_on_close(restore)
    for field, name in _VARIABLES.items():
        _set(name, getattr(cluster, field) or None)


def _set(name: str, text: str | None) -> None:
    if text is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = text


def cluster_options(function: F) -> F:
    """Add `-n` and `--context` to the program, for the command that follows."""
    function = click.option(
        "--context",
        envvar="ROCKETPY_CONTEXT",
        show_envvar=True,
        metavar="NAME",
        shell_complete=context_names,
        help="Use the cluster of this context.",
    )(function)
    return click.option("-n", "--namesrv", metavar=METAVAR, help="Name servers of the cluster.")(
        function
    )


def context_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a context; returns none if the file cannot be read."""
    try:
        names = contexts.load().clusters
    except Exception:  # noqa: BLE001 - an error text would garble the command line
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def given(ctx: click.Context, name: str) -> bool:
    """Return whether an option was given on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
