"""`rocketpy top`: continuous overview of a cluster."""

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.cli.commands.cluster import silent_brokers
from rocketpy.errors import RocketPyError
from rocketpy.runtime.stop_signals import stop_signals
from rocketpy.terminal.cluster_calls import exit_code
from rocketpy.terminal.common import CONTEXT, namesrv_option, output_option, run
from rocketpy.terminal.parameters import FiniteRange
from rocketpy.terminal.render import iso, printable, show_line, table
from rocketpy.terminal.stdio import until_reader_is_gone

T = TypeVar("T")

_AT_ONCE: Final = 32
"""Limit of concurrent requests."""
_ROWS: Final = 20
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Snapshot of a cluster.

    Attributes:
        at_s: time of the snapshot, on a monotonic clock.
        brokers: every broker.
        topics: offsets of queues, by topic.
        groups: offsets and number of members, by group.
    """

    at_s: float
    brokers: Sequence[rocketpy_admin.BrokerStatus]
    topics: Sequence[rocketpy_admin.TopicStatus]
    groups: Sequence[tuple[rocketpy_admin.GroupLag, int]]

    def stored(self) -> dict[str, int]:
        """Total of stored messages, by topic."""
        return {each.topic: sum(q.max_offset for q in each.queues) for each in self.topics}

    def consumed(self) -> dict[str, int]:
        """Total of consumed messages, by group."""
        return {
            each.group: sum(max(0, q.consumer_offset) for q in each.queues)
            for each, _ in self.groups
        }


View = dict[str, list[dict[str, object]]]
"""Rows of a page: brokers, topics and groups."""


def view(now: Sample, before: Sample | None) -> View:
    """Return the rows to show, the busiest topics and the groups furthest behind first.

    Args:
        now: latest snapshot.
        before: previous snapshot; rates are between the two. Without it, rates are those that
            brokers report, of ten seconds (brokers) or a minute (topics and groups).
    """
    passed_s = max(1e-9, now.at_s - before.at_s) if before is not None else 0.0
    stored, stored_before = now.stored(), before.stored() if before is not None else {}
    consumed, consumed_before = now.consumed(), before.consumed() if before is not None else {}

    def rate(total: int, total_before: int | None, own: float) -> float:
        if total_before is None:
            return round(own, 3)
        return round(max(0, total - total_before) / passed_s, 3)

    topics = [
        {
            "topic": each.topic,
            "in_per_s": rate(stored[each.topic], stored_before.get(each.topic), each.in_tps),
            "messages": each.messages,
            "queues": len(each.queues),
        }
        for each in now.topics
    ]
    groups = [
        {
            "group": each.group,
            "out_per_s": rate(consumed[each.group], consumed_before.get(each.group), each.out_tps),
            "lag": each.lag,
            "members": members,
            "topics": len({queue.queue.topic for queue in each.queues}),
        }
        for each, members in now.groups
    ]
    topics.sort(key=lambda row: (-_number(row["in_per_s"]), str(row["topic"])))
    groups.sort(key=lambda row: (-_number(row["lag"]), str(row["group"])))
    return {"brokers": [_broker(each) for each in now.brokers], "topics": topics, "groups": groups}


def _broker(status: rocketpy_admin.BrokerStatus) -> dict[str, object]:
    return {
        "broker": status.broker,
        "id": status.broker_id,
        "address": status.address,
        "in_per_s": status.in_tps,
        "out_per_s": status.out_tps,
        "stored_today": status.stored_today,
        "disk_percent": round(max(0.0, status.disk_ratio) * 100, 1),
        "error": status.error or status.runtime.get("rocketpyNotReady", ""),
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


def page(shown: View, title: str, lines_max: int | None) -> list[str]:
    """Return the lines of one page.

    Args:
        shown: the rows.
        title: its first line.
        lines_max: height of the screen; None for no limit, where a table has at most 20 rows.
    """
    brokers = table(shown["brokers"])
    if lines_max is None:
        room = {"topics": _ROWS, "groups": _ROWS}
    else:  # the title, four empty lines, and the lines that count omitted rows
        left = max(2, lines_max - len(brokers) - 9)
        groups = min(len(shown["groups"]), max(left // 2, left - len(shown["topics"])))
        room = {"topics": max(1, left - groups), "groups": max(1, groups)}
    lines = [title, "", *brokers]
    for name, rows_max in room.items():
        rows = shown[name]
        lines += ["", *(table(rows[:rows_max]) or [f"no {name}"])]
        if len(rows) > rows_max:
            lines.append(f"... {len(rows) - rows_max:,} more")
    return lines if lines_max is None else lines[:lines_max]


async def take(admin: rocketpy_admin.Admin) -> Sample:
    """Query a cluster; topics and groups deleted in between are omitted.

    Raises:
        RocketPyError: no name server answers, or a broker does not list its groups.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def asked(question: Coroutine[Any, Any, T]) -> T | None:
        async with gate:
            try:
                return await question
            except RocketPyError:
                return None

    async def group(name: str) -> tuple[rocketpy_admin.GroupLag, int]:
        return await admin.group_lag(name), len(await admin.group_members(name))

    brokers = await admin.brokers()
    groups = await admin.group_names() if any(not each.error for each in brokers) else []
    topics = await asyncio.gather(*(asked(admin.topic_status(x)) for x in await admin.topics()))
    progress = await asyncio.gather(*(asked(group(name)) for name in groups))
    return Sample(
        at_s=time.monotonic(),
        brokers=brokers,
        topics=[each for each in topics if each is not None],
        groups=[each for each in progress if each is not None],
    )


