"""`rocketpy send`: sends messages from the command line or standard input."""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import BinaryIO, Final

import click

import rocketpy
from rocketpy import admin as rocketpy_admin
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import ClientError, IllegalMessageError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.config.suggestions import hint
from rocketpy.runtime.stop_signals import stop_signals
from rocketpy.terminal.common import (
    CONTEXT,
    key_values,
    namesrv_option,
    output_option,
    own_group,
    queue_of,
    run,
)
from rocketpy.terminal.completion import topic_names
from rocketpy.terminal.error_exit import complain
from rocketpy.terminal.parameters import FiniteRange, TextCommand, group_name, raw_bytes, topic_name
from rocketpy.terminal.render import show
from rocketpy.terminal.stdio import Lines

_ROWS_SHOWN: Final = 20
_ROWS_KEPT: Final = 100_000
"""Limit of the results that -o json shows: the input may be endless."""


@click.command(
    "send",
    cls=TextCommand,
    context_settings=CONTEXT,
    epilog='Example: rocketpy send orders "hello" --tag paid --key o1',
)
@click.argument("topic", type=topic_name, shell_complete=topic_names)
@click.argument("body", required=False, type=raw_bytes)
@click.option("--tag", default="", help="Tag, which consumers filter by.")
@click.option("--key", "keys", multiple=True, help="Key, for queries; may be repeated.")
@click.option(
    "--header", "headers", multiple=True, metavar="K=V", help="User property; may be repeated."
)
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often.")
@click.option(
    "--lines", is_flag=True, help="Send each line of standard input as a message, as it arrives."
)
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    help="With --lines: separator after the key; \\t is a tab.",
)
@click.option(
    "-T",
    "--tag-separator",
    metavar="TEXT",
    help="With --lines: separator after the tag; \\t is a tab.",
)
@click.option("--queue", metavar="[BROKER:]N", help="Send to this queue.")
@click.option("--order-key", help="Messages with the same key keep their order.")
@click.option("--delay", type=FiniteRange(0, min_open=True), help="Deliver after N seconds.")
@click.option("--delay-level", type=click.IntRange(1, 18), help="Deliver after the N-th delay.")
@click.option(
    "--group", type=group_name, metavar="TEXT", help="Producer group; one for each user by default."
)
@click.option(
    "--timeout", type=FiniteRange(0, min_open=True), default=5.0, show_default=True,
    help="Time-out of each message, seconds.",
)  # fmt: skip
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    body: bytes | None,
    tag: str,
    keys: tuple[str, ...],
    headers: tuple[str, ...],
    count: int,
    lines: bool,
    key_separator: str | None,
    tag_separator: str | None,
    queue: str | None,
    order_key: str | None,
    delay: float | None,
    delay_level: int | None,
    group: str | None,
    timeout: float,
    namesrv: str,
    output: str,
) -> int:
    """Send messages.

    BODY is the text to send; - reads all of standard input, which is the default if that is not a
    terminal. With --lines, empty lines are skipped and counted. With -T and -K a line is TAG, KEY
    and body, in this order; lines without all of them, or with a tag or key that is not UTF-8, or
    with a blank in the key, are skipped and counted, with exit code 1 at the end, and a line that
    is too long ends the command. A topic that does not exist is created, if the brokers allow it,
    and named on standard error.
    """
    for is_wrong, words in (
        (not lines and (key_separator or tag_separator), "-K and -T need --lines"),
        (key_separator and keys, "-K excludes --key: each line has its own"),
        (tag_separator and tag, "-T excludes --tag: each line has its own"),
        (None not in {order_key, queue}, "--order-key chooses the queue: give it or --queue"),
        (None not in {delay, delay_level}, "give --delay or --delay-level"),
    ):
        if is_wrong:
            raise click.UsageError(words)
    options: SendOptions = {"tag": tag, "keys": keys, "headers": key_values(headers, "--header")}
    if order_key is not None:
        options["order_key"] = order_key
    if delay is not None:
        options["delay"] = delay
    if delay_level is not None:
        options["delay_level"] = delay_level
    if queue is not None:
        _choose_queue(options, topic, queue)
    group = group or own_group()
    if lines:
        if body is not None or count != 1:
            raise click.UsageError("--lines cannot be combined with BODY or --count")
        reader = _Lines(tag_separator, key_separator, options)
        try:
            return run(reader.send(namesrv, group, topic, timeout, output))
        except IllegalMessageError as error:  # of a line, not of the command
            raise click.ClickException(str(error)) from error
    results = run(_send(namesrv, group, topic, [_body(body)] * count, options, timeout))
    rows = [_row(each) for each in results]
    if output == "table" and len(rows) > _ROWS_SHOWN:
        click.echo(f"sent {len(rows):,} messages to {topic}")
    else:
        show(rows, output)
    return 0


