"""`rocketpy standalone`: a name server and a broker in one process, in one directory.

Below the data directory, `store` is the broker's and `namesrv` the name server's.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketpy.cli.servers.broker import (
    broker_classes,
    build_broker,
    load_config,
    start_empty_option,
)
from rocketpy.cli.servers.daemon import (
    Operation,
    check_configuration,
    collect_seldom,
    common_options,
    print_configuration,
    report_configuration,
    run_server,
)
from rocketpy.cli.servers.log_options import LogOptions, start_logs, whole_path
from rocketpy.cli.servers.start_rules import refuse_broken_rules
from rocketpy.errors import StartError
from rocketpy.runtime.config.config import ConfigSet, Sources, options_of
from rocketpy.runtime.config.live_config import LiveConfig, load_with_live_file
from rocketpy.runtime.config.setting_checks import ConfigWarning
from rocketpy.runtime.readiness import NotReady
from rocketpy.terminal.parameters import NonEmptyPath

if TYPE_CHECKING:
    from rocketpy.broker.broker import Broker

_WILDCARDS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to
_NOT_SHARED = {"listenPort"}
"""Keys of both servers that apply to the broker; the name server has options for them."""


class Standalone:
    """Name server and broker on one loop; the broker starts second and stops first.

    Args:
        namesrv: configuration of the name server.
        broker: configuration of the broker, which registers with that name server unless it
            has others.
        start_empty: whether to start with an empty commit log if it is missing.
    """

    def __init__(self, namesrv: ConfigSet, broker: ConfigSet, *, start_empty: bool = False) -> None:
        from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick
        from rocketpy.namesrv.server import NameServer  # noqa: PLC0415
        from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415

        self._broker_config = broker
        self._start_empty = start_empty
        self._namesrv = NameServer(namesrv.get(NamesrvConfig), clock=SystemClock())
        self._broker: Broker | None = None

    async def start(self) -> None:
        """Start the name server, then the broker, which registers before this returns.

        Raises:
            StartError: a port is taken.
            StoreError: the store directory cannot be used.
        """
        # First: a second process on one directory would take the port of the name server.
        check_unlocked(self._broker_config)
        with _ports_as_options("--namesrv-port"):
            await self._namesrv.start()
        broker = build_broker(
            self._broker_config,
            namesrv_addr=self._namesrv.address,
            start_empty=self._start_empty,
        )
        try:
            with _ports_as_options("--port"):
                await broker.start()
        except BaseException:
            await self._namesrv.stop()
            raise
        self._broker = broker

    async def stop(self) -> None:
        """Stop the broker, then the name server."""
        if self._broker is not None:
            await self._broker.stop()
        await self._namesrv.stop()

    def addresses(self) -> dict[str, str]:
        """Return the addresses of both, and whether sends are compiled."""
        assert self._broker is not None, "not started"
        return {
            "namesrv": self._namesrv.address,
            "broker": self._broker.address,
            "sends": self._broker.send_path,
        }

    def ready_text(self, data: Path) -> str:
        """Return the line that a terminal shows when both are ready."""
        assert self._broker is not None, "not started"
        return (
            f"ready: name server {self._namesrv.address}, broker {self._broker.address}, "
            f"data {data}, Ctrl-C stops"
        )

    def settings(self) -> list[LiveConfig[Any]]:
        """Return the live settings of both, those of the broker first; after `start`."""
        assert self._broker is not None, "not started"
        return [self._broker.parts.configs, self._namesrv.settings]

    def not_ready(self) -> list[NotReady]:
        """Return why one of them does not serve clients; empty if both do."""
        broker = [] if self._broker is None else self._broker.not_ready()
        return [*self._namesrv.not_ready(), *broker]


def check_unlocked(broker: ConfigSet) -> None:
    """Check that no other process uses the store directory.

    Raises:
        StoreLockedError: another process uses it.
    """
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.store.files.real_files import RealFiles  # noqa: PLC0415

    path = Path(broker.get(MessageStoreConfig).store_path_root_dir) / "lock"
    if path.is_file():
        RealFiles().lock(path).close()


@contextlib.contextmanager
def _ports_as_options(option: str) -> Iterator[None]:
    """Add the option that changes a port to the error of a port in use."""
    try:
        yield
    except StartError as error:
        raise StartError(str(error).replace("change listenPort", f"change {option}")) from error


def split_overrides(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split `key=value` texts by server; unknown keys go to the broker.

    Returns:
        Texts of the name server and of the broker; a shared key is in both.
    """
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick

    namesrv_keys = {each.key for each in options_of(NamesrvConfig)} - _NOT_SHARED
    broker_keys = {each.key for group in broker_classes() for each in options_of(group)}
    namesrv, broker = [], []
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in namesrv_keys:
            namesrv.append(text)
        if key in broker_keys or key not in namesrv_keys:
            broker.append(text)
    return namesrv, broker


