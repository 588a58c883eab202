"""`rocketpy topic`: creates, shows, changes and deletes topics."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.admin.results import Answers
from rocketpy.admin.topics import ORDER_TOPIC_CONFIG
from rocketpy.cli.commands.cluster import check_cluster
from rocketpy.errors import RocketPyError, ServersFailedError, TopicNotExistError
from rocketpy.proto.bodies.route import TopicRouteData
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.perm import perm_to_string
from rocketpy.proto.record.message import MessageExt
from rocketpy.terminal.cluster_calls import ask, done_at, exit_code
from rocketpy.terminal.common import (
    CONTEXT,
    confirm,
    key_values,
    namesrv_option,
    output_option,
    permission,
    queue_of,
    refuse_other_settings,
    yes_option,
)
from rocketpy.terminal.completion import broker_names, topic_names
from rocketpy.terminal.parameters import offset_64, topic_name
from rocketpy.terminal.render import iso, message_row, show
from rocketpy.terminal.suggestions import HintingGroup

_AT_ONCE: Final = 32
"""Limit of concurrent requests to the name servers."""
_QUEUES = click.IntRange(1, 65_535)


@click.group(
    "topic",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy topic create orders --queues 8",
)
def command() -> None:
    """Create, show, change and delete topics."""


@command.command("list", epilog="Example: rocketpy topic list --all")
@click.option("--all", "every", is_flag=True, help="Also system, retry and dead letter topics.")
@click.option("--cluster", default="", help="Only of this cluster.")
@namesrv_option
@output_option
def list_(*, every: bool, cluster: str, namesrv: str, output: str) -> int:
    """List topics, as the name servers know them; no broker is asked."""

    async def work(admin: rocketpy_admin.Admin) -> list[dict[str, object]]:
        await check_cluster(admin, cluster)
        names = await admin.topics(cluster=cluster, include_system=every)
        ordered = await admin.kv_list(ORDER_TOPIC_CONFIG)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def row(name: str) -> dict[str, object]:
            async with gate:
                try:
                    route = await admin.topic_route(name)
                except TopicNotExistError:  # deleted meanwhile, or its brokers are gone
                    route = TopicRouteData()
            return _topic_row(name, route, cluster) | {"order": name in ordered}

        return await asyncio.gather(*map(row, names))

    show(ask(namesrv, work), output, empty="no topics")
    return 0


def _topic_row(topic: str, route: TopicRouteData, cluster: str) -> dict[str, object]:
    brokers = {each.broker_name for each in route.broker_datas if cluster in {"", each.cluster}}
    found = [each for each in route.queue_datas if each.broker_name in brokers]
    return {
        "topic": topic,
        "queues": sum(each.write_queue_nums for each in found),
        "perm": "/".join(sorted({perm_to_string(each.perm) for each in found})),
        "order": False,
        "brokers": sorted(each.broker_name for each in found),
    }


@command.command("create", epilog="Example: rocketpy topic create orders --queues 8")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.option("--queues", type=_QUEUES, default=8, show_default=True, help="Number on each broker.")
@click.option("--read-queues", type=_QUEUES, help="Number read; --queues by default.")
@click.option("--perm", type=permission, default="rw", show_default=True, metavar="r|w|rw")
@click.option("--order", is_flag=True, help="Keys keep their queue while a broker is down.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", help="message.type=FIFO")
@click.option("--cluster", default="", help="Only on this cluster.")
@click.option("--broker", default="", shell_complete=broker_names, help="Only on this broker.")
@click.option("--update", "may_change", is_flag=True, help="Change a topic that exists.")
@yes_option
@namesrv_option
@output_option
def create(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    queues: int,
    read_queues: int | None,
    perm: int,
    order: bool,
    attributes: tuple[str, ...],
    cluster: str,
    broker: str,
    may_change: bool,
    yes: bool,
    namesrv: str,
    output: str,
) -> int:
    """Create a topic on every master; with --update, replace the settings of an existing one.

    Without --update an existing topic is not changed, and other settings are an error. With it,
    the command asks before queues with messages become unreadable. Fewer --read-queues than
    --queues lead to a warning, because consumers miss the messages of the others.
    """
    added = key_values(attributes, "--attribute")
    reads = queues if read_queues is None else read_queues
    wanted = TopicConfig(
        topic_name=topic,
        write_queue_nums=queues,
        read_queue_nums=reads,
        perm=perm,
        order=order,
        attributes=added,
    )

    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> list[dict[str, object]]:
        masters = await admin.broker_addresses(cluster=cluster, broker=broker)
        found = await _existing(admin, topic, masters, failures)
        results = {each: "changed" if each in found else "created" for each in masters}
        if may_change and found:
            await _confirm_hiding(admin, topic, reads, found, yes=yes)
        elif found:
            refuse_other_settings(
                "topic",
                topic,
                _settings(wanted, added),
                {name: _settings(config, added) for name, config in found.items()},
            )
            results |= dict.fromkeys(found, "exists")
        if set(results.values()) != {"exists"}:
            change = admin.create_topic(
                topic,
                queues,
                read_queues=read_queues,
                perm=perm,
                order=order,
                attributes=added,
                cluster=cluster,
                broker=broker,
            )
            masters = await done_at(change, failures)
        return _changed(topic, masters, results)

    show(ask(namesrv, work), output)
    _warn_fewer_reads(topic, reads, queues)
    return exit_code(failures)


def _warn_fewer_reads(topic: str, reads: int, writes: int) -> None:
    """Warn of queues that producers write to and consumers do not read."""
    if reads < writes:
        click.echo(
            f"warning: topic {topic} is written to {writes} queues and read from {reads}: "
            f"messages in queues from {reads} on are not reachable",
            err=True,
        )


async def _existing(
    admin: rocketpy_admin.Admin,
    topic: str,
    masters: Mapping[str, str],
    failures: dict[str, RocketPyError],
) -> dict[str, TopicConfig]:
    """Return the topic's configuration by name of the broker that has it; adds to `failures`."""
    tables, failed = await admin.servers.each(masters, admin.topic_configs)
    failures |= failed
    return {name: table[topic] for name, table in tables.items() if topic in table}


