"""Server processes: options, event loop, ready line, signals, clean shutdown.

`SIGTERM`, `SIGINT` and `SIGHUP` stop cleanly; a second `SIGTERM` or `SIGINT` ends the process at
once. systemd (`Type=notify`) is notified of readiness and shutdown.
"""

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from rocketpy import __version__
from rocketpy.cli.servers.log_options import log_options
from rocketpy.cli.servers.start_rules import broken_rules, rule_warnings
from rocketpy.cli.version import version_option
from rocketpy.errors import ConfigError
from rocketpy.runtime import logs
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.config.config import ConfigSet
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.config.operation import HEALTH_OFF, OperationConfig
from rocketpy.runtime.config.setting_checks import ConfigWarning
from rocketpy.runtime.log_level import LiveLogLevel
from rocketpy.runtime.log_limit import LogLimiter
from rocketpy.runtime.logs import structlog
from rocketpy.runtime.os_resources import (
    DESCRIPTOR_LIMIT_NAMES,
    check_descriptors,
    raise_descriptor_limit,
    set_mmap_threshold,
)
from rocketpy.runtime.readiness import NotReady, ServerState
from rocketpy.runtime.service import LoopServices, Service, run_services_on_loop
from rocketpy.runtime.stop_signals import stop_signals
from rocketpy.terminal.parameters import NonEmptyPath

if TYPE_CHECKING:
    from rocketpy.remoting.health_pages import HealthPages

F = TypeVar("F", bound=Callable[..., Any])

_FORCED_EXIT: Final = 130
_EXIT_WARNINGS: Final = 1
_EXIT_ERRORS: Final = 2
_FEW_DESCRIPTORS: Final = 4_096
"""Below it some thousand clients and topics exhaust the descriptors."""
_START_DESCRIPTORS: Final = 40
"""Descriptors that the start of a standalone server opens, with some to spare."""
_WHILE_STARTING: Final = 500_000
"""Threshold of the garbage collector during the start: more objects than imports create."""
_USUAL_THRESHOLDS: Final = gc.get_threshold()
_logger = structlog.get_logger(__name__)


class Server(Protocol):
    """Interface of a server that a daemon runs."""

    async def start(self) -> None:
        """Start; ready for requests when this returns, and cleaned up when it raises."""
        ...

    async def stop(self) -> None:
        """Finish requests in progress and release all resources."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Logs and health of a server process.

    Attributes:
        config: the keys at the start.
        limiter: limits repeated log lines once the server is ready; None limits none.
        settings: returns the live settings of the servers, whose `logLevel` may change; called
            after the start.
        not_ready: returns why the servers are not ready; called on their loop.
        ready_text: returns a line for standard error when the server is ready; None prints none.
    """

    config: OperationConfig = field(default_factory=OperationConfig)
    limiter: LogLimiter | None = None
    settings: Callable[[], Sequence[LiveConfig[Any]]] = tuple
    not_ready: Callable[[], Sequence[NotReady]] = tuple
    ready_text: Callable[[], str] | None = None


def _only_one(
    _ctx: click.Context, _option: click.Parameter, paths: tuple[Path, ...]
) -> Path | None:
    """Return the path of an option that click would otherwise take the last one of.

    Raises:
        click.BadParameter: there are several: the settings of the others would have no effect.
    """
    if len(paths) > 1:
        raise click.BadParameter("is given twice: a server reads one file")
    return paths[0] if paths else None


config_option: Callable[[F], F] = click.option(
    "-c",
    "--config",
    "config_path",
    multiple=True,
    callback=_only_one,
    type=NonEmptyPath(path_type=Path),
    help="Properties file with Apache's keys.",
)