def _body(body: bytes | None) -> bytes:
    if body is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("BODY is missing (- reads standard input)")
    if body is None or body == b"-":
        return _input().read()
    return body


def _input() -> BinaryIO:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    return sys.stdin.buffer


class _NewTopic:
    """Notice of a topic that a send creates, because its name may be misspelt.

    Args:
        namesrv: name servers of the cluster.
        topic: its name.
        timeout_s: limit of a request.
    """

    def __init__(self, namesrv: str, topic: str, timeout_s: float) -> None:
        self._namesrv = namesrv
        self._timeout_s = timeout_s
        self._topic = topic
        self._known: list[str] | None = None

    async def check(self) -> None:
        """Check before the first send whether the topic exists."""
        with contextlib.suppress(RocketPyError):  # the send reports it
            async with rocketpy_admin.connect(self._namesrv, timeout=self._timeout_s) as admin:
                if not await admin.topic_exists(self._topic):
                    self._known = await admin.topics()

    def report(self) -> None:
        """Name the topic on standard error after a send, if it did not exist before."""
        if self._known is not None:
            complain(f"created topic {self._topic}{hint(self._topic, self._known)}")


# Of these, a blank separates keys, and the others separate properties.
_NOT_IN_KEYS: Final = frozenset(" \x01\x02")


