"""`rocketpy context`: manages named clusters."""

import os

import click

from rocketpy.client.cluster.name_servers import parse_addresses
from rocketpy.client.credentials import (
    ACCESS_KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
)
from rocketpy.terminal import contexts
from rocketpy.terminal.cluster_selection import context_names
from rocketpy.terminal.common import CONTEXT, output_option
from rocketpy.terminal.render import show
from rocketpy.terminal.suggestions import HintingGroup


@click.group(
    "context",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy context add prod mq1:9876",
)
def command() -> None:
    """Manage named clusters, and select the one that commands use.

    They are stored below your configuration directory, in a file that only you may read.
    """


@command.command("add", epilog="Example: rocketpy context add prod 'mq1:9876;mq2:9876' --use")
@click.argument("name")
@click.argument("namesrv", metavar="HOST:PORT[;HOST:PORT...]")
@click.option(
    "--keys", is_flag=True, help="Store an account, from the environment or else from a prompt."
)
@click.option("--use", is_flag=True, help="Also make it the current context.")
@click.option("--update", "may_change", is_flag=True, help="Change an existing context.")
def add(*, name: str, namesrv: str, keys: bool, use: bool, may_change: bool) -> int:
    """Add a named cluster."""
    addresses = ";".join(parse_addresses(namesrv))
    if not addresses:
        raise click.UsageError("give at least one address")
    _check_new(contexts.load(), name, may_change=may_change)
    cluster = _with_account(addresses) if keys else contexts.Cluster(addresses)
    with contexts.locked():
        found = contexts.load()
        _check_new(found, name, may_change=may_change)
        changed = found.with_cluster(name, cluster)
        contexts.save(contexts.Contexts(changed.clusters, name if use else changed.current))
    return 0


def _check_new(found: contexts.Contexts, name: str, *, may_change: bool) -> None:
    """Refuse the name of another context; raises click.ClickException."""
    if name in found.clusters and not may_change:
        raise click.ClickException(
            f"context {name} exists, with {found.get(name).namesrv}: --update changes it"
        )


def _with_account(addresses: str) -> contexts.Cluster:
    """Return the account of the environment or a prompt; an option would show in `ps`."""
    access_key = os.environ.get(ACCESS_KEY_VARIABLE) or click.prompt("Access key", err=True)
    secret_key = os.environ.get(SECRET_KEY_VARIABLE) or click.prompt(
        "Secret key", hide_input=True, err=True
    )
    token = os.environ.get(SECURITY_TOKEN_VARIABLE, "")
    return contexts.Cluster(addresses, access_key, secret_key, token)


@command.command("list", epilog="Example: rocketpy context list -o json")
@output_option
def list_(*, output: str) -> int:
    """List the contexts; of an account, only its name."""
    found = contexts.load()
    rows = [
        {
            "name": name,
            "current": name == found.current,
            "namesrv": cluster.namesrv,
            "access_key": cluster.access_key,
        }
        for name, cluster in sorted(found.clusters.items())
    ]
    show(rows, output, empty="no contexts: rocketpy context add")
    return 0


@command.command("use", epilog="Example: rocketpy context use prod")
@click.argument("name", required=False, shell_complete=context_names)
@click.option("--none", is_flag=True, help="Deselect the current context.")
def use(*, name: str | None, none: bool) -> int:
    """Make a context the current one; NAMESRV_ADDR, -n and --context override it."""
    if (name is None) != none:
        raise click.UsageError("give NAME or --none")
    with contexts.locked():
        found = contexts.load()
        if name is not None:
            found.get(name)
        contexts.save(contexts.Contexts(found.clusters, name or ""))
    return 0


@command.command("remove", epilog="Example: rocketpy context remove prod")
@click.argument("name", shell_complete=context_names)
def remove(*, name: str) -> int:
    """Remove a context and its account."""
    with contexts.locked():
        contexts.save(contexts.load().without(name))
    return 0
