"""`rocketpy message`: finds single messages."""

from dataclasses import asdict

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.errors import QueryNotFoundError, TopicNotExistError
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.trace import TRACE_TOPIC, TraceRecord
from rocketpy.terminal.common import (
    CONTEXT,
    Position,
    namesrv_option,
    output_option,
    position,
    queue_of,
    run,
)
from rocketpy.terminal.completion import topic_names
from rocketpy.terminal.render import iso, message_row, printable, show

_COLUMNS = ("broker", "queue", "offset", "tag", "keys", "stored", "msg_id", "body")
_TRACE_COLUMNS = ("kind", "time", "group", "cost_ms", "success", "msg_id")
_LONG_MAX = (1 << 63) - 1


@click.group(
    "message", context_settings=CONTEXT, epilog="Example: rocketpy message find orders --key o1"
)
def command() -> None:
    """Find messages."""


@command.command("get", epilog="Example: rocketpy message get 7F00000100002A9F0000000000000000")
@click.argument("message_id", metavar="ID")
@click.option(
    "--topic", shell_complete=topic_names, help="With it, ID may be a producer's id (msg_id)."
)
@namesrv_option
@output_option
def get(*, message_id: str, topic: str | None, namesrv: str, output: str) -> int:
    """Show one message with all its properties.

    ID is an offset id (offset_msg_id), which contains broker and log offset.
    """

    async def work() -> dict[str, object]:
        async with rocketpy_admin.connect(namesrv) as admin:
            if topic:
                found = await admin.message_by_id(topic, message_id)
            else:
                found = await admin.message_by_offset_id(message_id)
            return message_row(found, await admin.broker_names())

    row = run(work())
    if output == "json":
        show([row], output)
        return 0
    properties = row.pop("properties")
    assert isinstance(properties, dict), "message_row makes it a dictionary"
    width = max(len(key) for key in row)
    body = row.pop("body")
    for key, value in row.items():
        text = " ".join(value) if isinstance(value, list) else str(value)
        click.echo(f"{key:{width}}  {printable(text)}")
    for name, value in sorted(properties.items()):
        click.echo(f"{'property':{width}}  {printable(f'{name}={value}')}")
    click.echo("\n" + "\n".join(printable(line) for line in str(body).split("\n")))
    return 0


@command.command("find", epilog="Example: rocketpy message find orders --key o1 --from 2h")
@click.argument("topic", shell_complete=topic_names)
@click.option("--key", help="One of the message's keys.")
@click.option("--unique", metavar="MSG_ID", help="The producer's id.")
@click.option("--queue", metavar="BROKER:N", help="Queue of the message; needs --offset.")
@click.option("--offset", type=click.IntRange(0), help="Offset in --queue.")
@click.option("--from", "begin", type=position, metavar="TIME", help="Earliest store time.")
@click.option("--until", "end", type=position, metavar="TIME", help="Latest store time.")
@click.option("--max", "max_count", type=click.IntRange(1), default=64, show_default=True)
@namesrv_option
@output_option
def find(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    key: str | None,
    unique: str | None,
    queue: str | None,
    offset: int | None,
    begin: Position | None,
    end: Position | None,
    max_count: int,
    namesrv: str,
    output: str,
) -> int:
    """Find messages by key, by id, or by queue and offset; exit code 1 without a result."""
    by_place = queue is not None and offset is not None
    if [key is not None, unique is not None, by_place].count(True) != 1:
        raise click.UsageError("give --key, or --unique, or --queue with --offset")

    async def look(admin: rocketpy_admin.Admin) -> list[MessageExt]:
        if key is not None:
            begin_ms, end_ms = _time_ms(begin, 0), _time_ms(end, _LONG_MAX)
            return await admin.messages_by_key(
                topic, key, max_count=max_count, begin_ms=begin_ms, end_ms=end_ms
            )
        if unique is not None:
            return [await admin.message_by_unique_id(topic, unique)]
        assert queue is not None, "checked above"
        assert offset is not None, "checked above"
        return [await admin.message_at(queue_of(topic, queue), offset)]

    async def work() -> list[dict[str, object]]:
        async with rocketpy_admin.connect(namesrv) as admin:
            names = await admin.broker_names()
            return [message_row(each, names) for each in await look(admin)]

    rows = run(work())
    if not rows:
        raise QueryNotFoundError(22, f"topic {topic} has no message with the key {key}")
    show(rows, output, columns=_COLUMNS)
    return 0


def _time_ms(position: Position | None, default: int) -> int:
    if position is None or isinstance(position, str):
        return default
    return int(position.timestamp() * 1000)


@command.command("trace", epilog="Example: rocketpy message trace AC1100012A9F...")
@click.argument("message_id", metavar="ID")
@click.option("--topic", default=TRACE_TOPIC, show_default=True, help="The trace topic.")
@namesrv_option
@output_option
def trace(*, message_id: str, topic: str, namesrv: str, output: str) -> int:
    """Show the trace of a message, of clients with trace=True.

    ID is the producer's id (msg_id), or one of the message's keys. The exit code is 1 without a
    record; clients record with a short delay.
    """

    async def work() -> list[TraceRecord]:
        async with rocketpy_admin.connect(namesrv) as admin:
            try:
                return await admin.trace(message_id, topic=topic)
            except TopicNotExistError:
                raise click.ClickException(
                    f"topic {topic} does not exist: no client recorded a trace (trace=True)"
                ) from None

    rows = [
        {"kind": record.kind, "time": iso(record.time_ms), **asdict(record)}
        for record in run(work())
    ]
    if output == "json":
        show(rows, output)
    else:
        table = [{name: row.get(name, "") for name in _TRACE_COLUMNS} for row in rows]
        show(table, output, empty=f"no trace of {message_id} in {topic} yet")
    return 0 if rows else 1
