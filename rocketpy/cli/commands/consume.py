"""`rocketpy consume`: prints messages as they arrive."""

import asyncio
import contextlib
import string
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import click

import rocketpy
from rocketpy import admin as rocketpy_admin
from rocketpy.errors import ClientError, RocketPyError, TopicNotExistError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.stop_signals import stop_signals
from rocketpy.terminal.cluster_calls import (
    exit_code,
    unknown_name,
    unreadable_queues,
    warn_unreadable,
)
from rocketpy.terminal.common import (
    CONTEXT,
    Position,
    namesrv_option,
    output_option,
    own_group,
    position,
    run,
)
from rocketpy.terminal.completion import group_names, topic_names
from rocketpy.terminal.error_exit import forget_output
from rocketpy.terminal.parameters import FiniteRange, TextCommand, group_name, topic_name
from rocketpy.terminal.render import message_row, printable, show_line, shown_body
from rocketpy.terminal.stdio import is_read, until_read, until_reader_is_gone

_EMPTY_POLLS: Final = 3
"""Polls of 5 s without progress before the end of the topics, after which a read gives up."""
_STALLED: Final = ClientError("stopped responding before the end of the topic was read")
_Messages = AsyncGenerator[rocketpy.ReceivedMessage, None]
_FIELDS: Final = (
    "topic", "broker", "queue", "offset", "tag", "keys", "stored", "msg_id", "body",
    "body_encoding",
)  # fmt: skip


def _template(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """Check a --format and decode its escapes."""
    if text is None:
        return None
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    wrong = [name for name in names if name not in _FIELDS]
    if wrong:
        raise click.BadParameter(f"unknown field {{{wrong[0]}}}; known are {', '.join(_FIELDS)}")
    return text.replace("\\t", "\t").replace("\\n", "\n")


@click.command(
    "consume",
    cls=TextCommand,
    context_settings=CONTEXT,
    epilog="Example: rocketpy consume orders --group readers --from earliest --max 1",
)
@click.argument(
    "topics",
    nargs=-1,
    required=True,
    type=topic_name,
    shell_complete=topic_names,
    metavar="TOPIC...",
)
@click.option(
    "--group",
    type=group_name,
    metavar="TEXT",
    shell_complete=group_names,
    help="Consumer group; one for each user by default.",
)
@click.option("--no-group", is_flag=True, help="Read the topics without a group.")
@click.option("--filter", "tags", default="*", show_default=True, help='Tags, such as "a || b".')
@click.option("--sql", help="SQL92 condition on properties, instead of tags.")
@click.option(
    "--from",
    "start",
    type=position,
    show_default="latest; earliest with --end",
    metavar="earliest|latest|TIME",
    help="Start of a new group: earliest, latest, ISO 8601, ms since 1970, or 30m (ago).",
)
@click.option("-e", "--end", is_flag=True, help="With --no-group: stop at the end of the topics.")
@click.option("--max", "max_count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    help="Stop after this many seconds without a message.",
)
@click.option("--body-only", is_flag=True, help="Print only bodies, one per line.")
@click.option(
    "--format", "template", metavar="TEXT", callback=_template,
    help="Format of a line, such as '{queue} {offset} {body}'.",
)  # fmt: skip
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - one argument an option
    *,
    topics: tuple[str, ...],
    group: str | None,
    no_group: bool,
    tags: str,
    sql: str | None,
    start: Position | None,
    end: bool,
    max_count: int | None,
    timeout: float | None,
    body_only: bool,
    template: str | None,
    namesrv: str,
    output: str,
) -> int:
    """Receive messages of topics as a member of a group and print them.

    With -o json each message is one JSON object on one line. A message is consumed once it is
    printed; in a pipe, once it is read from there. SIGTERM, SIGHUP (unless nohup is used), Ctrl-C
    and the end of a pipe's reader store the offsets and stop the command. The exit code is 1 if
    --timeout passes before --max messages arrive, or if a topic does not exist by then.
    """
    if no_group and (group or tags != "*" or sql):
        raise click.UsageError("--no-group cannot be combined with --group, --filter or --sql")
    if end and not no_group:
        raise click.UsageError("--end needs --no-group, because members of a group share the topic")
    if [body_only, template is not None, output == "json"].count(True) > 1:
        raise click.UsageError("give only one of --body-only, --format and -o json")
    if sql and tags != "*":
        raise click.UsageError("give --filter or --sql")
    if start is None:  # up to the end, latest would read nothing
        start = "earliest" if end else "latest"
    form = "body" if body_only else output
    reader = _Reader(namesrv, list(dict.fromkeys(topics)), form, template)
    wanted = reader.follow(start, at_end=end) if no_group else reader.consume(
        {"group": group or own_group(), "filter": tags, "sql": sql or "", "start": start}
    )  # fmt: skip
    try:
        count = run(reader.read(wanted, max_count, timeout))
    except BrokenPipeError:
        # The reader of the pipe ended, as `head` does after some lines: stop as after Ctrl-C.
        forget_output()
        return 0
    if reader.was_quiet and not count:
        run(reader.check_topics())
    if max_count is not None and count < max_count and reader.was_quiet:
        raise click.ClickException(
            f"{count} of {max_count} messages arrived; then none for {timeout:g} s"
        )
    return reader.exit_code


