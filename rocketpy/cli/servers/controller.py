"""`rocketpy-controller` and `rocketpy controller`: run one controller."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketpy.cli.servers.daemon import (
    Operation,
    check_configuration,
    collect_seldom,
    common_options,
    config_option,
    print_configuration,
    report_configuration,
    run_server,
)
from rocketpy.cli.servers.log_options import LogOptions, start_logs
from rocketpy.cli.servers.start_rules import refuse_broken_rules
from rocketpy.runtime.config.config import ConfigSet, Sources
from rocketpy.runtime.config.live_config import load_with_live_file
from rocketpy.terminal.error_exit import run_command

if TYPE_CHECKING:
    from rocketpy.controller.controller import Controller


def load_config(
    path: Path | None,
    overrides: Sequence[str],
    *,
    port: int | None = None,
    accepted: Sequence[str] = (),
    elsewhere: Iterable[str] = (),
) -> ConfigSet:
    """Load `controller.conf`, environment and command line.

    Args:
        path: the file, or None.
        overrides: `key=value` texts.
        port: of the command line, which overrides all others; None to leave it to them.
        accepted: keys of `--accept-ignored`.
        elsewhere: keys that another server of the process reads.

    Raises:
        ConfigError: an invalid value.
    """
    from rocketpy.controller.config import ControllerConfig  # noqa: PLC0415 - keeps --help quick

    more = [] if port is None else [f"controllerListenPort={port}"]
    sources = Sources.from_file(
        path, environ=os.environ, overrides=[*overrides, *more], accepted=accepted
    )
    return load_with_live_file(
        sources,
        [ControllerConfig],
        lambda loaded: loaded.get(ControllerConfig).live_settings_file,
        elsewhere=elsewhere,
    )


def build_controller(loaded: ConfigSet) -> "Controller":
    """Return a controller with a loaded configuration, not yet started."""
    from rocketpy.controller.config import ControllerConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.controller.controller import Controller  # noqa: PLC0415
    from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415

    return Controller(loaded.get(ControllerConfig), clock=SystemClock())


@click.command(
    "controller",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rocketpy controller -D controllerDLegerPeers=n0-10.0.0.1:9878 "
    "-D controllerStorePath=/var/lib/rocketpy/controller",
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65_535),
    help="TCP port; 0 chooses a free one. Default: that of controllerDLegerPeers, or 9878.",
)
@config_option
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
    """Run a controller, which names the master of each broker group, and elects another one."""
    collect_seldom()
    settings = [*overrides, *log_options.overrides]
    load = partial(load_config, config_path, settings, port=port, accepted=accepted)
    if check_config:
        return check_configuration({"controller": load}, strict=strict_config)
    loaded = load()
    if print_config:
        return print_configuration({"controller": loaded}, strict=strict_config)
    refuse_broken_rules({"controller": loaded})
    from rocketpy.controller.config import ControllerConfig  # noqa: PLC0415 - keeps --help quick

    config = loaded.get(ControllerConfig)
    limiter = start_logs(log_options, config.operation.log_level)
    report_configuration({"controller": loaded}, strict=strict_config)
    server = build_controller(loaded)
    operation = Operation(
        config=config.operation,
        limiter=limiter,
        settings=lambda: [server.settings],
        not_ready=server.not_ready,
    )
    return run_server(server, lambda: {"controller": server.address}, operation)


def main() -> None:
    """Run `rocketpy-controller`."""
    run_command(command, "rocketpy-controller")
