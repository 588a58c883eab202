"""Rules between keys that a start depends on: ports, addresses, host names, TLS, replication.

`--check-config` prints every broken rule; a start refuses the first one before it opens anything.
"""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketpy.errors import ConfigError, StartError
from rocketpy.runtime.config.config import ConfigSet
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.runtime.config.setting_checks import ConfigWarning
from rocketpy.runtime.os_resources import has_descriptor, shortage_of

if TYPE_CHECKING:
    from rocketpy.remoting.config import TlsServerConfig

_WILDCARDS: Final = {"0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to
_FAST_PORT_DISTANCE: Final = 2
_OTHER_DIRECTORIES: Final = {
    "batchconsumequeue",
    "config",
    "consumequeue",
    "deleted",
    "index",
    "timerlog",
}
"""Directories below `storePathRootDir` with other files than those of the commit log."""


class Listener(NamedTuple):
    """Port that a server opens.

    Attributes:
        key: key or option of the port.
        port: 0 for any free one.
        address_key: key of the address.
        address: local address or host name.
    """

    key: str
    port: int
    address_key: str
    address: str


def broken_rules(configs: Mapping[str, ConfigSet]) -> Iterator[ConfigError]:
    """Yield an error for each rule that the servers of one process break.

    Args:
        configs: loaded sets, `broker`, `namesrv` and `controller` or some of them.
    """
    # Imported here, so that --help does not load a server.
    from rocketpy.namesrv.config import NamesrvConfig  # noqa: PLC0415
    from rocketpy.remoting.config import RemotingServerConfig, TlsMode  # noqa: PLC0415

    broker, namesrv = configs.get("broker"), configs.get("namesrv")
    controller = configs.get("controller")
    listeners: list[Listener] = []
    if namesrv is not None:
        config = namesrv.get(NamesrvConfig)
        server = config.server
        key = "listenPort" if broker is None else "--namesrv-port"
        listeners.append(Listener(key, server.listen_port, "bindAddress", server.bind_address))
        if broker is None:
            listeners += _health_listeners(config.operation)
        elif server.tls.mode is TlsMode.ENFORCING:
            yield ConfigError(
                "brokers register in plain text, which enforcing rejects: "
                "use permissive, which accepts TLS and plain text",
                key="tls.server.mode",
            )
        yield from _broken_tls(server.tls)
        if broker is not None and config.enable_controller_in_namesrv:
            yield ConfigError(
                "the one broker of a standalone server needs no controller: run rocketpy namesrv "
                "or rocketpy controller for a group of brokers",
                key="enableControllerInNamesrv",
            )
    if controller is not None:
        yield from _controller_rules(controller, is_alone=namesrv is None, found=listeners)
    if broker is not None:
        from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415

        listeners += _broker_listeners(broker)
        listeners += _health_listeners(broker.get(BrokerConfig).operation)
        yield from _fast_port(broker)
        yield from _broken_tls(broker.get(RemotingServerConfig).tls)
        yield from _broken_replication(broker)
        yield from _unresolved_names(broker)
        yield from _no_directories(broker)
        yield from _shared_directory(broker)
    yield from _unusable(listeners)


def rule_warnings(loaded: ConfigSet) -> Iterator[ConfigWarning]:
    """Yield settings of a server that have no effect because of a setting of another part.

    Args:
        loaded: set of any server.
    """
    from rocketpy.broker.failover.config import FailoverConfig  # noqa: PLC0415 - as above
    from rocketpy.broker.replication.config import ReplicationConfig  # noqa: PLC0415
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415

    if not loaded.has(ReplicationConfig) or loaded.get(FailoverConfig).enable_controller_mode:
        return
    role = loaded.get(MessageStoreConfig).broker_role
    if role != "SYNC_MASTER":
        for key, copies in loaded.get(ReplicationConfig).needed_copies.items():
            reason = f"{copies} has no effect while brokerRole is {role}"
            yield ConfigWarning(key, f"{reason}: only a SYNC_MASTER waits for copies")


def _controller_rules(
    controller: ConfigSet, *, is_alone: bool, found: list[Listener]
) -> Iterator[ConfigError]:
    """Yield broken rules of a controller, and add its listeners to `found`."""
    from rocketpy.controller.config import ControllerConfig  # noqa: PLC0415 - as above
    from rocketpy.remoting.config import TlsMode  # noqa: PLC0415

    config = controller.get(ControllerConfig)
    key = "controllerDLegerPeers" if config.peer is not None else "controllerListenPort"
    found.append(Listener(key, config.listen_port, "bindAddress", config.server.bind_address))
    if is_alone:
        found += _health_listeners(config.operation)
        yield from _broken_tls(config.server.tls)
    if config.server.tls.mode is TlsMode.ENFORCING:
        yield ConfigError(
            "brokers speak to controllers in plain text, which enforcing rejects: "
            "use permissive, which accepts TLS and plain text",
            key="tls.server.mode",
        )


def refuse_broken_rules(configs: Mapping[str, ConfigSet]) -> None:
    """Raise the first broken rule.

    Raises:
        ConfigError: a rule is broken.
    """
    for error in broken_rules(configs):
        raise error


def _broker_listeners(broker: ConfigSet) -> list[Listener]:
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415 - as above
    from rocketpy.broker.replication.config import ReplicationConfig  # noqa: PLC0415
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415

    config = broker.get(BrokerConfig)
    address = ("bindAddress", config.bind_address)
    found = [Listener("listenPort", config.listen_port, *address)]
    if config.fast_listen_enable and config.listen_port > _FAST_PORT_DISTANCE:
        fast = config.listen_port - _FAST_PORT_DISTANCE
        found.append(Listener("fastListenEnable (listenPort - 2)", fast, *address))
    is_slave = broker.get(MessageStoreConfig).broker_role == "SLAVE"
    if broker.get(ReplicationConfig).allows_slaves and not is_slave:
        found.append(Listener("haListenPort", config.ha_listen_port, *address))
    return found


def _health_listeners(operation: OperationConfig) -> list[Listener]:
    if operation.health_listen_port < 0:
        return []
    address = ("healthBindAddress", operation.health_bind_address)
    return [Listener("healthListenPort", operation.health_listen_port, *address)]


def _fast_port(broker: ConfigSet) -> Iterator[ConfigError]:
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415 - as above

    config = broker.get(BrokerConfig)
    if config.fast_listen_enable and 0 < config.listen_port <= _FAST_PORT_DISTANCE:
        yield ConfigError(
            "the broker then also listens on listenPort - 2, so listenPort must be 3 or more",
            key="fastListenEnable",
        )


def _broken_tls(tls: "TlsServerConfig") -> Iterator[ConfigError]:
    from rocketpy.remoting.network.tls_context import server_context  # noqa: PLC0415 - as above

    try:
        server_context(tls)
    except ConfigError as error:
        yield error


def _broken_replication(broker: ConfigSet) -> Iterator[ConfigError]:
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415 - as above
    from rocketpy.broker.replication.config import (  # noqa: PLC0415
        ReplicationConfig,
        check_replication,
    )
    from rocketpy.remoting.config import RemotingServerConfig, TlsClientConfig  # noqa: PLC0415
    from rocketpy.remoting.network.tls_context import mutual_contexts  # noqa: PLC0415
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415
    from rocketpy.store.files.real_files import RealFiles  # noqa: PLC0415

    replication = broker.get(ReplicationConfig)
    try:
        check_replication(broker.get(BrokerConfig), broker.get(MessageStoreConfig), replication)
        replication.read_secret(RealFiles())
        if replication.ha_tls_enable:
            mutual_contexts(broker.get(RemotingServerConfig).tls, broker.get(TlsClientConfig))
    except ConfigError as error:
        yield error


def _unresolved_names(broker: ConfigSet) -> Iterator[ConfigError]:
    """Yield host names for clients and slaves that have no address."""
    from rocketpy.broker.cluster.broker_identity import address_of  # noqa: PLC0415 - as above
    from rocketpy.broker.config import BrokerConfig  # noqa: PLC0415

    config = broker.get(BrokerConfig)
    for key, host in (("brokerIP1", config.broker_ip1), ("brokerIP2", config.broker_ip2)):
        if not host:
            continue
        try:
            address_of(host, key)
        except StartError as error:
            if not has_descriptor():
                raise
            yield ConfigError(str(error))


def _no_directories(broker: ConfigSet) -> Iterator[ConfigError]:
    """Yield directories of the store that are files, or below one."""
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415 - as above

    config = broker.get(MessageStoreConfig)
    directories = {
        "storePathRootDir": config.store_path_root_dir,
        "storePathCommitLog": config.store_path_commit_log,
    }
    for key, text in directories.items():
        path = Path(text)
        existing = next((each for each in (path, *path.parents) if os.path.lexists(each)), None)
        if text and existing is not None and not existing.is_dir():
            yield ConfigError(f"cannot be a directory: {existing} is none", key=key)


def _shared_directory(broker: ConfigSet) -> Iterator[ConfigError]:
    """Yield an error if the commit log would share its directory with other files of the store."""
    from rocketpy.store.config import MessageStoreConfig  # noqa: PLC0415 - as above

    config = broker.get(MessageStoreConfig)
    # Resolved: links and relative paths may name one directory in two ways.
    root = Path(config.store_path_root_dir).resolve()
    log = Path(config.commit_log_directory).resolve()
    is_other = log.is_relative_to(root) and _OTHER_DIRECTORIES.intersection(
        log.relative_to(root).parts[:1]
    )
    if root.is_relative_to(log) or is_other:
        yield ConfigError(
            f"{log} also has other files of the store in storePathRootDir, {root}, but the commit "
            f"log needs a separate directory: remove the key for {root / 'commitlog'}, or write "
            "another directory",
            key="storePathCommitLog",
        )


def _unusable(listeners: Sequence[Listener]) -> Iterator[ConfigError]:
    """Yield addresses that are not of this machine, and ports that are given twice."""
    usable: list[tuple[Listener, str]] = []
    for each in listeners:
        try:
            usable.append((each, _local_address(each.address)))
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and shortage_of(error):
                raise
            reason = error.strerror if isinstance(error, OSError) else None
            yield ConfigError(
                f"cannot listen on {each.address!r}: {reason or error}; expected an address of "
                "this machine, or 0.0.0.0 for all of them",
                key=each.address_key,
            )
    for (one, one_address), (other, other_address) in combinations(usable, 2):
        addresses = {one_address, other_address}
        is_shared = len(addresses) == 1 or bool(addresses & _WILDCARDS)
        if one.port and one.port == other.port and is_shared:
            yield ConfigError(
                f"port {other.port} is also that of {one.key}: choose another one", key=other.key
            )


def _local_address(address: str) -> str:
    """Return a local address in numbers, by binding a free port to it.

    Raises:
        OSError: the name is unknown, or the address is not of this machine.
        UnicodeError: the text is not a host name.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.bind((address, 0))
        found: str = bound.getsockname()[0]
    return found
