"""`rocketpy message`: finds single messages."""

from dataclasses import asdict

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.admin.results import Answers
from rocketpy.errors import (
    ClientError,
    QueryNotFoundError,
    SystemFaultError,
    TopicNotExistError,
)
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.trace import TRACE_TOPIC, TraceRecord
from rocketpy.terminal.cluster_calls import ask, exit_code
from rocketpy.terminal.common import (
    CONTEXT,
    Position,
    namesrv_option,
    output_option,
    position,
    queue_of,
)
from rocketpy.terminal.completion import topic_names
from rocketpy.terminal.error_exit import EXIT_FAILURE, complain
from rocketpy.terminal.parameters import offset_64, topic_name
from rocketpy.terminal.render import iso, message_row, nothing_found, print_message, show
from rocketpy.terminal.suggestions import HintingGroup

_COLUMNS = ("broker", "queue", "offset", "tag", "keys", "stored", "msg_id", "body")
_TRACE_COLUMNS = ("kind", "time", "group", "cost_ms", "success", "msg_id")
_LONG_MAX = (1 << 63) - 1


@click.group(
    "message",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy message find orders --key o1",
)
def command() -> None:
    """Find messages."""


@command.command("get", epilog="Example: rocketpy message get 7F00000100002A9F0000000000000000")
@click.argument("message_id", metavar="ID")
@click.option(
    "--topic",
    type=topic_name,
    shell_complete=topic_names,
    help="With it, ID may be a producer's id (msg_id).",
)
@namesrv_option
@output_option
def get(*, message_id: str, topic: str | None, namesrv: str, output: str) -> int:
    """Show one message with all its properties.

    ID is an offset id (offset_msg_id), which contains broker and log offset.
    """
    if not topic:
        try:
            decode_message_id(message_id)
        except ValueError as error:
            raise click.UsageError(f"{message_id!r} is not a message id: {error}") from None

    async def work(admin: rocketpy_admin.Admin) -> dict[str, object]:
        if topic:
            found = await admin.message_by_id(topic, message_id)
        else:
            found = await admin.message_by_offset_id(message_id)
        return message_row(found, await admin.broker_names())

    try:
        row = ask(namesrv, work)
    except (QueryNotFoundError, SystemFaultError) as error:  # the latter for an offset id
        raise nothing_found(error.remark, output) from error
    except ClientError as error:
        if type(error) is not ClientError:  # such as a broker that does not answer
            raise
        # Of a broker of another cluster, or the producer's id, which looks alike.
        reason = f"{error}; a producer's id (msg_id) needs --topic"
        raise nothing_found(reason, output) from error
    if output == "json":
        show([row], output)
    else:
        print_message(row)
    return 0


@command.command("find", epilog="Example: rocketpy message find orders --key o1 --from 2h")
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.option("--key", help="One of the message's keys.")
@click.option("--unique", metavar="MSG_ID", help="The producer's id.")
@click.option("--queue", metavar="BROKER:N", help="Queue of the message; needs --offset.")
@click.option("--offset", type=click.IntRange(0), callback=offset_64, help="Offset in --queue.")
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
    """Find messages by key, by id, or by queue and offset; exit code 1 without a result.

    By key, the newest --max messages are shown, the oldest of them first.
    """
    by_place = queue is not None and offset is not None
    if [key is not None, unique is not None, by_place].count(True) != 1:
        raise click.UsageError("give --key, or --unique, or --queue with --offset")
    if not by_place and (queue is not None or offset is not None):
        raise click.UsageError("--queue and --offset exclude --key and --unique")
    if key is None and (begin is not None or end is not None):
        raise click.UsageError("--from and --until need --key")
    begin_ms, end_ms = _time_span_ms(begin, end)

    async def search(admin: rocketpy_admin.Admin) -> Answers[MessageExt]:
        if key is not None:
            return await admin.messages_by_key(
                topic, key, max_count=max_count, begin_ms=begin_ms, end_ms=end_ms
            )
        if unique is not None:
            return Answers([await admin.message_by_unique_id(topic, unique)])
        assert queue is not None, "checked above"
        assert offset is not None, "checked above"
        return Answers([await admin.message_at(queue_of(topic, queue), offset)])

    async def work(admin: rocketpy_admin.Admin) -> tuple[Answers[MessageExt], dict[str, str]]:
        return await search(admin), await admin.broker_names()

    try:
        found, names = ask(namesrv, work)
    except QueryNotFoundError as error:
        raise nothing_found(error.remark, output) from error
    if not found:
        sentence = f"topic {topic} has no message with the key {key}"
        if found.failures:
            exit_code(found.failures)
            sentence += " on the brokers that answer"
        raise nothing_found(sentence, output)
    show([message_row(each, names) for each in found], output, columns=_COLUMNS)
    if found.has_more:
        complain("there may be more: raise --max, or narrow --from and --until, because a broker "
                 "returns 64 messages at most")  # fmt: skip
    return exit_code(found.failures)


def _time_span_ms(begin: Position | None, end: Position | None) -> tuple[int, int]:
    """Return two times in ms; raises click.UsageError when they are in the wrong order."""
    begin_ms, end_ms = _time_ms(begin, 0), _time_ms(end, _LONG_MAX)
    if begin_ms > end_ms:
        raise click.UsageError("--from is later than --until")
    return begin_ms, end_ms


def _time_ms(position: Position | None, default: int) -> int:
    if position is None:
        return default
    if isinstance(position, str):
        return 0 if position == "earliest" else _LONG_MAX
    return int(position.timestamp() * 1000)


@command.command("trace", epilog="Example: rocketpy message trace AC1100012A9F...")
@click.argument("message_id", metavar="ID")
@click.option(
    "--topic", type=topic_name, default=TRACE_TOPIC, show_default=True, help="The trace topic."
)
@namesrv_option
@output_option
def trace(*, message_id: str, topic: str, namesrv: str, output: str) -> int:
    """Show the trace of a message, of clients with trace=True.

    ID is the producer's id (msg_id), or one of the message's keys. The exit code is 1 without a
    record; clients record with a short delay.
    """

    async def work(admin: rocketpy_admin.Admin) -> Answers[TraceRecord]:
        try:
            return await admin.trace(message_id, topic=topic)
        except TopicNotExistError:
            raise nothing_found(
                f"topic {topic} does not exist: no client recorded a trace (trace=True)", output
            ) from None

    found = ask(namesrv, work)
    rows = [
        {"kind": record.kind, "time": iso(record.time_ms), **asdict(record)} for record in found
    ]
    if output == "json":
        show(rows, output)
    else:
        table = [{name: row.get(name, "") for name in _TRACE_COLUMNS} for row in rows]
        show(table, output, empty=f"no trace of {message_id} in {topic} yet")
    return max(exit_code(found.failures), 0 if rows else EXIT_FAILURE)
