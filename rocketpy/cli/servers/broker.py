"""`rocketpy-broker` and `rocketpy broker`: run one broker."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketpy.cli.servers.daemon import (
    F,
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
    from rocketpy.broker.broker import Broker
    from rocketpy.broker.failover.replica_node import ReplicaNode

_MIN_COPIES = "minInSyncReplicas"


def broker_classes() -> list[type]:
    """Return the configuration classes of a broker.conf."""
    # Imported here and below, so that --help does not load a broker.
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415
    from rocketpy.broker.failover.config import FailoverConfig  # noqa: PLC0415
    from rocketpy.broker.replication.config import ReplicationConfig  # noqa: PLC0415
    from rocketpy.remoting.config import RemotingServerConfig, TlsClientConfig  # noqa: PLC0415
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415

    return [
        BrokerConfig,
        FailoverConfig,
        MessageStoreConfig,
        RemotingServerConfig,
        ReplicationConfig,
        TlsClientConfig,
    ]


def load_config(
    path: Path | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
    accepted: Sequence[str] = (),
) -> ConfigSet:
    """Load `broker.conf`, live changes, environment and command line.

    Apache's own variable NAMESRV_ADDR counts as the weakest source of `namesrvAddr`.

    Args:
        path: the file, or None.
        overrides: `key=value` texts of the command line, the last one strongest.
        environ: the environment.
        defaults: texts by key that replace built-in defaults.
        accepted: keys of `--accept-ignored`.

    Raises:
        ConfigError: an invalid value.
    """
    weakest = dict(defaults or {})
    sources = Sources.from_file(
        path,
        environ=environ,
        overrides=overrides,
        defaults=weakest,
        accepted=accepted,
        variables={"namesrvAddr": "NAMESRV_ADDR"},
    )
    loaded = load_with_live_file(sources, broker_classes(), _live_file)
    if not _has_controller(loaded) or _MIN_COPIES in weakest:
        return loaded
    # One copy would be lost with the master that a controller replaces.
    weakest[_MIN_COPIES] = "2"
    return load_config(path, overrides, environ, weakest, accepted)


def _has_controller(loaded: ConfigSet) -> bool:
    from rocketpy.broker.failover.config import FailoverConfig  # noqa: PLC0415 - as above

    return loaded.get(FailoverConfig).enable_controller_mode


def _live_file(loaded: ConfigSet) -> Path:
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415 - as above

    return loaded.get(MessageStoreConfig).live_settings_file


def build_broker(
    loaded: ConfigSet, *, namesrv_addr: str | None = None, start_empty: bool = False
) -> "Broker":
    """Make the broker of a loaded configuration.

    Args:
        loaded: filled by `load_config`.
        namesrv_addr: used if the configuration has no name server.
        start_empty: whether to start with an empty commit log if it is missing.
    """
    from rocketpy.broker.broker import Broker  # noqa: PLC0415
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415
    from rocketpy.broker.replication.config import ReplicationConfig  # noqa: PLC0415
    from rocketpy.broker.replication.feature import ReplicationSettings  # noqa: PLC0415
    from rocketpy.remoting.config import RemotingServerConfig, TlsClientConfig  # noqa: PLC0415
    from rocketpy.runtime.clock import SystemClock  # noqa: PLC0415
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415

    config = loaded.get(BrokerConfig)
    if namesrv_addr is not None and not config.namesrv_addr:
        config = replace(config, namesrv_addr=namesrv_addr)
    return Broker(
        config,
        store_config=loaded.get(MessageStoreConfig),
        server_config=loaded.get(RemotingServerConfig),
        clock=SystemClock(),
        start_empty=start_empty,
        replication=ReplicationSettings(
            config=loaded.get(ReplicationConfig), tls=loaded.get(TlsClientConfig)
        ),
    )


def build_replica(loaded: ConfigSet) -> "ReplicaNode":
    """Make the replica of a loaded configuration with `enableControllerMode=true`."""
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415
    from rocketpy.broker.failover.config import FailoverConfig  # noqa: PLC0415
    from rocketpy.broker.failover.node_settings import NodeSettings  # noqa: PLC0415
    from rocketpy.broker.failover.replica_node import ReplicaNode  # noqa: PLC0415
    from rocketpy.broker.replication.config import ReplicationConfig  # noqa: PLC0415
    from rocketpy.broker.replication.feature import ReplicationSettings  # noqa: PLC0415
    from rocketpy.remoting.config import RemotingServerConfig, TlsClientConfig  # noqa: PLC0415
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415

    return ReplicaNode(
        NodeSettings(
            broker=loaded.get(BrokerConfig),
            store=loaded.get(MessageStoreConfig),
            failover=loaded.get(FailoverConfig),
            replication=ReplicationSettings(
                config=loaded.get(ReplicationConfig), tls=loaded.get(TlsClientConfig)
            ),
            server=loaded.get(RemotingServerConfig),
        )
    )


start_empty_option: Callable[[F], F] = click.option(
    "--start-empty",
    is_flag=True,
    help="If the commit log is missing, start with an empty one and give up its messages.",
)


@click.command(
    "broker",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rocketpy broker -c conf/broker.conf -n 127.0.0.1:9876",
)
@config_option
@click.option(
    "-n", "--namesrv", metavar="HOST:PORT[;HOST:PORT...]", help="Name servers to register with."
)
@start_empty_option
@common_options
def command(  # noqa: PLR0913 - one argument an option
    *,
    config_path: Path | None,
    namesrv: str | None,
    start_empty: bool,
    overrides: tuple[str, ...],
    log_options: LogOptions,
    strict_config: bool,
    print_config: bool,
    check_config: bool,
    accepted: tuple[str, ...],
) -> int:
    """Run a broker: it stores messages and serves producers and consumers."""
    collect_seldom()
    more = [] if namesrv is None else [f"namesrvAddr={namesrv}"]
    settings = [*overrides, *more, *log_options.overrides]
    load = partial(load_config, config_path, settings, os.environ, accepted=accepted)
    if check_config:
        return check_configuration({"broker": load}, strict=strict_config)
    loaded = load()
    if print_config:
        return print_configuration({"broker": loaded}, strict=strict_config)
    refuse_broken_rules({"broker": loaded})
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415 - as above

    config = loaded.get(BrokerConfig).operation
    limiter = start_logs(log_options, config.log_level)
    report_configuration({"broker": loaded}, strict=strict_config)
    if _has_controller(loaded):
        node = build_replica(loaded)
        operation = Operation(
            config=config,
            limiter=limiter,
            settings=lambda: [] if node.broker is None else [node.broker.parts.configs],
            not_ready=node.not_ready,
        )
        return run_server(node, lambda: {"broker": node.address, "role": "replica"}, operation)
    broker = build_broker(loaded, start_empty=start_empty)
    operation = Operation(
        config=config,
        limiter=limiter,
        settings=lambda: [broker.parts.configs],
        not_ready=broker.not_ready,
    )
    return run_server(
        broker, lambda: {"broker": broker.address, "sends": broker.send_path}, operation
    )


def main() -> None:
    """Run `rocketpy-broker`."""
    run_command(command, "rocketpy-broker")
