"""`rocketpy run`: runs the handlers of an app, in one process or several."""

import sys
from pathlib import Path

import click
import orjson

from rocketpy.app.application import App
from rocketpy.app.supervisor import Supervisor, check_work, code_version, load_app
from rocketpy.terminal.cluster_selection import (
    DEFAULT_NAMESRV,
    METAVAR,
    NAMESRV_ADDR,
    lend_namesrv,
)
from rocketpy.terminal.common import CONTEXT
from rocketpy.terminal.parameters import NonEmptyPath


@click.command(
    "run", context_settings=CONTEXT, epilog="Example: rocketpy run shop.worker:app --workers 4"
)
@click.argument("app", metavar="MODULE:APP")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 256),
              help="Number of processes, which share the queues.")  # fmt: skip
@click.option(
    "--reload", is_flag=True, help="Restart when a Python file below this directory changes."
)
@click.option("-n", "--namesrv", envvar=NAMESRV_ADDR, metavar=METAVAR,
              default=DEFAULT_NAMESRV, show_default=True, show_envvar=True,
              help="Name servers of an app without any.")  # fmt: skip
@click.option("--health-port", type=click.IntRange(0, 65535),
              help="Port of /live and /ready over HTTP; 0 chooses a free one.")  # fmt: skip
@click.option("--health-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Local address of that port; probes of Kubernetes need 0.0.0.0.")  # fmt: skip
@click.option("--asyncapi", type=NonEmptyPath(dir_okay=False, allow_dash=True), metavar="FILE",
              help="Write the AsyncAPI document of the app as JSON and run nothing; - is standard "
                   "output.")  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context,
    *,
    app: str,
    workers: int,
    reload: bool,
    namesrv: str,
    health_port: int | None,
    health_address: str,
    asyncapi: str | None,
) -> int:
    """Run the handlers of a `rocketpy.App` until SIGTERM, SIGHUP or Ctrl-C.

    Running handlers finish first; under nohup, SIGHUP is ignored. Name servers in the app take
    precedence over those given here; contexts are not used.
    """
    if health_port is not None and workers > 1:
        raise click.UsageError(
            "--health-port is of one process: leave --workers out, and run several commands with "
            "a port each, or several containers"
        )
    if asyncapi is not None and (workers > 1 or reload or health_port is not None):
        raise click.UsageError(
            "--asyncapi runs nothing: leave --workers, --reload and --health-port out"
        )
    lend_namesrv(ctx, namesrv)  # also to the workers
    found = load_app(app)
    if asyncapi is not None:
        _write_document(found, asyncapi)
        return 0
    check_work(found, app)
    if workers == 1 and not reload:
        if health_port is None:
            found.run()
        else:
            found.run(health_port=health_port, health_address=health_address)
        return 0
    once = [sys.executable, "-m", "rocketpy", "run", app]
    if health_port is not None:
        once += ["--health-port", str(health_port), "--health-address", health_address]
    here = Path.cwd()
    return Supervisor(once, workers, (lambda: code_version(here)) if reload else None).run()


def _write_document(app: App, path: str) -> None:
    """Write the AsyncAPI document of an app; a file is replaced when all of it is written."""
    text = orjson.dumps(app.asyncapi(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        with click.open_file(path, "wb", atomic=path != "-") as file:
            file.write(text)
    except OSError as error:
        raise click.FileError(path, error.strerror) from error
