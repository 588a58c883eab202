"""`rocketpy group`: shows, creates, changes, moves and deletes consumer groups."""

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.admin.offsets import ResetTarget
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.terminal.common import (
    CONTEXT,
    Position,
    confirm,
    namesrv_option,
    output_option,
    position,
    queue_of,
    run,
    yes_option,
)
from rocketpy.terminal.completion import group_names, topic_names
from rocketpy.terminal.render import iso, show

_YOUNGEST_MS = 10**11
"""A smaller number of ms is before March 1973, so the user means an offset, or seconds."""


def _reset_target(text: str) -> Position:
    """Read a position; raises click.BadParameter for a number that cannot be a time."""
    if text.isdecimal() and int(text) < _YOUNGEST_MS:
        raise click.BadParameter(
            f"{text} ms since 1970 is too early for a time; "
            "use --to-offset with --queue for an offset, earliest for the beginning"
        )
    return position(text)


@click.group("group", context_settings=CONTEXT, epilog="Example: rocketpy group lag readers")
def command() -> None:
    """Show, create, change, move and delete consumer groups."""


@command.command("list", epilog="Example: rocketpy group list")
@click.option("--all", "every", is_flag=True, help="Also system groups.")
@namesrv_option
@output_option
def list_(*, every: bool, namesrv: str, output: str) -> int:
    """List groups with members and lag."""

    async def work() -> list[rocketpy_admin.GroupSummary]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.groups(include_system=every)

    rows = [
        {
            "group": each.group,
            "members": each.members,
            "lag": each.lag,
            "out_tps": each.out_tps,
            "consume_type": each.consume_type,
            "message_model": each.message_model,
        }
        for each in run(work())
    ]
    show(rows, output, empty="no groups")
    return 0


def _config_rows(configs: dict[str, SubscriptionGroupConfig]) -> list[dict[str, object]]:
    return [
        {
            "group": config.group_name,
            "broker": name,
            "retries": config.retry_max_times,
            "consume": config.consume_enable,
            "broadcast": config.consume_broadcast_enable,
            "orderly": config.consume_message_orderly,
        }
        for name, config in sorted(configs.items())
    ]


@command.command("create", epilog="Example: rocketpy group create readers --retries 5")
@click.argument("group")
@click.option("--retries", type=click.IntRange(0), default=16, show_default=True)
@click.option("--broadcast/--no-broadcast", default=True, help="Whether broadcasting is allowed.")
@click.option("--orderly/--no-orderly", default=False, help="Whether pop consumers keep the order.")
@click.option("--update", "may_change", is_flag=True, help="Change a group that exists.")
@namesrv_option
@output_option
def create(
    *,
    group: str,
    retries: int,
    broadcast: bool,
    orderly: bool,
    may_change: bool,
    namesrv: str,
    output: str,
) -> int:
    """Create a group on every master; with --update, replace the settings of an existing one.

    Without --update an existing group is not changed, and other settings are an error.
    """
    config = SubscriptionGroupConfig(
        group_name=group,
        retry_max_times=retries,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
    )

    async def work() -> dict[str, str]:
        async with rocketpy_admin.connect(namesrv) as admin:
            masters = await admin.broker_addresses()
            tables = {name: await admin.group_configs(at) for name, at in masters.items()}
            found = {name: table[group] for name, table in tables.items() if group in table}
            if not may_change:
                _refuse_another(config, found)
            kept = {} if may_change else found
            for name in masters.keys() - kept.keys():
                await admin.create_group(group, config=config, broker=name)
            results = {name: "changed" if name in found else "created" for name in masters}
            return results | dict.fromkeys(kept, "exists")

    results = run(work())
    rows = _config_rows(dict.fromkeys(results, config))
    show([row | {"result": results[str(row["broker"])]} for row in rows], output)
    return 0


def _refuse_another(
    wanted: SubscriptionGroupConfig, found: dict[str, SubscriptionGroupConfig]
) -> None:
    """Raise click.ClickException when a broker has the group with other settings."""
    [asked] = _config_rows({"": wanted})
    for row in _config_rows(found):
        others = [
            f"{key} {str(value).lower()}"
            for key, value in row.items()
            if key not in {"group", "broker"} and value != asked[key]
        ]
        if others:
            raise click.ClickException(
                f"group {row['group']} exists on {row['broker']} with {', '.join(others)}: "
                "nothing was changed; --update replaces its settings, group update changes some"
            )


@command.command("update", epilog="Example: rocketpy group update readers --no-consume")
@click.argument("group", shell_complete=group_names)
@click.option("--retries", type=click.IntRange(0), help="Deliveries after the first one.")
@click.option("--consume/--no-consume", default=None, help="Whether members get messages.")
@click.option("--broadcast/--no-broadcast", default=None, help="Whether broadcasting is allowed.")
@click.option("--orderly/--no-orderly", default=None, help="Whether pop consumers keep the order.")
@namesrv_option
@output_option
def update(
    *,
    group: str,
    retries: int | None,
    consume: bool | None,
    broadcast: bool | None,
    orderly: bool | None,
    namesrv: str,
    output: str,
) -> int:
    """Change the given settings of a group."""
    if all(each is None for each in (retries, consume, broadcast, orderly)):
        raise click.UsageError("nothing to change: give --retries, --no-consume, ...")

    async def work() -> dict[str, SubscriptionGroupConfig]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.update_group(
                group, retries=retries, consume=consume, broadcast=broadcast, orderly=orderly
            )

    show(_config_rows(run(work())), output)
    return 0


