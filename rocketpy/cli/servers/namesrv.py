"""`rocketpy-namesrv` and `rocketpy namesrv`: run one name server."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from rocketpy.cli.servers.daemon import (
    collect_seldom,
    common_options,
    report_configuration,
    run_server,
)
from rocketpy.runtime import logs
from rocketpy.runtime.config.config import ConfigSet, Sources
from rocketpy.runtime.config.live_config import load_with_live_file
from rocketpy.terminal.error_exit import run_command


def load_config(
    path: Path | None, overrides: Sequence[str], *, port: int | None = None
) -> ConfigSet:
    """Load `namesrv.conf`, environment and command line.

    Args:
        path: the file, or None.
        overrides: `key=value` texts.
        port: of the command line, which overrides all others; None to leave it to them.

    Raises:
        ConfigError: an invalid value.
    """
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick

    more = [] if port is None else [f"listenPort={port}"]
    sources = Sources.from_file(path, environ=os.environ, overrides=[*overrides, *more])
    return load_with_live_file(
        sources, [NamesrvConfig], lambda loaded: loaded.get(NamesrvConfig).live_settings_file
    )


@click.command(
    "namesrv",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rocketpy namesrv -p 9876 -D dataDir=/var/lib/rocketpy/namesrv",
)
@click.option(
    "-p", "--port", type=click.IntRange(0, 65_535), help="TCP port; 0 chooses a free one."
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="Properties file with Apache's keys.",
)
@common_options
def command(
    *,
    port: int | None,
    config_path: Path | None,
    overrides: tuple[str, ...],
    log_format: logs.LogFormat,
    log_level: str,
    strict_config: bool,
    print_config: bool,
) -> int:
    """Run a name server: the directory of brokers and topics for clients."""
    collect_seldom()
    loaded = load_config(config_path, overrides, port=port)
    if print_config:
        click.echo(loaded.as_properties(), nl=False)
        return 0
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.namesrv.server import NameServer  # noqa: PLC0415
    from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415

    logs.configure(level=log_level, log_format=log_format)
    report_configuration({"namesrv": loaded}, strict=strict_config)
    server = NameServer(loaded.get(NamesrvConfig), clock=SystemClock())
    return run_server(server, lambda: {"namesrv": server.address})


def main() -> None:
    """Run `rocketpy-namesrv`."""
    run_command(command, "rocketpy-namesrv")
