"""``rocketpy context``: clusters by name, so that no command needs their addresses."""

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


@click.group(
    "context", context_settings=CONTEXT, epilog="Example: rocketpy context add prod mq1:9876"
)
def command() -> None:
    """Clusters by name, and which one commands ask.

    They are in a file below your configuration directory, which only you may read.
    """


@command.command("add", epilog="Example: rocketpy context add prod 'mq1:9876;mq2:9876' --use")
@click.argument("name")
@click.argument("namesrv", metavar="HOST:PORT[;HOST:PORT...]")
@click.option(
    "--keys", is_flag=True, help="Remember an account: the environment's, else it is asked for."
)
@click.option("--use", is_flag=True, help="Have commands ask it from now on.")
@click.option("--update", "may_change", is_flag=True, help="Change one that is there.")
def add(*, name: str, namesrv: str, keys: bool, use: bool, may_change: bool) -> int:
    """Remember a cluster by a name."""
    found = contexts.load()
    addresses = ";".join(parse_addresses(namesrv))
    if not addresses:
        raise click.UsageError("no address is given")
    if name in found.clusters and not may_change:
        raise click.ClickException(
            f"context {name} is there, with {found.get(name).namesrv}: --update changes it"
        )
    changed = found.with_cluster(
        name, _with_account(addresses) if keys else contexts.Cluster(addresses)
    )
    contexts.save(contexts.Contexts(changed.clusters, name if use else changed.current))
    return 0


def _with_account(addresses: str) -> contexts.Cluster:
    """Take the account from the environment, or ask; an option would show it to others."""
    access_key = os.environ.get(ACCESS_KEY_VARIABLE) or click.prompt("Access key", err=True)
    secret_key = os.environ.get(SECRET_KEY_VARIABLE) or click.prompt(
        "Secret key", hide_input=True, err=True
    )
    token = os.environ.get(SECURITY_TOKEN_VARIABLE, "")
    return contexts.Cluster(addresses, access_key, secret_key, token)


@command.command("list", epilog="Example: rocketpy context list -o json")
@output_option
def list_(*, output: str) -> int:
    """List what is remembered; of an account its name only."""
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
@click.option("--none", is_flag=True, help="Use none any more.")
def use(*, name: str | None, none: bool) -> int:
    """Have commands ask this cluster, unless NAMESRV_ADDR, -n or --context names another."""
    if (name is None) != none:
        raise click.UsageError("give NAME or --none")
    found = contexts.load()
    if name is not None:
        found.get(name)
    contexts.save(contexts.Contexts(found.clusters, name or ""))
    return 0


@command.command("remove", epilog="Example: rocketpy context remove prod")
@click.argument("name", shell_complete=context_names)
def remove(*, name: str) -> int:
    """Forget a cluster, its account as well."""
    contexts.save(contexts.load().without(name))
    return 0