@click.command(
    "standalone",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rocketpy standalone --data ./data -D flushDiskType=SYNC_FLUSH",
)
@click.option(
    "--data",
    type=NonEmptyPath(path_type=Path, file_okay=False),
    required=True,
    callback=whole_path,
    help="Directory of all files; created if it does not exist.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on and to advertise; 0.0.0.0 listens on all.",
)
@click.option("--namesrv-port", type=click.IntRange(0, 65_535), default=9876, show_default=True)
@click.option("--port", type=click.IntRange(0, 65_535), default=10_911, show_default=True)
@start_empty_option
@common_options
def command(  # noqa: PLR0913 - one argument an option
    *,
    data: Path,
    host: str,
    namesrv_port: int,
    port: int,
    start_empty: bool,
    overrides: tuple[str, ...],
    log_options: LogOptions,
    strict_config: bool,
    print_config: bool,
    check_config: bool,
    accepted: tuple[str, ...],
) -> int:
    """Run a name server and a broker in one process."""
    collect_seldom()
    quiet = _is_quiet(log_options)
    weakest = ["logLevel=warning"] if quiet else []
    settings = [*weakest, *overrides, *log_options.overrides]
    for_namesrv, for_broker = split_overrides(settings)
    loaders = {
        "namesrv": partial(_load_namesrv, data, host, namesrv_port, for_namesrv, accepted),
        "broker": partial(_load_broker, data, host, port, namesrv_port, for_broker, accepted),
    }
    if check_config:
        return check_configuration(loaders, strict=strict_config)
    namesrv, broker = (load() for load in loaders.values())
    if print_config:
        return print_configuration({"namesrv": namesrv, "broker": broker}, strict=strict_config)
    refuse_broken_rules({"namesrv": namesrv, "broker": broker})
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415 - keeps --help quick

    config = broker.get(BrokerConfig).operation
    limiter = start_logs(log_options, config.log_level)
    report_configuration({"namesrv": namesrv, "broker": broker}, strict=strict_config)
    server = Standalone(namesrv, broker, start_empty=start_empty)
    operation = Operation(
        config=config,
        limiter=limiter,
        settings=server.settings,
        not_ready=server.not_ready,
        ready_text=(lambda: server.ready_text(data)) if quiet else None,
    )
    return run_server(server, server.addresses, operation)


def _is_quiet(options: LogOptions) -> bool:
    """Return whether the start shows one line on a terminal instead of the log."""
    is_default = options.level is None and options.file is None and options.format == "console"
    # A level of the environment is weaker than the command line, which the quiet level is on.
    is_set = any(name.upper().startswith("ROCKETPY_LOG") for name in os.environ)
    return is_default and not is_set and sys.stderr.isatty()


def _load_namesrv(
    data: Path, host: str, port: int, overrides: Sequence[str], accepted: Sequence[str]
) -> ConfigSet:
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick

    directory = data.absolute() / "namesrv"
    fixed = [f"dataDir={directory}", f"bindAddress={host}", f"listenPort={port}"]
    sources = Sources(environ=os.environ, overrides=[*fixed, *overrides], accepted=accepted)
    return load_with_live_file(
        sources, [NamesrvConfig], lambda loaded: loaded.get(NamesrvConfig).live_settings_file
    )


def _load_broker(
    data: Path,
    host: str,
    port: int,
    namesrv_port: int,
    overrides: Sequence[str],
    accepted: Sequence[str],
) -> ConfigSet:
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415 - keeps --help quick

    directory = data.absolute() / "store"
    fixed = [f"storePathRootDir={directory}", f"bindAddress={host}", f"listenPort={port}"]
    if host not in _WILDCARDS:
        fixed.append(f"brokerIP1={host}")
    # NAMESRV_ADDR is for clients of other clusters; this broker registers here.
    environ = {name: text for name, text in os.environ.items() if name != "NAMESRV_ADDR"}
    # A single broker for development: a producer gets a recall handle, and it should work.
    defaults = {"brokerName": "broker-a", "recallMessageEnable": "true"}
    loaded = load_config(None, [*fixed, *overrides], environ, defaults, accepted)
    others = loaded.get(BrokerConfig).namesrv_addr
    if others and not any(each.endswith(f":{namesrv_port}") for each in others.split(";")):
        reason = (
            f"the broker registers at {others} only: clients of the name server of this process "
            "do not find it; remove the key, or add that name server"
        )
        loaded.warnings = (*loaded.warnings, ConfigWarning("namesrvAddr", reason))
    return loaded
