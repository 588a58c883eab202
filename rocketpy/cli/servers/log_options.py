"""Options of server processes that concern their logs."""

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args

import click

from rocketpy import __version__
from rocketpy.runtime import logs
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.config.operation import LOG_LEVELS
from rocketpy.runtime.config.setting_checks import path_fault
from rocketpy.runtime.log_limit import LogLimiter
from rocketpy.runtime.logs import structlog
from rocketpy.terminal.parameters import NonEmptyPath

F = TypeVar("F", bound=Callable[..., Any])

_MIB: Final = 1 << 20
_logger = structlog.get_logger(__name__)


class LogOptions(NamedTuple):
    """Values of the options.

    Attributes:
        format: of the lines.
        level: lowest level; None leaves it to the key `logLevel`.
        file: receives the lines; None: standard error.
    """

    format: logs.LogFormat
    level: str | None
    file: logs.LogFile | None

    @property
    def overrides(self) -> list[str]:
        """The level as `key=value` text of the command line."""
        return [] if self.level is None else [f"logLevel={self.level}"]


def whole_path(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a path that a shell has not expanded: bash leaves `--data=~/data` as it is."""
    if path is not None and (fault := path_fault(str(path))):
        raise click.BadParameter(f"{str(path)!r} {fault}")
    return path


def log_options(function: F) -> F:
    """Add the options to a command, which gets them as one argument `log_options`."""

    @functools.wraps(function)
    def command(
        *,
        log_format: logs.LogFormat,
        log_level: str | None,
        log_file: Path | None,
        log_file_mib: int,
        log_file_count: int,
        **others: Any,  # noqa: ANN401 - options of the command
    ) -> object:
        file = None
        if log_file is not None:
            file = logs.LogFile(log_file.absolute(), log_file_mib * _MIB, log_file_count)
        return function(log_options=LogOptions(log_format, log_level, file), **others)

    decorated: Callable[..., Any] = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return cast("F", decorated)


_OPTIONS: Final = (
    click.option(
        "--log-format",
        type=click.Choice(get_args(logs.LogFormat)),
        default="console",
        show_default=True,
        help="Format of log lines: for people or for programs.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        help="Lowest level of log lines; the key logLevel (info) by default.",
    ),
    click.option(
        "--log-file",
        type=NonEmptyPath(path_type=Path, dir_okay=False),
        callback=whole_path,
        help="Write log lines to this file instead of standard error.",
    ),
    click.option(
        "--log-file-mib",
        type=click.IntRange(1, 1 << 20),
        default=100,
        show_default=True,
        metavar="MIB",
        help="Size from which the log file is renamed to FILE.1 and a new one begun.",
    ),
    click.option(
        "--log-file-count",
        type=click.IntRange(1, 1_000),
        default=10,
        show_default=True,
        metavar="N",
        help="Number of renamed log files that are kept.",
    ),
)


def start_logs(options: LogOptions, level: str) -> LogLimiter:
    """Configure the logs of this process, and log that a server starts.

    Args:
        options: from the command line.
        level: value of `logLevel`.

    Returns:
        The limiter of repeated lines; `begin` activates it.

    Raises:
        OSError: the log file cannot be opened.
    """
    handler = logs.configure(level=level, log_format=options.format, file=options.file)

    limiter = LogLimiter(SystemClock(), functools.partial(_write, handler))
    handler.addFilter(limiter.admit)
    _logger.info("starting", version=__version__, pid=os.getpid())
    return limiter


def _write(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Write a record without the handler's filters."""
    handler.acquire()
    try:
        handler.emit(record)
    finally:
        handler.release()
