"""Calls of commands to a cluster: unknown names, and servers that do not answer."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar, cast

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.errors import (
    BrokerError,
    RocketPyError,
    ServersFailedError,
    SubscriptionGroupNotExistError,
    TopicNotExistError,
)
from rocketpy.terminal.common import run
from rocketpy.terminal.error_exit import EXIT_FAILURE, complain
from rocketpy.terminal.suggestions import hint

T = TypeVar("T")

Failures = Mapping[str, RocketPyError]

_UNKNOWN: Final = re.compile(r"(topic|group) (\S+) does not exist\Z")


def ask(namesrv: str, work: Callable[[rocketpy_admin.Admin], Awaitable[T]]) -> T:
    """Run admin operations of a command.

    Args:
        namesrv: name servers of the cluster.
        work: the operations.

    Raises:
        click.ClickException: a topic or group does not exist; suggests a similar name.
    """

    async def connected() -> T:
        async with rocketpy_admin.connect(namesrv) as admin:
            try:
                return await work(admin)
            except (TopicNotExistError, SubscriptionGroupNotExistError) as error:
                raise await unknown_name(admin, error) from error

    return run(connected())


async def unknown_name(admin: rocketpy_admin.Admin, error: BrokerError) -> Exception:
    """Return the error of a command for a name that does not exist, with a similar name."""
    found = _UNKNOWN.match(error.remark)
    if found is None:
        return error
    kind, name = found.groups()
    try:
        known = await (
            admin.topics(include_system=name.startswith("%"))
            if kind == "topic"
            else admin.group_names()
        )
    except RocketPyError:  # the hint is not worth another failure
        known = []
    return click.ClickException(f"{error.remark}{hint(name, known)}")


async def done_at(
    change: Awaitable[Mapping[str, T]], failures: dict[str, RocketPyError]
) -> dict[str, T]:
    """Await a change of several servers; returns those that have it, and adds to `failures`.

    Raises:
        RocketPyError: no server has it.
    """
    try:
        return dict(await change)
    except ServersFailedError as error:
        if not error.done:
            raise
        failures |= error.failures
        return cast("dict[str, T]", error.done)


def exit_code(*failures: Failures) -> int:
    """Print a line for each server that did not answer; returns 1, or 0 if all answered."""
    merged: dict[str, RocketPyError] = {}
    for each in failures:
        merged |= each
    for name, error in sorted(merged.items()):
        complain(f"{name}: {error}")
    return EXIT_FAILURE if merged else 0
