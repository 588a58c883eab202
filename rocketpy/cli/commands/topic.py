"""`rocketpy topic`: creates, shows, changes and deletes topics."""

from collections.abc import Iterable, Mapping

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.perm import perm_to_string
from rocketpy.terminal.common import (
    CONTEXT,
    confirm,
    key_values,
    namesrv_option,
    output_option,
    permission,
    queue_of,
    run,
    yes_option,
)
from rocketpy.terminal.completion import broker_names, topic_names
from rocketpy.terminal.render import iso, message_row, show

_QUEUES = click.IntRange(1, 65_535)


@click.group(
    "topic", context_settings=CONTEXT, epilog="Example: rocketpy topic create orders --queues 8"
)
def command() -> None:
    """Create, show, change and delete topics."""


@command.command("list", epilog="Example: rocketpy topic list --all")
@click.option("--all", "every", is_flag=True, help="Also system, retry and dead letter topics.")
@click.option("--cluster", default="", help="Only of this cluster.")
@namesrv_option
@output_option
def list_(*, every: bool, cluster: str, namesrv: str, output: str) -> int:
    """List topics."""

    async def work() -> list[dict[str, object]]:
        async with rocketpy_admin.connect(namesrv) as admin:
            names = await admin.topics(cluster=cluster, include_system=every)
            tables: dict[str, dict[str, TopicConfig]] = {}
            if names:
                masters = await admin.broker_addresses(cluster=cluster)
                tables = {name: await admin.topic_configs(at) for name, at in masters.items()}
        return [_topic_row(name, tables) for name in names]

    show(run(work()), output, empty="no topics")
    return 0


def _topic_row(topic: str, tables: dict[str, dict[str, TopicConfig]]) -> dict[str, object]:
    found = {broker: table[topic] for broker, table in tables.items() if topic in table}
    perms = {perm_to_string(each.perm) for each in found.values()}
    return {
        "topic": topic,
        "queues": sum(each.write_queue_nums for each in found.values()),
        "perm": "/".join(sorted(perms)),
        "order": any(each.order for each in found.values()),
        "brokers": sorted(found),
    }


@command.command("create", epilog="Example: rocketpy topic create orders --queues 8")
@click.argument("topic", shell_complete=topic_names)
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
    the command asks before queues with messages become unreadable.
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

    async def work() -> list[dict[str, object]]:
        async with rocketpy_admin.connect(namesrv) as admin:
            masters = await admin.broker_addresses(cluster=cluster, broker=broker)
            found = await _existing(admin, topic, masters)
            results = {each: "changed" if each in found else "created" for each in masters}
            if may_change and found:
                await _confirm_hiding(admin, topic, reads, found, yes=yes)
            elif found:
                _refuse_another(topic, wanted, found)
                results |= dict.fromkeys(found, "exists")
            if set(results.values()) != {"exists"}:
                await admin.create_topic(
                    topic,
                    queues,
                    read_queues=read_queues,
                    perm=perm,
                    order=order,
                    attributes=added,
                    cluster=cluster,
                    broker=broker,
                )
            return _changed(topic, masters, results)

    show(run(work()), output)
    return 0


async def _existing(
    admin: rocketpy_admin.Admin, topic: str, masters: Mapping[str, str]
) -> dict[str, TopicConfig]:
    """Return the configuration of the topic at each broker that has it, by broker name."""
    tables = {name: await admin.topic_configs(address) for name, address in masters.items()}
    return {name: table[topic] for name, table in tables.items() if topic in table}


def _refuse_another(topic: str, wanted: TopicConfig, found: Mapping[str, TopicConfig]) -> None:
    """Raise click.ClickException when a broker has the topic with other settings."""
    for name, config in found.items():
        values = _settings(config, wanted.attributes)
        others = [
            f"{key} {value}"
            for (key, value), asked in zip(
                values.items(), _settings(wanted, wanted.attributes).values(), strict=True
            )
            if value != asked
        ]
        if others:
            raise click.ClickException(
                f"topic {topic} exists on {name} with {', '.join(others)}: nothing was changed; "
                "--update replaces its settings, topic update changes some"
            )


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
    hidden = [
        each
        for each in (await admin.topic_status(topic)).queues
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
@click.argument("topic", shell_complete=topic_names)
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

    async def work() -> dict[str, TopicConfig]:
        async with rocketpy_admin.connect(namesrv) as admin:
            if read_queues is not None and not yes:
                masters = await admin.broker_addresses(broker=broker)
                found = await _existing(admin, topic, masters)
                await _confirm_hiding(admin, topic, read_queues, found, yes=yes)
            return await admin.update_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                perm=perm,
                attributes=key_values(attributes, "--attribute"),
                broker=broker,
            )

    changed = run(work())
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
    return 0


@command.command("delete", epilog="Example: rocketpy topic delete orders --yes")
@click.argument("topic", shell_complete=topic_names)
@click.option("--cluster", default="", help="Only on this cluster.")
@yes_option
@namesrv_option
@output_option
def delete(*, topic: str, cluster: str, yes: bool, namesrv: str, output: str) -> int:
    """Delete a topic and all its messages."""
    confirm(f"Delete topic {topic} and all its messages?", yes=yes)

    async def work() -> dict[str, str]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.delete_topic(topic, cluster=cluster)

    deleted = run(work())
    show(_changed(topic, deleted, dict.fromkeys(deleted, "deleted")), output)
    return 0


@command.command("route", epilog="Example: rocketpy topic route orders")
@click.argument("topic", shell_complete=topic_names)
@namesrv_option
@output_option
def route(*, topic: str, namesrv: str, output: str) -> int:
    """Show which brokers serve a topic."""

    async def work() -> list[dict[str, object]]:
        async with rocketpy_admin.connect(namesrv) as admin:
            found = await admin.topic_route(topic)
        queues = {each.broker_name: each for each in found.queue_datas}
        return [
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

    show(run(work()), output)
    return 0


@command.command("status", epilog="Example: rocketpy topic status orders")
@click.argument("topic", shell_complete=topic_names)
@namesrv_option
@output_option
def status(*, topic: str, namesrv: str, output: str) -> int:
    """Show the offsets of every queue."""

    async def work() -> rocketpy_admin.TopicStatus:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.topic_status(topic)

    found = run(work())
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
    return 0


@command.command("peek", epilog="Example: rocketpy topic peek orders --newest --max 10")
@click.argument("topic", shell_complete=topic_names)
@click.option("--max", "max_count", type=click.IntRange(1), default=32, show_default=True)
@click.option("--queue", metavar="[BROKER:]N", help="Only this queue.")
@click.option("--offset", type=click.IntRange(0), help="First offset in each queue.")
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

    async def work() -> list[dict[str, object]]:
        async with rocketpy_admin.connect(namesrv) as admin:
            found = await admin.peek(
                topic,
                max_count=max_count,
                broker=broker,
                queue_id=number,
                offset=offset,
                newest=newest,
                tag=tag,
            )
            names = await admin.broker_names()
            return [message_row(each, names) for each in found]

    columns = ("broker", "queue", "offset", "tag", "keys", "stored", "body")
    show(run(work()), output, columns=columns, empty="no messages")
    return 0
