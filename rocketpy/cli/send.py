"""``rocketpy send``: messages from the command line or standard input."""

import sys
from collections.abc import Sequence

import click

import rocketpy
from rocketpy.client.outgoing import SendOptions
from rocketpy.client.send_result import SendResult
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.terminal.common import (
    CONTEXT,
    key_values,
    namesrv_option,
    output_option,
    queue_of,
    run,
)
from rocketpy.terminal.render import show

_ROWS_SHOWN = 20


@click.command(
    "send",
    context_settings=CONTEXT,
    epilog='Example: rocketpy send orders "hello" --tag paid --key o1',
)
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--tag", default="", help="What consumers filter by.")
@click.option("--key", "keys", multiple=True, help="What it can be looked up by; may be repeated.")
@click.option("--header", "headers", multiple=True, metavar="K=V", help="A property of your own.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often.")
@click.option("--lines", is_flag=True, help="Each line of standard input is a message.")
@click.option("--queue", metavar="[BROKER:]N", help="Send to this queue.")
@click.option("--order-key", help="Messages with the same key keep their order.")
@click.option("--delay", type=click.FloatRange(0, min_open=True), help="Deliver after N seconds.")
@click.option("--delay-level", type=click.IntRange(1, 18), help="Deliver after the N-th delay.")
@click.option("--group", default="ROCKETPY_CLI", show_default=True, help="Producer group.")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True,
    help="Seconds for each message.",
)  # fmt: skip
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    body: str | None,
    tag: str,
    keys: tuple[str, ...],
    headers: tuple[str, ...],
    count: int,
    lines: bool,
    queue: str | None,
    order_key: str | None,
    delay: float | None,
    delay_level: int | None,
    group: str,
    timeout: float,
    namesrv: str,
    output: str,
) -> int:
    """Send messages.

    BODY is the text to send; - (or nothing, when standard input is no terminal) reads all of
    standard input.
    """
    options: SendOptions = {"tag": tag, "keys": keys, "headers": key_values(headers, "--header")}
    if order_key is not None:
        options["order_key"] = order_key
    if delay is not None:
        options["delay"] = delay
    if delay_level is not None:
        options["delay_level"] = delay_level
    if queue is not None:
        _choose_queue(options, topic, queue)
    bodies = _bodies(body, lines=lines) * count
    results = run(_send(namesrv, group, topic, bodies, options, timeout))
    rows = [_row(each) for each in results]
    if output == "table" and len(rows) > _ROWS_SHOWN:
        click.echo(f"sent {len(rows):,} messages to {topic}")
    else:
        show(rows, output)
    return 0


def _bodies(body: str | None, *, lines: bool) -> list[bytes]:
    if lines:
        if body is not None:
            raise click.UsageError("give BODY or --lines, not both")
        return [line.rstrip(b"\r\n") for line in sys.stdin.buffer if line.strip()]
    if body is None and sys.stdin.isatty():
        raise click.UsageError("BODY is missing (- reads standard input)")
    if body in {None, "-"}:
        return [sys.stdin.buffer.read()]
    assert body is not None, "checked above"
    return [body.encode()]


def _choose_queue(options: SendOptions, topic: str, text: str) -> None:
    if not text.isdecimal():
        options["queue"] = queue_of(topic, text)
        return
    number = int(text)

    def by_number(queues: Sequence[MessageQueue]) -> MessageQueue:
        for each in queues:
            if each.queue_id == number:
                return each
        raise IllegalMessageError(f"topic {topic} has no queue {number}")

    options["selector"] = by_number


async def _send(
    namesrv: str,
    group: str,
    topic: str,
    bodies: Sequence[bytes],
    options: SendOptions,
    timeout_s: float,
) -> list[SendResult]:
    async with rocketpy.connect(namesrv, group=group) as client:
        producer = client.producer(timeout_s=timeout_s)
        futures = []
        for body in bodies:
            await producer.ready()
            futures.append(producer.send_nowait(topic, body, **options))
            if futures[0].done() and futures[0].exception() is not None:
                break  # the others would fail for the same reason
        return [await future for future in futures]


def _row(result: SendResult) -> dict[str, object]:
    return {
        "status": result.status.name,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.offset,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
    }
