"""Logging of the daemons, which only this module configures.

Broker, name server and commands log events with `structlog`; the library layers log text with
`logging`. Both use the same renderer: coloured lines for people, or one JSON object per line for
programs. The library alone never configures logging.

Texts of the library layers end in `key=%s` for each field. In JSON lines these fields are taken
from the template and its arguments, so that values may contain blanks and equals signs, and
numbers stay numbers.

structlog is imported as if rich were not installed. It would import rich for coloured tracebacks,
which costs 4 MiB of an idle server's memory and a sixth of its start, and daemons print plain ones.
A later or earlier import of rich by the program is not affected.
"""

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO, cast

import orjson

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor


__all__ = ["structlog"]

_comes_with_it = not {"rich", "structlog"} & sys.modules.keys()
if _comes_with_it:
    sys.modules["rich"] = cast("Any", None)  # makes an import of it fail
try:
    import structlog
finally:
    if _comes_with_it:
        del sys.modules["rich"]


_SPEC: Final = r"%(?:\(\w+\))?[-#0+ ]*\d*(?:\.\d+)?[a-zA-Z]"
_FIELDS: Final = re.compile(rf"(?P<event>.*?):?(?P<fields>(?: \w+={_SPEC})+)", re.DOTALL)
_FIELD: Final = re.compile(rf" (\w+)=({_SPEC})")
_AS_IT_IS: Final = re.compile(r"%(?:\(\w+\))?[sd]")


def fields_of(template: str, arguments: object) -> tuple[str, dict[str, object]] | None:
    """Return event and fields of a line; None if it does not end in fields.

    Args:
        template: the first argument of the call that logged.
        arguments: the others; a mapping if the template has named placeholders.
    """
    found = _FIELDS.fullmatch(template)
    if found is None:
        return None
    fields = _FIELD.findall(found["fields"])
    if isinstance(arguments, Mapping):
        values = [arguments[spec[2 : spec.index(")")]] for _, spec in fields]
        event = found["event"] % arguments
    elif isinstance(arguments, tuple):
        before = len(arguments) - len(fields)
        event = found["event"] % arguments[:before]
        values = list(arguments[before:])
    else:
        return None
    pairs = zip(fields, values, strict=True)
    return event, {key: _value(spec, value, arguments) for (key, spec), value in pairs}


def _value(spec: str, value: object, arguments: object) -> object:
    if _AS_IT_IS.fullmatch(spec) and isinstance(value, (str, int, float, type(None))):
        return value
    return spec % (arguments if isinstance(arguments, Mapping) else (value,))


LogFormat = Literal["console", "json"]

_FRAMES_OF_STRUCTLOG: Final = 4
"""Frames up to the caller that logged: `BoundLogger`'s method, and two of the logger."""
_key_values: Final = structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True)


class LogFile(NamedTuple):
    """File that receives the lines in place of standard error.

    Attributes:
        path: the file; its directory must exist.
        size_bytes: size from which it is renamed to `PATH.1` and a new file begun.
        backups: number of old files that are kept.
    """

    path: Path
    size_bytes: int = 100 << 20
    backups: int = 10


def configure(
    *,
    level: str = "info",
    log_format: LogFormat = "console",
    stream: TextIO | None = None,
    file: LogFile | None = None,
) -> logging.Handler:
    """Send all logging of this process to one stream or file.

    Args:
        level: one of `LOG_LEVELS`; lower ones are dropped. `set_level` changes it later.
        log_format: `console` or `json`.
        stream: target; default: standard error.
        file: target instead of the stream.

    Returns:
        The handler of all lines.

    Raises:
        OSError: the file cannot be opened.
    """
    handler = _handler(sys.stderr if stream is None else stream, file)
    is_json = log_format == "json"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True) if is_json else _add_local_time,
    ]
    structlog.configure(
        # The level is checked for each line, because it may change while the process runs.
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=True,
    )
    colours = isinstance(handler, logging.StreamHandler) and handler.stream.isatty()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_split_fields, *shared] if is_json else shared,
            pass_foreign_args=is_json,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format, colours=colours),
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    return handler


def set_level(level: str) -> None:
    """Drop lines below a level from now on; after `configure`.

    Args:
        level: one of `LOG_LEVELS`.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    # The daemons log slow iterations of the loop themselves.
    logging.getLogger("asyncio").setLevel(max(number, logging.WARNING))


def _handler(stream: TextIO, file: LogFile | None) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(stream)
    from rocketpy.runtime.log_file import LogFileHandler  # noqa: PLC0415 - few processes have one

    return LogFileHandler(*file)


def _add_local_time(_logger: object, _name: str, event: "EventDict") -> "EventDict":
    """Add the local time with its offset: without one an hour each autumn is ambiguous."""
    event["timestamp"] = datetime.now(UTC).astimezone().isoformat(timespec="milliseconds")
    return event


class _GoingThrough:
    """Number of active `through_logging` blocks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0


_going_through: Final = _GoingThrough()


@contextlib.contextmanager
def through_logging() -> Iterator[None]:
    """Send the servers' events to `logging` within the block, for programs that embed servers.

    Nothing is printed then, and a test runner shows the lines of a failed test. A process that has
    configured structlog itself keeps its configuration. Blocks may overlap, on any threads: the
    last one to end restores the configuration.
    """
    with _going_through.lock:
        if not _going_through.count and structlog.is_configured():
            is_ours = False
        else:
            is_ours = True
            _going_through.count += 1
            if _going_through.count == 1:
                _configure_through_logging()
    try:
        yield
    finally:
        if is_ours:
            with _going_through.lock:
                _going_through.count -= 1
                if not _going_through.count:
                    structlog.reset_defaults()


def _configure_through_logging() -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _as_text,
        ],
        # structlog's factory would change the class of all loggers of the program.
        logger_factory=logging.getLogger,
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _as_text(
    logger: logging.Logger, name: str, event: "EventDict"
) -> tuple[tuple[str], dict[str, int]]:
    """Make `logging` report the line that logged, not the one of structlog.

    Loggers created after a program selected structlog's factory do that themselves.
    """
    text = _key_values(logger, name, event)
    if type(logger).findCaller is logging.Logger.findCaller:
        return (text,), {"stacklevel": _FRAMES_OF_STRUCTLOG}
    return (text,), {}


def _renderers(log_format: LogFormat, *, colours: bool) -> "list[Processor]":
    if log_format == "json":
        return [structlog.processors.format_exc_info, _as_json]
    # Plain tracebacks: rich ones print local variables, and so secrets.
    plain = structlog.dev.plain_traceback
    return [
        structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=plain)
    ]


def _split_fields(_logger: object, _name: str, event: "EventDict") -> "EventDict":
    """Separate the fields of a library's line from its event, as in lines of daemons."""
    arguments = event.pop("positional_args")
    template = event["_record"].msg
    found = fields_of(template, arguments) if isinstance(template, str) else None
    if found is not None:
        event["event"], fields = found
        for key, value in fields.items():
            event.setdefault(key, value)
    return event


def _as_json(_logger: object, _name: str, event: "EventDict") -> str:
    return orjson.dumps(event, default=str).decode()
