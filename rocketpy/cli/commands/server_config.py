"""`rocketpy broker-config` and `namesrv-config`: configuration of running servers."""

from collections.abc import Collection, Mapping

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.errors import NoPermissionError, RocketPyError
from rocketpy.runtime.config.suggestions import hint
from rocketpy.terminal.cluster_calls import ask, done_at, exit_code
from rocketpy.terminal.common import CONTEXT, key_values, namesrv_option, output_option
from rocketpy.terminal.completion import broker_names
from rocketpy.terminal.render import show
from rocketpy.terminal.suggestions import HintingGroup, check_keys


@click.group(
    "broker-config",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy broker-config get -b broker-a flushDiskType",
)
def broker_command() -> None:
    """Read and change the configuration of running brokers."""


@click.group(
    "namesrv-config",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy namesrv-config get listenPort",
)
def namesrv_command() -> None:
    """Read and change the configuration of running name servers."""


def _rows(
    configs: dict[str, dict[str, str]], keys: tuple[str, ...], who: str
) -> list[dict[str, object]]:
    check_keys(keys, configs.values())
    return [
        {who: name, "key": key, "value": value}
        for name, config in sorted(configs.items())
        for key, value in sorted(config.items())
        if not keys or key in keys
    ]


def _why_not(broker: str, values: Mapping[str, str], known: Collection[str], remark: str) -> str:
    """Return an error text: keys that a broker does not have, or cannot change while it runs.

    Args:
        broker: its name.
        values: the changes.
        known: keys of the broker.
        remark: the broker's text, which names the keys that it cannot change; Apache's names none.
    """
    unknown = [key for key in values if key not in known]
    if unknown:
        words = f"{broker} has no key {', '.join(unknown)}{hint(unknown[0], known)}"
        return f"{words}; nothing was changed"
    named = {word.strip(",;:") for word in remark.split()}
    refused = [key for key in values if key in named]
    one_of = "one of " if len(values) > 1 and not refused else ""
    keys = ", ".join(refused or values)
    return (
        f"{broker} cannot change {one_of}{keys} while it runs: set it in the configuration "
        "file and restart the broker; nothing was changed"
    )


async def _addresses(admin: rocketpy_admin.Admin, broker: str) -> dict[str, str]:
    """Return the selected brokers: all masters, one by name, or one by address."""
    if ":" in broker:
        return {broker: broker}
    return await admin.broker_addresses(broker=broker)


@broker_command.command(
    "get", epilog="Example: rocketpy broker-config get -b broker-a flushDiskType"
)
@click.argument("keys", nargs=-1)
@click.option(
    "-b",
    "--broker",
    default="",
    shell_complete=broker_names,
    metavar="NAME|HOST:PORT",
    help="Only this broker.",
)
@namesrv_option
@output_option
def broker_get(*, keys: tuple[str, ...], broker: str, namesrv: str, output: str) -> int:
    """Show configuration keys (all by default)."""

    async def work(
        admin: rocketpy_admin.Admin,
    ) -> tuple[dict[str, dict[str, str]], dict[str, RocketPyError]]:
        return await admin.servers.each(await _addresses(admin, broker), admin.broker_config)

    found, failures = ask(namesrv, work)
    show(_rows(found, keys, "broker"), output)
    return exit_code(failures)


@broker_command.command(
    "set", epilog="Example: rocketpy broker-config set -b broker-a fileReservedTime=48"
)
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option(
    "-b",
    "--broker",
    default="",
    shell_complete=broker_names,
    metavar="NAME|HOST:PORT",
    help="This one.",
)
@click.option("--all", "every", is_flag=True, help="Every master.")
@namesrv_option
@output_option
def broker_set(
    *, pairs: tuple[str, ...], broker: str, every: bool, namesrv: str, output: str
) -> int:
    """Change keys of a running broker, which stores them."""
    if bool(broker) == every:
        raise click.UsageError("give --broker or --all")
    values = key_values(pairs, "KEY=VALUE")

    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> list[str]:
        masters = await _addresses(admin, broker)
        names = {address: name for name, address in masters.items()}

        async def change(address: str) -> None:
            try:
                await admin.update_broker_config(address, values)
            except NoPermissionError as error:
                known = await admin.broker_config(address)
                reason = _why_not(names[address], values, known, error.remark)
                raise click.ClickException(reason) from error

        return list(await done_at(admin.servers.change(masters, change), failures))

    show(_rows(dict.fromkeys(ask(namesrv, work), values), (), "broker"), output)
    return exit_code(failures)


@namesrv_command.command("get", epilog="Example: rocketpy namesrv-config get listenPort")
@click.argument("keys", nargs=-1)
@namesrv_option
@output_option
def namesrv_get(*, keys: tuple[str, ...], namesrv: str, output: str) -> int:
    """Show configuration keys of every name server (all keys by default)."""
    failures: dict[str, RocketPyError] = {}
    found = ask(namesrv, lambda admin: done_at(admin.namesrv_config(), failures))
    show(_rows(found, keys, "namesrv"), output)
    return exit_code(failures)


@namesrv_command.command(
    "set", epilog="Example: rocketpy namesrv-config set orderMessageEnable=true"
)
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@namesrv_option
@output_option
def namesrv_set(*, pairs: tuple[str, ...], namesrv: str, output: str) -> int:
    """Change keys of every running name server."""
    values = key_values(pairs, "KEY=VALUE")

    failures: dict[str, RocketPyError] = {}
    changed = ask(namesrv, lambda admin: done_at(admin.update_namesrv_config(values), failures))
    show(_rows(dict.fromkeys(changed, values), (), "namesrv"), output)
    return exit_code(failures)