def _settings(config: TopicConfig, attributes: Iterable[str]) -> dict[str, object]:
    """Return the settings of `topic create` in readable form, with the given attributes only."""
    return {
        "queues": config.write_queue_nums,
        "read queues": config.read_queue_nums,
        "perm": perm_to_string(config.perm),
        "order": str(config.order).lower(),
    } | {name: config.attributes.get(name, "unset") for name in attributes}


async def _confirm_hiding(
    admin: rocketpy_admin.Admin,
    topic: str,
    reads: int,
    found: Mapping[str, TopicConfig],
    *,
    yes: bool,
) -> None:
    """Ask before queues with messages become unreadable; raises click.Abort."""
    if yes or all(config.read_queue_nums <= reads for config in found.values()):
        return
    status = await admin.topic_status(topic)
    if status.failures:  # their messages cannot be counted, so the question would be wrong
        raise ServersFailedError({}, status.failures)
    hidden = [
        each
        for each in status.queues
        if each.queue.broker_name in found
        and reads <= each.queue.queue_id < found[each.queue.broker_name].read_queue_nums
    ]
    messages = sum(each.messages for each in hidden)
    if messages:
        what = f"{messages:,} messages of topic {topic} in queues from {reads} on"
        confirm(f"Read {reads} queues only, so that {what} are not reachable?", yes=False)


def _changed(
    topic: str, brokers: Mapping[str, str], results: Mapping[str, str]
) -> list[dict[str, object]]:
    return [
        {"topic": topic, "broker": name, "address": address, "result": results[name]}
        for name, address in sorted(brokers.items())
    ]


@command.command("update", epilog="Example: rocketpy topic update orders --perm r")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.option("--queues", type=_QUEUES, help="Number on each broker.")
@click.option("--read-queues", type=_QUEUES, help="Number read; never lowered by --queues.")
@click.option("--perm", type=permission, metavar="r|w|rw")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", help="message.type=FIFO")
@click.option("--broker", default="", shell_complete=broker_names, help="Only on this broker.")
@yes_option
@namesrv_option
@output_option
def update(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    queues: int | None,
    read_queues: int | None,
    perm: int | None,
    attributes: tuple[str, ...],
    broker: str,
    yes: bool,
    namesrv: str,
    output: str,
) -> int:
    """Change the given settings of a topic.

    With fewer --queues, the others are still read for their messages. Fewer --read-queues make
    their messages unreachable, so the command asks first.
    """
    if queues is None and read_queues is None and perm is None and not attributes:
        raise click.UsageError("nothing to change: give --queues, --perm or --attribute")

    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> dict[str, TopicConfig]:
        if read_queues is not None and not yes:
            masters = await admin.broker_addresses(broker=broker)
            found = await _existing(admin, topic, masters, failures)
            await _confirm_hiding(admin, topic, read_queues, found, yes=yes)
        change = admin.update_topic(
            topic,
            queues=queues,
            read_queues=read_queues,
            perm=perm,
            attributes=key_values(attributes, "--attribute"),
            broker=broker,
        )
        return await done_at(change, failures)

    changed = ask(namesrv, work)
    rows = [
        {
            "topic": topic,
            "broker": name,
            "read_queues": config.read_queue_nums,
            "write_queues": config.write_queue_nums,
            "perm": perm_to_string(config.perm),
        }
        for name, config in sorted(changed.items())
    ]
    show(rows, output)
    reads = max(config.read_queue_nums for config in changed.values())
    if queues is not None and read_queues is None and reads > queues:
        click.echo(
            f"topic {topic} is still read from {reads} queues, for their messages: "
            f"--read-queues {queues} ends that",
            err=True,
        )
    if queues is not None or read_queues is not None:
        fewest = min(changed.values(), key=lambda each: each.read_queue_nums)
        _warn_fewer_reads(topic, fewest.read_queue_nums, fewest.write_queue_nums)
    return exit_code(failures)