class Screen:
    """Shows pages: in place on a terminal, one below the other elsewhere.

    Args:
        namesrv: shown in the title.
        output: `table`, or `json` for one object per line.
        is_live: whether several pages are shown.
    """

    def __init__(self, namesrv: str, output: str, *, is_live: bool) -> None:
        self._namesrv = namesrv
        self._output = output
        self._in_place = is_live and output == "table" and sys.stdout.isatty()

    def __enter__(self) -> Self:
        if self._in_place:
            click.echo(_ENTER, nl=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_place:
            click.echo(_LEAVE, nl=False)

    def draw(self, shown: View, error: str = "") -> None:
        """Show a page.

        Args:
            shown: the rows; the previous ones if the query failed.
            error: why the query failed, or empty.
        """
        at = iso(time.time_ns() // 1_000_000)
        if self._output == "json":
            show_line({"time": at, "error": error, **shown})
            return
        title = f"{self._namesrv}  {at}" + (f"  {printable(error)}" if error else "")
        if not self._in_place:
            click.echo("\n".join([*page(shown, title, None), ""]))
            return
        size = shutil.get_terminal_size()
        lines = [line[: size.columns] for line in page(shown, title, size.lines)]
        text = f"{_TO_LINE_END}\n".join(lines)
        click.echo(f"{_HOME}{text}{_TO_LINE_END}{_TO_SCREEN_END}", nl=False)


@click.command("top", context_settings=CONTEXT, epilog="Example: rocketpy top --interval 5")
@click.option("--once", is_flag=True, help="Show one page and exit.")
@click.option(
    "--interval",
    type=FiniteRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between pages.",
)
@namesrv_option
@output_option
def command(*, once: bool, interval: float, namesrv: str, output: str) -> int:
    """Watch brokers, the busiest topics and the groups furthest behind.

    Rates are since the last page; on the first one (and with --once), brokers report them for the
    last minute. With -o json a page is one object on a line. Ctrl-C, SIGTERM and SIGHUP end the
    command, and so does a closed pipe.
    With --once the exit code is 1 if a broker does not answer.
    """
    with Screen(namesrv, output, is_live=not once) as screen:
        brokers = run(_watch(screen, namesrv, None if once else interval))
    return exit_code(silent_brokers(brokers)) if once else 0


async def _watch(
    screen: Screen, namesrv: str, interval_s: float | None
) -> Sequence[rocketpy_admin.BrokerStatus]:
    """Show pages until a signal, or the reader is gone; only one without an interval.

    Returns:
        The brokers of that one.
    """
    stopping = asyncio.Event()
    me = asyncio.current_task()
    assert me is not None

    def stop() -> None:
        stopping.set()
        me.cancel()

    loop = asyncio.get_running_loop()
    for number in stop_signals():
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(number, stop)
    # A write to a closed pipe fails, but the next page may be an hour away.
    gone = loop.create_task(until_reader_is_gone())
    gone.add_done_callback(lambda task: None if task.cancelled() else stop())
    try:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await _show_pages(screen, admin, interval_s)
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        me.uncancel()
        return ()
    finally:
        gone.cancel()


async def _show_pages(
    screen: Screen, admin: rocketpy_admin.Admin, interval_s: float | None
) -> Sequence[rocketpy_admin.BrokerStatus]:
    before = await take(admin)
    shown = view(before, None)
    screen.draw(shown)
    while interval_s is not None:
        await asyncio.sleep(interval_s)
        error = ""
        try:
            now = await take(admin)
            shown, before = view(now, before), now
        except RocketPyError as failure:  # the failure may pass: keep the last page until then
            error = str(failure)
        screen.draw(shown, error)
    return before.brokers
