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
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.config.suggestions import hint
from rocketpy.terminal.common import run
from rocketpy.terminal.error_exit import EXIT_FAILURE, complain

T = TypeVar("T")

Failures = Mapping[str, RocketPyError]

_UNKNOWN: Final = re.compile(r"(topic|group) (\S+) does not exist\Z", re.IGNORECASE)


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
            except ServersFailedError as error:
                same = _same_unknown_name(error)
                if same is None:
                    raise
                raise await unknown_name(admin, same) from error

    return run(connected())


def _same_unknown_name(error: ServersFailedError) -> BrokerError | None:
    """Return the first failure if every server answered that the topic or group is unknown."""
    kinds = (TopicNotExistError, SubscriptionGroupNotExistError)
    failures = [each for each in error.failures.values() if isinstance(each, kinds)]
    is_everywhere = not error.done and len(failures) == len(error.failures)
    return failures[0] if is_everywhere and failures else None


async def unknown_name(admin: rocketpy_admin.Admin, error: BrokerError) -> Exception:
    """Return the error of a command for a name that does not exist, with a similar name."""
    found = _UNKNOWN.match(error.remark)
    if found is None:
        return error
    kind, name = found.groups()
    kind = kind.lower()
    try:
        known = await (
            admin.topics(include_system=name.startswith("%"))
            if kind == "topic"
            else admin.group_names()
        )
    except RocketPyError:  # the hint is not worth another failure
        known = []
    return click.ClickException(f"{kind} {name} does not exist{hint(name, known)}")


async def unreadable_queues(
    admin: rocketpy_admin.Admin, status: rocketpy_admin.TopicStatus
) -> dict[MessageQueue, int]:
    """Return the queues that a topic with fewer read than write queues keeps from consumers.

    Args:
        admin: to ask for the topic's route.
        status: every queue of the topic.

    Returns:
        The number of messages by queue.
    """
    route = await admin.topic_route(status.topic)
    reads = {each.broker_name: each.read_queue_nums for each in route.queue_datas}
    return {
        each.queue: each.messages
        for each in status.queues
        if each.queue.queue_id >= reads.get(each.queue.broker_name, 0)
    }


def warn_unreadable(hidden: Mapping[MessageQueue, int]) -> None:
    """Print a warning for each topic whose unreadable queues have messages."""
    for topic in sorted({queue.topic for queue in hidden}):
        counts = [messages for queue, messages in hidden.items() if queue.topic == topic]
        if any(counts):
            click.echo(
                f"warning: {sum(counts):,} messages of topic {topic} are in queues that no "
                f"consumer reads: raise its --read-queues (rocketpy topic update {topic})",
                err=True,
            )


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