@command.command("delete", epilog="Example: rocketpy topic delete orders --yes")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.option("--cluster", default="", help="Only on this cluster.")
@yes_option
@namesrv_option
@output_option
def delete(*, topic: str, cluster: str, yes: bool, namesrv: str, output: str) -> int:
    """Delete a topic and all its messages."""
    confirm(f"Delete topic {topic} and all its messages?", yes=yes)

    failures: dict[str, RocketPyError] = {}
    deleted = ask(
        namesrv, lambda admin: done_at(admin.delete_topic(topic, cluster=cluster), failures)
    )
    show(_changed(topic, deleted, dict.fromkeys(deleted, "deleted")), output)
    return exit_code(failures)


@command.command("route", epilog="Example: rocketpy topic route orders")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@namesrv_option
@output_option
def route(*, topic: str, namesrv: str, output: str) -> int:
    """Show which brokers serve a topic."""
    found = ask(namesrv, lambda admin: admin.topic_route(topic))
    queues = {each.broker_name: each for each in found.queue_datas}
    rows = [
        {
            "topic": topic,
            "cluster": data.cluster,
            "broker": data.broker_name,
            "id": broker_id,
            "address": address,
            "read_queues": queues[data.broker_name].read_queue_nums,
            "write_queues": queues[data.broker_name].write_queue_nums,
            "perm": perm_to_string(queues[data.broker_name].perm),
        }
        for data in sorted(found.broker_datas, key=lambda each: each.broker_name)
        for broker_id, address in sorted(data.broker_addrs.items())
        if data.broker_name in queues
    ]
    show(rows, output)
    return 0


@command.command("status", epilog="Example: rocketpy topic status orders")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@namesrv_option
@output_option
def status(*, topic: str, namesrv: str, output: str) -> int:
    """Show the offsets of every queue."""
    found = ask(namesrv, lambda admin: admin.topic_status(topic))
    rows = [
        {
            "topic": topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "min_offset": each.min_offset,
            "max_offset": each.max_offset,
            "messages": each.messages,
            "last_stored": iso(each.last_stored_ms),
        }
        for each in found.queues
    ]
    show(rows, output)
    if output == "table":
        click.echo(f"{found.messages:,} messages, {found.in_tps:,.1f} more a second")
    return exit_code(found.failures)


@command.command("peek", epilog="Example: rocketpy topic peek orders --newest --max 10")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.option("--max", "max_count", type=click.IntRange(1), default=32, show_default=True)
@click.option("--queue", metavar="[BROKER:]N", help="Only this queue.")
@click.option(
    "--offset", type=click.IntRange(0), callback=offset_64, help="First offset in each queue."
)
@click.option("--newest", is_flag=True, help="Show the newest messages instead of the oldest.")
@click.option("--tag", default="*", show_default=True, help='Only these tags, such as "a || b".')
@namesrv_option
@output_option
def peek(
    *,
    topic: str,
    max_count: int,
    queue: str | None,
    offset: int | None,
    newest: bool,
    tag: str,
    namesrv: str,
    output: str,
) -> int:
    """Print messages without consuming them."""
    broker, number = "", None
    if queue is not None and queue.isdecimal():
        number = int(queue)
    elif queue is not None:
        _, broker, number = queue_of(topic, queue)

    async def work(admin: rocketpy_admin.Admin) -> tuple[Answers[MessageExt], dict[str, str]]:
        found = await admin.peek(
            topic,
            max_count=max_count,
            broker=broker,
            queue_id=number,
            offset=offset,
            newest=newest,
            tag=tag,
        )
        return found, await admin.broker_names()

    found, names = ask(namesrv, work)
    columns = ("broker", "queue", "offset", "tag", "keys", "stored", "body")
    rows = [message_row(each, names) for each in found]
    show(rows, output, columns=columns, empty="no messages")
    return exit_code(found.failures)