class _Lines:
    """Sends the lines of standard input as they arrive.

    Args:
        tag_separator: ends a line's tag; None for lines without one.
        key_separator: ends a line's key; None for lines without one.
        options: of all messages.
    """

    def __init__(
        self, tag_separator: str | None, key_separator: str | None, options: SendOptions
    ) -> None:
        self._separators = [
            (name, separator.replace("\\t", "\t").encode())
            for name, separator in (("tag", tag_separator), ("keys", key_separator))
            if separator
        ]
        self._options = options
        self._rows: list[dict[str, object]] = []
        self._sent = self._empty = self._malformed = self._undecoded = 0
        self._failure: BaseException | None = None
        self._input: Lines | None = None
        self._is_stopped = False

    async def send(
        self, namesrv: str, group: str, topic: str, timeout_s: float, output: str
    ) -> int:
        """Send until the input ends, a send fails or a signal; prints counts of lines."""
        new_topic = _NewTopic(namesrv, topic, timeout_s)
        await new_topic.check()
        async with rocketpy.connect(namesrv, group=group) as client:
            producer = client.producer(timeout=timeout_s)
            lines = self._input = Lines(_input(), producer.flush)
            self._stop_by_signals()
            while line := await lines.next():
                if self._is_stopped and not line.endswith(b"\n"):
                    break  # the rest of this line was not read
                parsed = self._parsed(line.rstrip(b"\r\n"))
                if parsed is None:
                    continue
                body, options = parsed
                await producer.ready()
                sent = producer.send_nowait(topic, body, **options)
                sent.add_done_callback(self._ended)
                await _in_order(sent, options)
            await producer.flush()
            lines.end()
        if output == "json" or 0 < self._sent <= _ROWS_SHOWN:
            show(self._rows, output)
        elif not self._sent:
            if self._failure is None:
                click.echo("no messages")
        else:
            click.echo(f"sent {self._sent:,} messages to {topic}")
        self._report_skipped()
        if self._sent:
            new_topic.report()
        if self._failure is not None:
            raise self._failure
        if self._is_stopped:
            complain("stopped before the end of the input")
            return 1
        return 1 if self._malformed or self._undecoded else 0

    def _stop_by_signals(self) -> None:
        """Let a signal end the input, so that the lines read before are sent and counted."""
        if sys.stdin.isatty():  # reading a terminal blocks the loop, and its signals with it
            return
        loop = asyncio.get_running_loop()
        signals = stop_signals()

        def stop() -> None:
            for number in signals:  # the next one ends the process
                loop.remove_signal_handler(number)
            self._is_stopped = True
            if self._input is not None:
                self._input.end()

        for number in signals:
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, stop)

    def _parsed(self, line: bytes) -> tuple[bytes, SendOptions] | None:
        if not line.strip():
            self._empty += 1
            return None
        options = self._options
        for name, separator in self._separators:
            part, found, line = line.partition(separator)
            if not found:
                self._malformed += 1
                return None
            try:
                text = part.decode()
            except UnicodeDecodeError:  # another tag or key would be stored
                self._undecoded += 1
                return None
            if name == "keys" and _NOT_IN_KEYS.intersection(text):
                self._undecoded += 1
                return None
            options = {**options, name: [text] if name == "keys" else text}  # type: ignore[misc]
        if not line:
            self._malformed += 1
            return None
        return line, options

    def _ended(self, sent: asyncio.Future[SendResult]) -> None:
        if (error := sent.exception()) is not None:
            self._failure = self._failure or error
            if self._input is not None:
                self._input.end()
            return
        self._sent += 1
        if len(self._rows) < _ROWS_KEPT:
            self._rows.append(_row(sent.result()))

    def _report_skipped(self) -> None:
        for count, why in (
            (self._empty, "empty"),
            (self._malformed, "without a separator, or without a body after it"),
            (self._undecoded, "with a tag or key that is not UTF-8, or a key with blanks"),
        ):
            if count:
                complain(f"skipped {count:,} lines: {why}")


def _choose_queue(options: SendOptions, topic: str, text: str) -> None:
    number = int(text) if text.isdecimal() else None
    wanted = queue_of(topic, text) if number is None else None

    def chosen(queues: Sequence[MessageQueue]) -> MessageQueue:
        for each in queues:
            if each.queue_id == number or each == wanted:
                return each
        counts = Counter(each.broker_name for each in queues)
        existing = ", ".join(f"{name}:0 to {name}:{counts[name] - 1}" for name in sorted(counts))
        raise ClientError(f"topic {topic} has no queue {text}; its queues are {existing}")

    options["selector"] = chosen


async def _send(
    namesrv: str,
    group: str,
    topic: str,
    bodies: Sequence[bytes],
    options: SendOptions,
    timeout_s: float,
) -> list[SendResult]:
    new_topic = _NewTopic(namesrv, topic, timeout_s)
    await new_topic.check()
    async with rocketpy.connect(namesrv, group=group) as client:
        producer = client.producer(timeout=timeout_s)
        futures = []
        for body in bodies:
            await producer.ready()
            futures.append(producer.send_nowait(topic, body, **options))
            await _in_order(futures[-1], options)
            if futures[0].done() and futures[0].exception() is not None:
                break  # the others would fail for the same reason
        await asyncio.wait(futures)
    # Of every future, so that none is reported as never retrieved.
    failures = [error for each in futures if (error := each.exception()) is not None]
    results = [each.result() for each in futures if each.exception() is None]
    if results:
        new_topic.report()
    if failures:
        if results:
            complain(f"sent {len(results):,} of {len(bodies):,} messages to {topic}")
        raise failures[0]
    return results


async def _in_order(sent: asyncio.Future[SendResult], options: SendOptions) -> None:
    """Wait for a send, so that the next one cannot overtake it.

    Brokers may serve sends on several threads (`sendMessageThreadPoolNums`), so concurrent sends
    are stored in any order.
    """
    if "order_key" in options:
        await asyncio.wait([sent])


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
