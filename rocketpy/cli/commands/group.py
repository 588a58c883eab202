"""`rocketpy group`: shows, creates, changes, moves and deletes consumer groups."""

import asyncio
from collections.abc import Awaitable

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.admin.offsets import ResetTarget
from rocketpy.admin.results import Answers
from rocketpy.cli.commands import dead_letters
from rocketpy.errors import RocketPyError, ServersFailedError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.terminal.cluster_calls import (
    ask,
    done_at,
    exit_code,
    unreadable_queues,
    warn_unreadable,
)
from rocketpy.terminal.common import (
    CONTEXT,
    Position,
    confirm,
    namesrv_option,
    output_option,
    position,
    queue_of,
    refuse_other_settings,
    yes_option,
)
from rocketpy.terminal.completion import group_names, topic_names
from rocketpy.terminal.parameters import group_name, offset_64, topic_name
from rocketpy.terminal.render import iso, show
from rocketpy.terminal.suggestions import HintingGroup


def _reset_target(text: str) -> Position:
    """Read a position; the error for a number that is no time names the option for offsets."""
    try:
        return position(text)
    except click.BadParameter as error:
        if not text.isdecimal():
            raise
        words = f"{error.message}; use --to-offset with --queue for an offset"
        raise click.BadParameter(words) from None


@click.group(
    "group",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy group lag readers",
)
def command() -> None:
    """Show, create, change, move and delete consumer groups."""


command.add_command(dead_letters.command)


@command.command("list", epilog="Example: rocketpy group list")
@click.option("--all", "every", is_flag=True, help="Also system groups.")
@namesrv_option
@output_option
def list_(*, every: bool, namesrv: str, output: str) -> int:
    """List groups with members and lag."""
    found = ask(namesrv, lambda admin: admin.groups(include_system=every))
    rows = [
        {
            "group": each.group,
            "members": each.members,
            "lag": each.lag,
            "out_tps": each.out_tps,
            "consume_type": each.consume_type,
            "message_model": each.message_model,
        }
        for each in found
    ]
    show(rows, output, empty="no groups")
    return exit_code(found.failures)


def _settings(config: SubscriptionGroupConfig) -> dict[str, object]:
    return {
        "retries": config.retry_max_times,
        "consume": config.consume_enable,
        "broadcast": config.consume_broadcast_enable,
        "orderly": config.consume_message_orderly,
    }


def _config_rows(configs: dict[str, SubscriptionGroupConfig]) -> list[dict[str, object]]:
    return [
        {"group": config.group_name, "broker": name, **_settings(config)}
        for name, config in sorted(configs.items())
    ]


@command.command("create", epilog="Example: rocketpy group create readers --retries 5")
@click.argument("group", type=group_name)
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

    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> dict[str, str]:
        masters = await admin.broker_addresses()
        tables, failed = await admin.servers.each(masters, admin.group_configs)
        failures.update(failed)
        found = {name: table[group] for name, table in tables.items() if group in table}
        if not may_change:
            others = {name: _settings(each) for name, each in found.items()}
            refuse_other_settings("group", group, _settings(config), others)
        results = dict.fromkeys({} if may_change else found, "exists")
        for name in tables.keys() - results.keys():
            if await done_at(admin.create_group(group, config=config, broker=name), failures):
                results[name] = "changed" if name in found else "created"
        return results

    results = ask(namesrv, work)
    rows = _config_rows(dict.fromkeys(results, config))
    show([row | {"result": results[str(row["broker"])]} for row in rows], output)
    return exit_code(failures)


@command.command("update", epilog="Example: rocketpy group update readers --no-consume")
@click.argument("group", type=group_name, shell_complete=group_names)
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

    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> dict[str, SubscriptionGroupConfig]:
        change = admin.update_group(
            group, retries=retries, consume=consume, broadcast=broadcast, orderly=orderly
        )
        return await done_at(change, failures)

    show(_config_rows(ask(namesrv, work)), output)
    return exit_code(failures)


@command.command("delete", epilog="Example: rocketpy group delete readers --yes")
@click.argument("group", type=group_name, shell_complete=group_names)
@click.option("--keep-offsets", is_flag=True, help="A new group of that name continues from there.")
@yes_option
@namesrv_option
@output_option
def delete(*, group: str, keep_offsets: bool, yes: bool, namesrv: str, output: str) -> int:
    """Delete a group and its offsets."""
    confirm(f"Delete group {group}?", yes=yes)
    failures: dict[str, RocketPyError] = {}
    deleted = ask(
        namesrv,
        lambda admin: done_at(admin.delete_group(group, keep_offsets=keep_offsets), failures),
    )
    rows = [
        {"group": group, "broker": name, "address": address, "result": "deleted"}
        for name, address in sorted(deleted.items())
    ]
    show(rows, output)
    return exit_code(failures)


