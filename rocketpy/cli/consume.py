"""``rocketpy consume``: prints messages as they come."""

import asyncio

import click

import rocketpy
from rocketpy.terminal.common import CONTEXT, Position, namesrv_option, output_option, position, run
from rocketpy.terminal.render import as_json, message_row, printable


@click.command(
    "consume",
    context_settings=CONTEXT,
    epilog="Example: rocketpy consume orders --group readers --from earliest --max 1",
)
@click.argument("topic")
@click.option("--group", default="ROCKETPY_CLI", show_default=True, help="Consumer group.")
@click.option("--filter", "tags", default="*", show_default=True, help='Tags, such as "a || b".')
@click.option("--sql", help="An SQL92 condition on properties, instead of tags.")
@click.option(
    "--from",
    "start",
    type=position,
    default="latest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="Where a group that is new begins: an end, ISO 8601, ms since 1970, or 30m (ago).",
)
@click.option("--max", "max_count", type=click.IntRange(1), help="End after so many messages.")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), help="End after so many quiet seconds."
)
@click.option("--body-only", is_flag=True, help="Print nothing but bodies, a line each.")
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    group: str,
    tags: str,
    sql: str | None,
    start: Position,
    max_count: int | None,
    timeout: float | None,
    body_only: bool,
    namesrv: str,
    output: str,
) -> int:
    """Receive messages of a topic as a member of a group and print them.

    With -o json each message is one JSON object on a line of its own. A message counts as
    consumed once it is printed. Ends with exit code 1 when --timeout passes before --max
    messages came.
    """
    form = "body" if body_only else output
    reader = _Reader(namesrv, topic, group, form)
    try:
        count = run(reader.read(tags, sql or "", start, max_count, timeout))
    except KeyboardInterrupt:
        return 0
    if max_count is not None and count < max_count:
        raise click.ClickException(
            f"{count} of {max_count} messages came before it was quiet for {timeout:g} s"
        )
    return 0


class _Reader:
    def __init__(self, namesrv: str, topic: str, group: str, form: str) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._group = group
        self._form = form

    async def read(
        self,
        tags: str,
        sql: str,
        start: Position,
        max_count: int | None,
        timeout_s: float | None,
    ) -> int:
        """Print until enough or quiet; returns how many."""
        count = 0
        loop = asyncio.get_running_loop()
        async with rocketpy.connect(self._namesrv) as client:
            consumer = client.consumer(
                self._topic,
                group=self._group,
                filter=tags,
                sql=sql,
                start=start,
            )
            async with consumer:
                try:
                    async with asyncio.timeout(timeout_s) as limit:
                        async for message in consumer:
                            self._print(message)
                            await message.ack()
                            count += 1
                            if count == max_count:
                                break
                            if timeout_s is not None:
                                limit.reschedule(loop.time() + timeout_s)
                except TimeoutError:
                    return count
        return count

    def _print(self, message: rocketpy.ReceivedMessage) -> None:
        if self._form == "body":
            click.echo(message.body)
            return
        row = message_row(message.ext, message.queue.broker_name)
        if self._form == "json":
            click.echo(as_json(row))
            return
        place = f"{row['broker']}:{row['queue']}+{row['offset']}"
        keys = ",".join(message.keys)
        labels = [f"{message.tag}" if message.tag else "", f"[{keys}]" if keys else ""]
        parts = [place, *(printable(each) for each in labels if each), printable(str(row["body"]))]
        click.echo("  ".join(parts))
