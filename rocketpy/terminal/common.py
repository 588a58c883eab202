"""Common options and argument types of commands, and their event loop."""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeVar

import click

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.terminal.cluster_selection import DEFAULT_NAMESRV, METAVAR, NamesrvOption

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

CONTEXT: Final = {"help_option_names": ["-h", "--help"]}

Position = Literal["earliest", "latest"] | datetime
"""Position in a queue: an end, or a time."""

_AGO: Final = re.compile(r"(\d+)(s|m|h|d)\Z")
_EARLIEST_MS: Final = 10**11
"""A smaller number of ms is before March 1973, so it is an offset, seconds or a misspelt date."""
_DATE_DIGITS: Final = 8
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def namesrv_option(function: F) -> F:
    """Add the `-n` option to a command."""
    return click.option(
        "-n",
        "--namesrv",
        cls=NamesrvOption,
        envvar="NAMESRV_ADDR",
        default=DEFAULT_NAMESRV,
        show_default=True,
        show_envvar=True,
        metavar=METAVAR,
        help="Name servers of the cluster; those of the current context by default.",
    )(function)


def output_option(function: F) -> F:
    """Add the `-o` option to a command."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Table for people, JSON for programs.",
    )(function)


def yes_option(function: F) -> F:
    """Add the `--yes` option to a command that destroys data."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation; raises click.Abort when the user declines."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine of a command on a new event loop."""
    from rocketpy.remoting.network.event_loop import new_event_loop  # noqa: PLC0415 - --help is quick

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


def own_group() -> str:
    """Return the default group, one for each user, so that users do not share messages."""
    import getpass  # noqa: PLC0415 - --help is quick

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        user = str(os.getuid())
    return "CLI_" + re.sub(r"[^A-Za-z0-9_-]", "_", user)[:100]


def position(text: str) -> Position:
    """Read `earliest`, `latest`, ISO 8601, ms since 1970, or `30m` for half an hour ago.

    Eight digits are a date, `20261127`.

    Raises:
        click.BadParameter: another text.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    ago = _AGO.match(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        if text.isdecimal() and len(text) != _DATE_DIGITS:
            if int(text) < _EARLIEST_MS:
                raise click.BadParameter(
                    f"{text} ms since 1970 is too early for a time; use earliest for the beginning"
                )
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, a time (2026-01-31T12:00, ms since 1970) "
            "or a duration such as 30m"
        ) from None


def permission(text: str) -> int:
    """Read `r`, `w` or `rw`; raises click.BadParameter for another text."""
    from rocketpy.admin.topics import parse_permission  # noqa: PLC0415 - --help is quick

    try:
        return parse_permission(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def key_values(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Read `key=value` texts; raises click.UsageError for others, and for a repeated key."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{what}: {pair!r} is not key=value")
        if key in found:
            raise click.UsageError(f"{what}: {key} is given twice")
        found[key] = value
    return found


def refuse_other_settings(
    kind: str,
    name: str,
    wanted: Mapping[str, object],
    found: Mapping[str, Mapping[str, object]],
) -> None:
    """Raise click.ClickException if a broker has a topic or group with other settings.

    Args:
        kind: `topic` or `group`.
        name: its name.
        wanted: settings asked for.
        found: settings at each broker, with the same keys.
    """
    for broker, settings in found.items():
        others = [
            f"{key} {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in settings.items()
            if value != wanted[key]
        ]
        if others:
            raise click.ClickException(
                f"{kind} {name} exists on {broker} with {', '.join(others)}: nothing was changed; "
                f"--update replaces its settings, {kind} update changes some"
            )


def queue_of(topic: str, text: str) -> MessageQueue:
    """Read `broker-a:3`; raises click.UsageError for another text."""
    broker, _, number = text.rpartition(":")
    if not broker or not number.isdecimal():
        raise click.UsageError(f"--queue: {text!r} is not BROKER:NUMBER, such as broker-a:0")
    return MessageQueue(topic, broker, int(number))