@command.command("lag", epilog="Example: rocketpy group lag readers --topic orders")
@click.argument("group", type=group_name, shell_complete=group_names)
@click.option("--topic", default="", shell_complete=topic_names, help="Only this topic.")
@click.option("--owners", is_flag=True, help="Ask the members which queues they have.")
@namesrv_option
@output_option
def lag(*, group: str, topic: str, owners: bool, namesrv: str, output: str) -> int:
    """Show offsets and lag of a group in every queue.

    A warning counts messages in queues that the topic's --read-queues keep from consumers.
    """

    async def work(
        admin: rocketpy_admin.Admin,
    ) -> tuple[rocketpy_admin.GroupLag, dict[MessageQueue, int]]:
        found = await admin.group_lag(group, topic, owners=owners)
        if not found.queues and not found.failures:
            await admin.check_group(group)
        topics = sorted({each.queue.topic for each in found.queues})
        hidden = await asyncio.gather(*(_unreadable(admin, each) for each in topics))
        return found, {queue: count for each in hidden for queue, count in each.items()}

    found, hidden = ask(namesrv, work)
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
    for each in found.queues:
        if each.is_beyond_end:
            click.echo(
                f"warning: {each.queue.topic} queue {each.queue.queue_id} on "
                f"{each.queue.broker_name} ends at {each.broker_offset}, before the group's offset "
                f"{each.consumer_offset}: the broker has lost messages, or its log is missing",
                err=True,
            )
    warn_unreadable(hidden)
    return exit_code(found.failures)


async def _unreadable(admin: rocketpy_admin.Admin, topic: str) -> dict[MessageQueue, int]:
    """Return the unreadable queues of a topic; none without an answer, for the lag is known."""
    try:
        return await unreadable_queues(admin, await admin.topic_status(topic))
    except RocketPyError:
        return {}


@command.command("members", epilog="Example: rocketpy group members readers")
@click.argument("group", type=group_name, shell_complete=group_names)
@click.option("--producer-of", metavar="TOPIC", help="GROUP is a producer group of this topic.")
@namesrv_option
@output_option
def members(*, group: str, producer_of: str | None, namesrv: str, output: str) -> int:
    """List the connected clients of a group."""

    async def work(admin: rocketpy_admin.Admin) -> Answers[rocketpy_admin.Member]:
        if producer_of:
            return await admin.producer_connection(group, producer_of)
        found = await admin.group_members(group)
        if not found and not found.failures:
            await admin.check_group(group)
        return found

    found = ask(namesrv, work)
    rows = [
        {
            "client_id": each.client_id,
            "address": each.address,
            "language": each.language,
            "version": each.version,
            "broker": each.broker,
        }
        for each in found
    ]
    show(rows, output, empty=f"group {group} has no connected member")
    return exit_code(found.failures)


@command.command("reset", epilog="Example: rocketpy group reset readers orders --to 2h --yes")
@click.argument("group", type=group_name, shell_complete=group_names)
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.option(
    "--to",
    type=_reset_target,
    metavar="earliest|latest|TIME",
    help="earliest, latest, ISO 8601, ms since 1970, or 30m (ago).",
)
@click.option(
    "--to-offset", type=click.IntRange(0), callback=offset_64, help="An offset; needs --queue."
)
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

    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> list[rocketpy_admin.OffsetMove]:
        moves = admin.reset_offset(group, topic, target, queue=wanted, dry_run=dry_run)
        return await _done_moves(moves, failures)

    show(_moves(ask(namesrv, work)), output)
    return exit_code(failures)


@command.command("clone", epilog="Example: rocketpy group clone readers readers2 orders --yes")
@click.argument("source", type=group_name, shell_complete=group_names)
@click.argument("target", type=group_name, shell_complete=group_names)
@click.argument("topic", type=topic_name, shell_complete=topic_names)
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
    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> list[rocketpy_admin.OffsetMove]:
        moves = admin.clone_offsets(source, target, topic, dry_run=dry_run)
        return await _done_moves(moves, failures)

    moves = ask(namesrv, work)
    if not moves and not failures:
        raise click.ClickException(f"group {source} has no offsets in topic {topic}")
    show(_moves(moves), output)
    return exit_code(failures)


async def _done_moves(
    moves: Awaitable[list[rocketpy_admin.OffsetMove]], failures: dict[str, RocketPyError]
) -> list[rocketpy_admin.OffsetMove]:
    """Await moves; returns those of the brokers that have them, and adds to `failures`."""
    try:
        return await moves
    except ServersFailedError as error:
        if not error.done:
            raise
        failures.update(error.failures)
        done: dict[str, list[rocketpy_admin.OffsetMove]] = error.done  # type: ignore[assignment]
        return [move for moved in done.values() for move in moved]


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