@command.command("delete", epilog="Example: rocketpy group delete readers --yes")
@click.argument("group", shell_complete=group_names)
@click.option("--keep-offsets", is_flag=True, help="A new group of that name continues from there.")
@yes_option
@namesrv_option
@output_option
def delete(*, group: str, keep_offsets: bool, yes: bool, namesrv: str, output: str) -> int:
    """Delete a group and its offsets."""
    confirm(f"Delete group {group}?", yes=yes)

    async def work() -> dict[str, str]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.delete_group(group, keep_offsets=keep_offsets)

    rows = [
        {"group": group, "broker": name, "address": address, "result": "deleted"}
        for name, address in sorted(run(work()).items())
    ]
    show(rows, output)
    return 0


@command.command("lag", epilog="Example: rocketpy group lag readers --topic orders")
@click.argument("group", shell_complete=group_names)
@click.option("--topic", default="", shell_complete=topic_names, help="Only this topic.")
@click.option("--owners", is_flag=True, help="Ask the members which queues they have.")
@namesrv_option
@output_option
def lag(*, group: str, topic: str, owners: bool, namesrv: str, output: str) -> int:
    """Show offsets and lag of a group in every queue."""

    async def work() -> rocketpy_admin.GroupLag:
        async with rocketpy_admin.connect(namesrv) as admin:
            found = await admin.group_lag(group, topic, owners=owners)
            if not found.queues:
                await admin.group_config(group)  # raises if the group does not exist
            return found

    found = run(work())
    rows = [
        {
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "broker_offset": each.broker_offset,
            "consumer_offset": each.consumer_offset,
            "lag": each.lag,
            "last_consumed": iso(each.last_consumed_ms),
            "client_id": each.client_id,
        }
        for each in found.queues
    ]
    show(rows, output, empty=f"group {group} has no offsets yet")
    if output == "table" and rows:
        click.echo(f"{found.lag:,} messages behind, {found.out_tps:,.1f} consumed a second")
    return 0


@command.command("members", epilog="Example: rocketpy group members readers")
@click.argument("group", shell_complete=group_names)
@click.option("--producer-of", metavar="TOPIC", help="GROUP is a producer group of this topic.")
@namesrv_option
@output_option
def members(*, group: str, producer_of: str | None, namesrv: str, output: str) -> int:
    """List the connected clients of a group."""

    async def work() -> list[rocketpy_admin.Member]:
        async with rocketpy_admin.connect(namesrv) as admin:
            if producer_of:
                return await admin.producer_connection(group, producer_of)
            return await admin.group_members(group)

    rows = [
        {
            "client_id": each.client_id,
            "address": each.address,
            "language": each.language,
            "version": each.version,
            "broker": each.broker,
        }
        for each in run(work())
    ]
    show(rows, output, empty=f"group {group} has no connected member")
    return 0


@command.command("reset", epilog="Example: rocketpy group reset readers orders --to 2h --yes")
@click.argument("group", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--to",
    type=_reset_target,
    metavar="earliest|latest|TIME",
    help="earliest, latest, ISO 8601, ms since 1970, or 30m (ago).",
)
@click.option("--to-offset", type=click.IntRange(0), help="An offset; needs --queue.")
@click.option("--queue", metavar="BROKER:N", help="Only this queue.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@yes_option
@namesrv_option
@output_option
def reset(  # noqa: PLR0913 - one argument an option
    *,
    group: str,
    topic: str,
    to: Position | None,
    to_offset: int | None,
    queue: str | None,
    dry_run: bool,
    yes: bool,
    namesrv: str,
    output: str,
) -> int:
    """Reset the offsets of a group; connected members follow. Asks for confirmation."""
    if (to is None) == (to_offset is None):
        raise click.UsageError("give --to or --to-offset")
    if to_offset is not None and queue is None:
        raise click.UsageError("--to-offset needs --queue")
    target: ResetTarget = to if to is not None else to_offset or 0
    wanted = None if queue is None else queue_of(topic, queue)
    if not dry_run:
        where = "an offset" if to is None else to if isinstance(to, str) else to.isoformat()
        question = f"Move group {group} to {where} in {queue or 'all queues'} of topic {topic}?"
        confirm(question, yes=yes)

    async def work() -> list[rocketpy_admin.OffsetMove]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.reset_offset(group, topic, target, queue=wanted, dry_run=dry_run)

    show(_moves(run(work())), output)
    return 0


@command.command("clone", epilog="Example: rocketpy group clone readers readers2 orders --yes")
@click.argument("source", shell_complete=group_names)
@click.argument("target", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@yes_option
@namesrv_option
@output_option
def clone(
    *, source: str, target: str, topic: str, dry_run: bool, yes: bool, namesrv: str, output: str
) -> int:
    """Copy the offsets of SOURCE to TARGET, which must exist without members. Asks first."""
    if not dry_run:
        confirm(f"Move group {target} to where {source} is in topic {topic}?", yes=yes)

    async def work() -> list[rocketpy_admin.OffsetMove]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.clone_offsets(source, target, topic, dry_run=dry_run)

    moves = run(work())
    if not moves:
        raise click.ClickException(f"group {source} has no offsets in topic {topic}")
    show(_moves(moves), output)
    return 0


def _moves(moves: list[rocketpy_admin.OffsetMove]) -> list[dict[str, object]]:
    return [
        {
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "from_offset": each.from_offset,
            "to_offset": each.to_offset,
        }
        for each in moves
    ]
