"""`rocketpy-namesrv` and `rocketpy namesrv`: run one name server."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from rocketpy.cli.servers.daemon import (
    Operation,
    check_configuration,
    collect_seldom,
    common_options,
    print_configuration,
    report_configuration,
    run_server,
)
from rocketpy.cli.servers.log_options import LogOptions, start_logs
from rocketpy.cli.servers.start_rules import refuse_broken_rules
from rocketpy.runtime.config.config import ConfigSet, Sources
from rocketpy.runtime.config.live_config import load_with_live_file
from rocketpy.terminal.error_exit import run_command


def load_config(
    path: Path | None,
    overrides: Sequence[str],
    *,
    port: int | None = None,
    accepted: Sequence[str] = (),
) -> ConfigSet:
    """Load `namesrv.conf`, environment and command line.

    Args:
        path: the file, or None.
        overrides: `key=value` texts.
        port: of the command line, which overrides all others; None to leave it to them.
        accepted: keys of `--accept-ignored`.

    Raises:
        ConfigError: an invalid value.
    """
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick

    more = [] if port is None else [f"listenPort={port}"]
    sources = Sources.from_file(
        path, environ=os.environ, overrides=[*overrides, *more], accepted=accepted
    )
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
    log_options: LogOptions,
    strict_config: bool,
    print_config: bool,
    check_config: bool,
    accepted: tuple[str, ...],
) -> int:
    """Run a name server: the directory of brokers and topics for clients."""
    collect_seldom()
    settings = [*overrides, *log_options.overrides]
    load = partial(load_config, config_path, settings, port=port, accepted=accepted)
    if check_config:
        return check_configuration({"namesrv": load}, strict=strict_config)
    loaded = load()
    if print_config:
        return print_configuration({"namesrv": loaded}, strict=strict_config)
    refuse_broken_rules({"namesrv": loaded})
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.namesrv.server import NameServer  # noqa: PLC0415
    from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415

    config = loaded.get(NamesrvConfig)
    limiter = start_logs(log_options, config.operation.log_level)
    report_configuration({"namesrv": loaded}, strict=strict_config)
    server = NameServer(config, clock=SystemClock())
    operation = Operation(
        config=config.operation,
        limiter=limiter,
        settings=lambda: [server.settings],
        not_ready=server.not_ready,
    )
    return run_server(server, lambda: {"namesrv": server.address}, operation)


def main() -> None:
    """Run `rocketpy-namesrv`."""
    run_command(command, "rocketpy-namesrv")