def common_options(function: F) -> F:
    """Add the options of all daemons."""
    options = (
        click.option(
            "-D",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set a configuration key; overrides file and environment. Repeatable.",
        ),
        log_options,
        click.option(
            "--strict-config", is_flag=True, help="Treat configuration warnings as errors."
        ),
        click.option(
            "--print-config", is_flag=True, help="Print the effective configuration and exit."
        ),
        click.option(
            "--check-config",
            is_flag=True,
            help="Print all errors and warnings of the configuration and exit: "
            "0 without any, 1 with warnings, 2 with errors.",
        ),
        click.option(
            "--accept-ignored",
            "accepted",
            multiple=True,
            metavar="KEY",
            help="Start although this key asks for what RocketPy does not have. Repeatable.",
        ),
        version_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


def collect_seldom() -> None:
    """Collect garbage rarely until the server is ready, because imports create little of it.

    Their 0.6 MiB are collected when the server is ready. During a long recovery the collector
    still runs.
    """
    gc.set_threshold(_WHILE_STARTING)


def report_configuration(configs: Mapping[str, ConfigSet], *, strict: bool) -> None:
    """Log warnings and all values that differ from the defaults.

    Args:
        configs: the loaded sets by the name of their server.
        strict: whether a warning is an error.

    Raises:
        ConfigError: a warning, when strict.
    """
    for name, loaded in configs.items():
        for warning in loaded.warnings:
            refuse_warning(warning, strict=strict)
            _logger.warning("configuration", server=name, problem=str(warning))
        # The part that they concern logs these.
        for warning in rule_warnings(loaded) if strict else ():
            refuse_warning(warning, strict=strict)
        _logger.info("configuration", server=name, non_defaults=loaded.non_defaults())
        if loaded.from_live_file:
            shown = loaded.as_dict()
            changed = {key: shown[key] for key in sorted(loaded.from_live_file)}
            _logger.info("settings changed in an earlier run", server=name, settings=changed)


def check_configuration(loaders: Mapping[str, Callable[[], ConfigSet]], *, strict: bool) -> int:
    """Print every error and warning of a configuration, rules between keys included.

    Args:
        loaders: functions that load the sets, by the name of their server.
        strict: whether a warning is an error.

    Returns:
        The exit code: 2 with errors, 1 with warnings only, 0 without any.
    """
    # Without duplicates: servers of one process share keys.
    errors: dict[str, None] = {}
    warnings: dict[str, None] = {}
    configs: dict[str, ConfigSet] = {}
    for name, load in loaders.items():
        try:
            configs[name] = load()
            found = (*configs[name].warnings, *rule_warnings(configs[name]))
            warnings |= dict.fromkeys(map(str, found))
        except ConfigError as error:
            errors |= dict.fromkeys(error.all_errors)
            warnings |= dict.fromkeys(error.warnings)
    errors |= dict.fromkeys(map(str, broken_rules(configs)))
    for kind, texts in (("error", errors), ("warning", warnings)):
        for text in texts:
            click.echo(f"{kind}: {text}")
    click.echo(f"{len(errors)} errors, {len(warnings)} warnings")
    if errors or (strict and warnings):
        return _EXIT_ERRORS
    return _EXIT_WARNINGS if warnings else 0


def print_configuration(configs: Mapping[str, ConfigSet], *, strict: bool) -> int:
    """Print the effective configuration, and its warnings on standard error.

    Raises:
        ConfigError: a warning, when strict.
    """
    for name, loaded in configs.items():
        for warning in (*loaded.warnings, *rule_warnings(loaded)):
            refuse_warning(warning, strict=strict)
            click.echo(f"warning: {warning}", err=True)
        head = f"# {name}\n" if len(configs) > 1 else ""
        click.echo(head + loaded.as_properties(), nl=False)
    return 0


def refuse_warning(warning: ConfigWarning, *, strict: bool) -> None:
    """Raise a warning as an error, when strict.

    Raises:
        ConfigError: the warning.
    """
    if strict:
        raise ConfigError(warning.reason, source=warning.source, line=warning.line, key=warning.key)


def run_server(
    server: Server, addresses: Callable[[], Mapping[str, str]], operation: Operation | None = None
) -> int:
    """Start a server, log that it is ready, wait for a signal, stop it.

    Args:
        server: what to run.
        addresses: called after the start; returns the fields of the ready line.
        operation: its logs and health.

    Returns:
        The exit code.

    Raises:
        RocketPyError: the server cannot start.
        OSError: the process has too few descriptors left for a start.
    """
    from rocketpy.remoting.network.event_loop import new_event_loop  # noqa: PLC0415 - --help is quick

    _report_descriptors(raise_descriptor_limit())
    check_descriptors(_START_DESCRIPTORS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(server, addresses, operation or Operation()))


def _report_descriptors(limit: int) -> None:
    if limit < _FEW_DESCRIPTORS:
        _logger.warning(
            "few file descriptors, connections will be refused when they are used up",
            limit=limit,
            hint=f"raise {DESCRIPTOR_LIMIT_NAMES} to {_FEW_DESCRIPTORS} or more",
        )
    else:
        _logger.info("descriptors", limit=limit)


async def _serve(
    server: Server, addresses: Callable[[], Mapping[str, str]], operation: Operation
) -> int:
    stopping = asyncio.Event()
    _on_signals(asyncio.get_running_loop(), stopping)
    health = _start_health(operation)
    try:
        await server.start()
        services = _start_services(operation)
        if not stopping.is_set():
            _report_ready(addresses(), operation, health)
        set_mmap_threshold()
        # All current objects live as long as the process, so the collector can skip them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_USUAL_THRESHOLDS)
        await stopping.wait()
        if health is not None:
            health.state = ServerState.STOPPING
        _notify_systemd("STOPPING=1")
        _logger.info("stopping")
        services.stop()
        await server.stop()
    finally:
        if health is not None:
            health.stop()
        if operation.limiter is not None:
            operation.limiter.end()
    _logger.info("stopped")
    return 0


def _start_health(operation: Operation) -> "HealthPages | None":
    if operation.config.health_listen_port == HEALTH_OFF:
        return None
    from rocketpy.remoting.health_pages import HealthPages  # noqa: PLC0415 - off by default

    config = operation.config
    health = HealthPages(config.health_bind_address, config.health_listen_port, operation.not_ready)
    health.start()
    return health


def _start_services(operation: Operation) -> LoopServices:
    """Limit repeated log lines, and follow changes of the log level."""
    clock = SystemClock()
    services: list[Service] = []
    if settings := operation.settings():
        services.append(LiveLogLevel(settings, logs.set_level, clock))
    if operation.limiter is not None:
        operation.limiter.begin()
        services.append(operation.limiter)
    return run_services_on_loop(services, clock)


def _report_ready(
    fields: Mapping[str, str], operation: Operation, health: "HealthPages | None"
) -> None:
    more = {}
    if health is not None:
        health.state = ServerState.SERVING
        more["health_port"] = health.port
    _logger.info("ready", **fields, **more, version=__version__, ms=_process_age_ms())
    if operation.ready_text is not None:
        click.echo(operation.ready_text(), err=True)
    _notify_systemd("READY=1")


def _on_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Set the event at the first signal, end the process at the second.

    Uses signal.signal, because handlers of the loop do not run during a recovery.
    """
    seen = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        # A closed terminal sends two SIGHUP: from the kernel, and from its shell.
        if seen and number != signal.SIGHUP:
            os._exit(_FORCED_EXIT)
        seen = True
        loop.call_soon_threadsafe(stopping.set)

    for number in stop_signals():
        signal.signal(number, on_signal)


def _process_age_ms() -> int:
    """Return the time since the process started; its processor time where /proc is missing."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except OSError:  # not Linux
        return round(time.process_time() * 1_000)
    began_s = ticks / os.sysconf("SC_CLK_TCK")
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - began_s) * 1_000)


def _notify_systemd(state: str) -> None:
    """Notify the service manager, if there is one."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        try:
            notify.sendto(state.encode(), address)
        except OSError as error:
            _logger.warning("service manager notification failed", socket=path, reason=str(error))
