"""`rocketpy bench`: measures sending and receiving, with progress, latencies and plots."""

import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from rocketpy.terminal.common import CONTEXT, namesrv_option, output_option, run
from rocketpy.terminal.parameters import FiniteRange, NonEmptyPath
from rocketpy.terminal.render import show
from rocketpy.testing.progress import ProgressBars

if TYPE_CHECKING:
    from rocketpy.cli.measure.figures import Figures
    from rocketpy.cli.measure.loads import Mode

F = TypeVar("F", bound=Callable[..., Any])
_IN_FLIGHT = {"async": 256, "sync": 1, "batch": 4}
_LOAD = Callable[["Figures", Callable[[int], None]], Coroutine[Any, Any, None]]
_Run = tuple[dict[str, object], "Figures"]


@click.group(
    "bench",
    context_settings=CONTEXT,
    epilog="Example: rocketpy bench send --count 100000 --size 100",
)
def command() -> None:
    """Measure sending and receiving."""


def _shared_options(function: F) -> F:
    """Add the options that both commands share."""
    for option in (
        output_option,
        namesrv_option,
        click.option(
            "--html",
            type=NonEmptyPath(path_type=Path, dir_okay=False, writable=True),
            help="Write figures and plots as one HTML page.",
        ),
        click.option(
            "--plot/--no-plot",
            default=None,
            help="Draw rate and latencies below the table; by default on a terminal.",
        ),
        click.option(
            "--clients",
            type=click.IntRange(1, 1_000),
            default=1,
            show_default=True,
            help="Clients in this process, each with its own connections.",
        ),
        click.option(
            "--count",
            type=click.IntRange(1),
            default=100_000,
            show_default=True,
            help="Messages of all clients together.",
        ),
        click.option("--topic", default="rocketpy-bench", show_default=True),
    ):
        function = option(function)
    return function


@command.command(
    "send",
    epilog="Example: rocketpy bench send --mode batch --clients 4 --size 100 --size 1024",
)
@_shared_options
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    default=(100,),
    show_default=True,
    help="Bytes of a body; repeat it to measure several sizes.",
)
@click.option(
    "--mode",
    type=click.Choice(["async", "sync", "batch"]),
    default="async",
    show_default=True,
    help="Pipelined sends, one send at a time, or one batch at a time.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1),
    help="Requests in flight of each client; by default 256 for async, 1 for sync, 4 for batch.",
)
@click.option(
    "--batch", type=click.IntRange(1), default=32, show_default=True, help="Messages of a batch."
)
def send(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    count: int,
    sizes: tuple[int, ...],
    mode: str,
    clients: int,
    in_flight: int | None,
    batch: int,
    plot: bool | None,
    html: Path | None,
    namesrv: str,
    output: str,
) -> int:
    """Send messages as fast as possible; latencies are from send to response."""
    from rocketpy.cli.measure import loads  # noqa: PLC0415 - --help is quick

    runs: list[_Run] = []
    for size in sizes:
        load = loads.SendLoad(
            topic,
            size,
            count,
            cast("Mode", mode),
            clients,
            in_flight or _IN_FLIGHT[mode],
            batch,
        )
        about = {"mode": mode, "clients": clients, "size_bytes": size}
        runs.append(_measure("sent", about, count, partial(loads.send, namesrv, load)))
    return _finish("rocketpy bench send", runs, output, plot=plot, html=html)


@command.command("consume", epilog="Example: rocketpy bench consume --count 100000 --clients 2")
@_shared_options
@click.option("--group", default="ROCKETPY_BENCH", show_default=True)
@click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="End after this many seconds without a message.",
)
def consume(  # noqa: PLR0913 - one argument an option
    *,
    topic: str,
    group: str,
    count: int,
    clients: int,
    timeout: float,
    plot: bool | None,
    html: Path | None,
    namesrv: str,
    output: str,
) -> int:
    """Receive messages from the group's offset; latencies are from store to receipt."""
    from rocketpy.cli.measure import loads  # noqa: PLC0415 - --help is quick

    load = loads.ConsumeLoad(topic, group, count, clients, timeout)
    about = {"mode": "consume", "clients": clients}
    measured = _measure("received", about, count, partial(loads.consume, namesrv, load))
    return _finish("rocketpy bench consume", [measured], output, plot=plot, html=html)


def _measure(name: str, about: dict[str, object], count: int, load: _LOAD) -> _Run:
    """Run one load with a progress bar; return its row and figures."""
    from rocketpy.cli.measure.figures import Figures  # noqa: PLC0415 - --help is quick

    progress = ProgressBars({name: count})
    figures = Figures()
    try:
        run(load(figures, lambda done: progress.update(**{name: done})))
    finally:
        progress.close()
    return about | figures.row(), figures


def _finish(
    title: str, runs: list[_Run], output: str, *, plot: bool | None, html: Path | None
) -> int:
    """Print table and plots, write the page; raise an error if a message failed."""
    from rocketpy.cli.measure.plots import bars, page  # noqa: PLC0415 - --help is quick

    show([row for row, _ in runs], output)
    if output == "table" and (sys.stdout.isatty() if plot is None else plot):
        for _, figures in runs:
            click.echo("\n" + bars(figures))
    if html is not None:
        html.write_text(page(title, runs), encoding="utf-8")
    failed = sum(figures.failed for _, figures in runs)
    failure = next((figures.failure for _, figures in runs if figures.failure), None)
    if failure is not None:
        raise click.ClickException(f"{failed} messages failed; first error: {failure}")
    return 0
