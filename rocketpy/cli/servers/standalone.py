"""`rocketpy standalone`: a name server and a broker in one process, in one directory.

Below the data directory, `store` is the broker's and `namesrv` the name server's.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketpy.cli.servers.broker import broker_classes, build_broker, load_config
from rocketpy.cli.servers.daemon import (
    collect_seldom,
    common_options,
    report_configuration,
    run_server,
)
from rocketpy.errors import ConfigError, StartError
from rocketpy.runtime import logs
from rocketpy.runtime.config.config import ConfigSet, Sources, options_of
from rocketpy.runtime.config.live_config import load_with_live_file

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
    """

    def __init__(self, namesrv: ConfigSet, broker: ConfigSet) -> None:
        from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick
        from rocketpy.namesrv.server import NameServer  # noqa: PLC0415
        from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415

        self._broker_config = broker
        self._namesrv = NameServer(namesrv.get(NamesrvConfig), clock=SystemClock())
        self._broker: Broker | None = None

    async def start(self) -> None:
        """Start the name server, then the broker, which registers before this returns.

        Raises:
            StartError: a port is taken.
            StoreError: the store directory cannot be used.
        """
        with _ports_as_options("--namesrv-port"):
            await self._namesrv.start()
        broker = build_broker(self._broker_config, namesrv_addr=self._namesrv.address)
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


def refuse_enforcing(namesrv: ConfigSet) -> None:
    """Reject a name server that requires TLS, because the broker could not register with it.

    Raises:
        ConfigError: the name server requires TLS.
    """
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick
    from rocketpy.remoting.config import TlsMode  # noqa: PLC0415

    if namesrv.get(NamesrvConfig).server.tls.mode is TlsMode.ENFORCING:
        raise ConfigError(
            "brokers register in plain text, which enforcing rejects: "
            "use permissive, which accepts TLS and plain text",
            key="tls.server.mode",
        )


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
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
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
@common_options
def command(  # noqa: PLR0913 - one argument an option
    *,
    data: Path,
    host: str,
    namesrv_port: int,
    port: int,
    overrides: tuple[str, ...],
    log_format: logs.LogFormat,
    log_level: str,
    strict_config: bool,
    print_config: bool,
) -> int:
    """Run a name server and a broker in one process."""
    collect_seldom()
    for_namesrv, for_broker = split_overrides(overrides)
    namesrv, broker = _load(data, host, (namesrv_port, port), for_namesrv, for_broker)
    if print_config:
        click.echo(f"# name server\n{namesrv.as_properties()}\n# broker\n", nl=False)
        click.echo(broker.as_properties(), nl=False)
        return 0
    refuse_enforcing(namesrv)
    logs.configure(level=log_level, log_format=log_format)
    report_configuration({"namesrv": namesrv, "broker": broker}, strict=strict_config)
    server = Standalone(namesrv, broker)
    return run_server(server, server.addresses)


def _load(
    data: Path,
    host: str,
    ports: tuple[int, int],
    for_namesrv: Sequence[str],
    for_broker: Sequence[str],
) -> tuple[ConfigSet, ConfigSet]:
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415 - keeps --help quick

    root = data.absolute()
    fixed = [f"dataDir={root / 'namesrv'}", f"bindAddress={host}", f"listenPort={ports[0]}"]
    sources = Sources(environ=os.environ, overrides=[*fixed, *for_namesrv])
    namesrv = load_with_live_file(
        sources, [NamesrvConfig], lambda loaded: loaded.get(NamesrvConfig).live_settings_file
    )
    fixed = [
        f"storePathRootDir={root / 'store'}",
        f"bindAddress={host}",
        f"listenPort={ports[1]}",
    ]
    if host not in _WILDCARDS:
        fixed.append(f"brokerIP1={host}")
    # NAMESRV_ADDR is for clients of other clusters; this broker registers here.
    environ = {name: text for name, text in os.environ.items() if name != "NAMESRV_ADDR"}
    broker = load_config(None, [*fixed, *for_broker], environ, {"brokerName": "broker-a"})
    return namesrv, broker
