"""Output of results: a table for people or JSON for programs, with the same stable keys."""

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import click
import orjson

from rocketpy.proto.record.message import MessageExt

Row = Mapping[str, object]

_FREE_TEXT: Final = frozenset({"body", "reason"})
"""Columns that a table shortens; names, ids, paths and errors are shown whole."""
_FREE_TEXT_WIDTH: Final = 60


def show(rows: Iterable[Row], output: str, *, columns: Sequence[str] = (), empty: str = "") -> None:
    """Print rows: a table with a header line, or a JSON array of objects.

    Args:
        rows: rows with equal keys.
        output: `table` or `json`.
        columns: keys shown in the table; all by default.
        empty: text on standard error instead of an empty table.
    """
    every = list(rows)
    if output == "json":
        _print_json(_json(every, orjson.OPT_INDENT_2))
        return
    if not every:
        if empty:
            click.echo(empty, err=True)
        return
    for line in table(every, columns):
        click.echo(line)


def table(rows: Sequence[Row], columns: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table, the header first; no lines without rows.

    Args:
        rows: rows with equal keys.
        columns: keys shown in the table; all by default.
    """
    if not rows:
        return []
    names = list(columns) or list(rows[0])
    cells = [[_cell(name, row) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(names)]
    right = [type(rows[0][name]) in {int, float} for name in names]
    lines = []
    for line in [[name.upper() for name in names], *cells]:
        padded = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def show_line(row: Row) -> None:
    """Print an object on one line, for commands that print continuously."""
    _print_json(_json(dict(row)))


def _print_json(text: bytes) -> None:
    # JSON is UTF-8, also on a terminal with another encoding. A notebook's standard output, or
    # one that contextlib.redirect_stdout has replaced, takes text only.
    click.echo(text if hasattr(sys.stdout, "buffer") else text.decode())


def _json(value: object, option: int = 0) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:  # a lone surrogate, of text that is not valid UTF-8
        return json.dumps(value, indent=2 if option else None).encode()


def nothing_found(sentence: str, output: str) -> click.ClickException:
    """Return the error of a search without a result; prints an empty array as JSON."""
    show([], output)
    return click.ClickException(sentence)


def shown_body(row: Row) -> str:
    """Return the body of a row for people: one that is not text says that it is in Base64."""
    prefix = "base64:" if row.get("body_encoding") == "base64" else ""
    return f"{prefix}{row['body']}"


def print_message(row: Mapping[str, object]) -> None:
    """Print a row of `message_row` for people: a line for each field, then the body."""
    width = max(len(key) for key in row)
    for key, value in row.items():
        if key not in {"body", "properties"}:
            text = " ".join(value) if isinstance(value, list) else str(value)
            click.echo(f"{key:{width}}  {printable(text)}")
    properties = row["properties"]
    assert isinstance(properties, dict), "message_row makes it a dictionary"
    for name, value in sorted(properties.items()):
        click.echo(f"{'property':{width}}  {printable(f'{name}={value}')}")
    click.echo("\n" + "\n".join(printable(line) for line in shown_body(row).split("\n")))


def iso(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, empty for none."""
    if time_ms <= 0:
        return ""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return a text on one line, without control characters of the terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def message_row(message: MessageExt, brokers: Mapping[str, str] | str) -> dict[str, object]:
    """Return a message as a row; a body that is not UTF-8 is in Base64, see `body_encoding`.

    Args:
        message: message to show.
        brokers: the broker's name, or the names of all brokers by address.
    """
    host = message.store_host
    broker = brokers if isinstance(brokers, str) else brokers.get(host, host)
    try:
        body, encoding = message.body.decode(), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode(), "base64"
    return {
        "topic": message.topic,
        "broker": broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tag": message.tags or "",
        "keys": message.keys,
        "body": body,
        "body_encoding": encoding,
        "size_bytes": message.store_size_bytes,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "born": iso(message.born_timestamp_ms),
        "stored": iso(message.store_timestamp_ms),
        "born_host": message.born_host,
        "store_host": host,
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "properties": message.properties,
    }


def _cell(name: str, row: Row) -> str:
    value = shown_body(row) if name == "body" else row[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple):
        value = " ".join(str(each) for each in value)
    text = printable("" if value is None else str(value))
    if name not in _FREE_TEXT or len(text) <= _FREE_TEXT_WIDTH:
        return text
    return text[: _FREE_TEXT_WIDTH - 3] + "..."
