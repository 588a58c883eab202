"""`rocketpy-namesrv` and `rocketpy namesrv`: run one name server, with a controller if asked."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketpy.cli.servers.controller import build_controller
from rocketpy.cli.servers.controller import load_config as load_controller
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
from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import ConfigSet, Sources, options_of
from rocketpy.runtime.config.live_config import LiveConfig, load_with_live_file
from rocketpy.runtime.readiness import NotReady
from rocketpy.terminal.error_exit import run_command

if TYPE_CHECKING:
    from rocketpy.controller.controller import Controller
    from rocketpy.namesrv.server import NameServer


class NameServerProcess:
    """Name server, and the controller beside it if there is one.

    Args:
        server: the name server.
        controller: the controller, or None.
    """

    def __init__(self, server: "NameServer", controller: "Controller | None") -> None:
        self._server = server
        self._controller = controller

    async def start(self) -> None:
        """Start both.

        Raises:
            StartError: a port is taken.
            StoreError: the state of the controller cannot be used.
        """
        if self._controller is not None:
            await self._controller.start()
        try:
            await self._server.start()
        except BaseException:
            if self._controller is not None:
                await self._controller.stop()
            raise

    async def stop(self) -> None:
        """Stop both."""
        if self._controller is not None:
            await self._controller.stop()
        await self._server.stop()

    def addresses(self) -> dict[str, str]:
        """Return the addresses of both."""
        found = {"namesrv": self._server.address}
        if self._controller is not None:
            found["controller"] = self._controller.address
        return found

    def settings(self) -> list[LiveConfig[Any]]:
        """Return the live settings of both."""
        both: list[LiveConfig[Any]] = [self._server.settings]
        return both if self._controller is None else [*both, self._controller.settings]

    def not_ready(self) -> list[NotReady]:
        """Return why one of them is not ready; empty if both are."""
        more = [] if self._controller is None else self._controller.not_ready()
        return [*self._server.not_ready(), *more]


def load_config(
    path: Path | None,
    overrides: Sequence[str],
    *,
    port: int | None = None,
    accepted: Sequence[str] = (),
    elsewhere: Iterable[str] = (),
) -> ConfigSet:
    """Load `namesrv.conf`, environment and command line.

    Args:
        path: the file, or None.
        overrides: `key=value` texts.
        port: of the command line, which overrides all others; None to leave it to them.
        accepted: keys of `--accept-ignored`.
        elsewhere: keys that the controller of the process reads.

    Raises:
        ConfigError: an invalid value.
    """
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick

    more = [] if port is None else [f"listenPort={port}"]
    sources = Sources.from_file(
        path, environ=os.environ, overrides=[*overrides, *more], accepted=accepted
    )
    return load_with_live_file(
        sources,
        [NamesrvConfig],
        lambda loaded: loaded.get(NamesrvConfig).live_settings_file,
        elsewhere=elsewhere,
    )


def loaders_of(
    path: Path | None,
    overrides: Sequence[str],
    *,
    port: int | None = None,
    accepted: Sequence[str] = (),
) -> dict[str, Callable[[], ConfigSet]]:
    """Return the function that loads each server's configuration, by server.

    The controller has one with `enableControllerInNamesrv=true`; its keys are unknown otherwise.

    Args:
        path: the file, or None.
        overrides: `key=value` texts.
        port: of the name server.
        accepted: keys of `--accept-ignored`.
    """
    from rocketpy.controller.config import ControllerConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415

    load = partial(load_config, path, overrides, port=port, accepted=accepted)
    controller_keys = {each.key for each in options_of(ControllerConfig)}
    with_controller = partial(load, elsewhere=controller_keys)
    try:
        is_asked = with_controller().get(NamesrvConfig).enable_controller_in_namesrv
    except ConfigError:
        return {"namesrv": with_controller}  # which reports it
    if not is_asked:
        return {"namesrv": load}
    namesrv_keys = {each.key for each in options_of(NamesrvConfig)}
    controller = partial(
        load_controller, path, overrides, accepted=accepted, elsewhere=namesrv_keys
    )
    return {"namesrv": with_controller, "controller": controller}


@click.command(
    "namesrv",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rocketpy namesrv -p 9876 -D dataDir=/var/lib/rocketpy/namesrv",
)
@click.option(
    "-p", "--port", type=click.IntRange(0, 65_535), help="TCP port; 0 chooses a free one."
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
    """Run a name server: the directory of brokers and topics for clients."""
    collect_seldom()
    settings = [*overrides, *log_options.overrides]
    loaders = loaders_of(config_path, settings, port=port, accepted=accepted)
    if check_config:
        return check_configuration(loaders, strict=strict_config)
    configs = {name: load() for name, load in loaders.items()}
    if print_config:
        return print_configuration(configs, strict=strict_config)
    refuse_broken_rules(configs)
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.namesrv.server import NameServer  # noqa: PLC0415
    from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415

    config = configs["namesrv"].get(NamesrvConfig)
    limiter = start_logs(log_options, config.operation.log_level)
    report_configuration(configs, strict=strict_config)
    controller = build_controller(configs["controller"]) if "controller" in configs else None
    server = NameServerProcess(NameServer(config, clock=SystemClock()), controller)
    operation = Operation(
        config=config.operation,
        limiter=limiter,
        settings=server.settings,
        not_ready=server.not_ready,
    )
    return run_server(server, server.addresses, operation)


def main() -> None:
    """Run `rocketpy-namesrv`."""
    run_command(command, "rocketpy-namesrv")