class _Reader:
    """Prints the messages of topics.

    Attributes:
        was_quiet: whether it ended for lack of messages.
        exit_code: 1 when queues of some brokers were not read, which standard error names.
    """

    def __init__(
        self, namesrv: str, topics: Sequence[str], form: str, template: str | None
    ) -> None:
        self.was_quiet = False
        self.exit_code: int = 0
        self._namesrv = namesrv
        self._topics = topics
        self._form = form
        self._template = template

    async def check_topics(self) -> None:
        """Check at the end that the topics exist; a group may wait for a future topic.

        Raises:
            click.ClickException: one does not exist; suggests a similar name.
        """
        async with rocketpy_admin.connect(self._namesrv) as admin:
            try:
                for topic in self._topics:
                    await admin.topic_route(topic)
            except TopicNotExistError as error:
                raise await unknown_name(admin, error) from error

    async def consume(self, options: Mapping[str, object]) -> _Messages:
        """Yield messages as a member of a group."""
        async with rocketpy.connect(self._namesrv) as client:
            consumer = client.consumer(self._topics, **options)  # type: ignore[arg-type]
            async with consumer:
                async for message in consumer:
                    yield message

    async def follow(self, start: Position, *, at_end: bool) -> _Messages:
        """Yield messages of all queues, without a group.

        Args:
            start: where to begin.
            at_end: stop at the present end of each queue; a broker that stops responding before
                that is named on standard error.
        """
        ends: dict[MessageQueue, int] = {}
        failures: dict[str, RocketPyError] = {}
        async with rocketpy_admin.connect(self._namesrv) as admin:
            for topic in self._topics:
                try:
                    status = await admin.topic_status(topic)
                except TopicNotExistError as error:
                    raise await unknown_name(admin, error) from error
                failures |= status.failures
                hidden = await unreadable_queues(admin, status)
                warn_unreadable(hidden)
                ends |= {
                    each.queue: each.max_offset
                    for each in status.queues
                    if each.queue not in hidden
                }
        self.exit_code = exit_code(failures)  # now: the read may have no end
        async with rocketpy.connect(self._namesrv) as client:
            consumer = client.pull_consumer(group=own_group(), auto_commit=False, start="earliest")
            async with consumer:
                await consumer.assign(ends)
                if start == "earliest":
                    await consumer.seek_to_begin()
                elif start == "latest":
                    await consumer.seek_to_end()
                else:
                    await consumer.seek_to_time(None, start)
                before: dict[MessageQueue, int] = {}
                empty = 0
                while True:
                    positions = {queue: consumer.position(queue) or 0 for queue in ends}
                    unread = {queue for queue, last in ends.items() if positions[queue] < last}
                    if at_end and not unread:
                        return
                    empty = 0 if positions != before else empty + 1
                    if at_end and empty > _EMPTY_POLLS:
                        self.exit_code = exit_code(
                            {queue.broker_name: _STALLED for queue in unread}
                        )
                        return
                    before = positions
                    for message in await consumer.poll():
                        if not at_end or message.offset < ends[message.queue]:
                            yield message

    async def read(
        self,
        messages: _Messages,
        max_count: int | None,
        timeout_s: float | None,
    ) -> int:
        """Print until the limit, the time-out or a signal; returns the number of messages.

        Raises:
            BrokenPipeError: the reader of standard output is gone.
        """
        count = 0
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        assert me is not None
        stopping = asyncio.Event()

        def stop() -> None:
            # Once: a second cancellation would interrupt the close, which stores the offsets.
            if not stopping.is_set():
                stopping.set()
                me.cancel()

        for number in stop_signals():
            with contextlib.suppress(RuntimeError, ValueError):
                loop.add_signal_handler(number, stop)
        # A write to a pipe fails without its reader, but a quiet topic leads to no write.
        gone = loop.create_task(until_reader_is_gone())
        gone.add_done_callback(lambda task: None if task.cancelled() else stop())
        printed: rocketpy.ReceivedMessage | None = None
        limit = asyncio.timeout(timeout_s)
        try:
            async with contextlib.aclosing(messages), limit:
                try:
                    async for message in messages:
                        self._print(message)
                        printed = message
                        await until_read()
                        await message.ack()
                        printed = None
                        count += 1
                        if count == max_count:
                            break
                        limit.reschedule(None if timeout_s is None else loop.time() + timeout_s)
                except asyncio.CancelledError:
                    if not stopping.is_set():
                        raise
                    me.uncancel()
                    if printed is not None and is_read():
                        await printed.ack()
                finally:
                    stopping.set()
        except TimeoutError:
            if not limit.expired():  # of a request: a broker does not answer
                raise
            self.was_quiet = True
        finally:
            is_gone = gone.done()
            gone.cancel()
        if is_gone:
            raise BrokenPipeError
        return count

    def _print(self, message: rocketpy.ReceivedMessage) -> None:
        if self._form == "body" and self._template is None:
            click.echo(message.body)
            return
        row = message_row(message.ext, message.queue.broker_name)
        if self._template is not None:
            values = {**row, "keys": ",".join(message.keys)}
            click.echo(self._template.format_map({name: values[name] for name in _FIELDS}))
            return
        if self._form == "json":
            show_line(row)
            return
        location = f"{row['broker']}:{row['queue']}+{row['offset']}"
        if len(self._topics) > 1:
            location = f"{row['topic']}@{location}"
        keys = ",".join(message.keys)
        labels = [f"{message.tag}" if message.tag else "", f"[{keys}]" if keys else ""]
        shown = [*(each for each in labels if each), shown_body(row)]
        parts = [location, *(printable(each) for each in shown)]
        click.echo("  ".join(parts))
