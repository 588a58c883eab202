"""Limits repeated log lines, so that a flood of errors fills neither the disk nor the terminal.

Lines of one kind have the same logger, level, event and peer host. The first ones of a kind are
written; further ones are counted, and the last of them is written once a period with their number
as field `repeated`. A kind with few lines in a period (half as many as are written at first) gets
its first lines again. So a service that fails each second is counted, and rare lines are all
written.

Never limited: lines before `begin` (a start logs each fault once), lines of operators' changes,
debug lines (they were asked for, and expire) and critical ones.
"""

import logging
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import no_wake

_IDLE_MS: Final = 3_600_000
_FORGET_INTERVAL_MS: Final = 1_000
_KINDS_MAX: Final = 512
"""Kinds that are counted; beyond it, peers share their counts, and then events do."""
_CHANGES: Final = ("rocketpy.broker.admin.", "rocketpy.namesrv.processor.")
"""Loggers whose info lines name the changes that operators made."""
_SPEC: Final = re.compile(r"%(?:\(\w+\))?[-#0+ ]*\d*(?:\.\d+)?[a-zA-Z]")
_PLAIN: Final = (str, int, float, type(None))


class _KindKey(NamedTuple):
    logger: str
    level: int
    event: str
    host: str


class _Kind:
    """Lines of one kind in the current period."""

    __slots__ = ("count", "end_ms", "first", "last", "repeated")

    def __init__(self, end_ms: int) -> None:
        self.end_ms = end_ms
        self.first = 0
        """Lines that were written since the kind last had few of them."""
        self.count = 0
        self.repeated = 0
        self.last: logging.LogRecord | None = None

    def next_period(self, end_ms: int, *, is_frequent: bool) -> logging.LogRecord | None:
        """Begin a period; return the summary of the lines suppressed in the last one."""
        summary, self.last = self.last, None
        if summary is not None:
            _add_repeated(summary, self.repeated)
        if not is_frequent:
            self.first = 0
        self.end_ms, self.count, self.repeated = end_ms, 0, 0
        return summary


class LogLimiter:
    """Filter of a log handler, and the service that writes the lines with counts; thread-safe.

    Args:
        clock: for the periods.
        write: writes a record without a filter.
        lines: how many lines of one kind are written before they are counted.
        period_ms: time between two lines with counts of one kind.
    """

    name = "log-limits"

    def __init__(
        self,
        clock: Clock,
        write: Callable[[logging.LogRecord], None],
        *,
        lines: int = 10,
        period_ms: int = 10_000,
    ) -> None:
        self._clock = clock
        self._write = write
        self._lines = lines
        self._period_ms = period_ms
        # Reentrant: a signal handler may log while the lock is held.
        self._lock = threading.RLock()
        self._kinds: dict[_KindKey, _Kind] = {}
        self._is_limiting = False
        self._forget_ms = 0
        self._wake: Callable[[], None] = no_wake

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Store the function that requests a step; see `WokenService`."""
        self._wake = wake

    def begin(self) -> None:
        """Limit lines from now on."""
        self._is_limiting = True

    def end(self) -> None:
        """Write all counts, and limit no further lines."""
        self._is_limiting = False
        with self._lock:
            kinds, self._kinds = self._kinds, {}
        for kind in kinds.values():
            self._write_summary(kind.next_period(0, is_frequent=True))

    def admit(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written now; the filter of the handler."""
        if not self._is_limiting or not logging.DEBUG < record.levelno < logging.CRITICAL:
            return True
        if record.levelno == logging.INFO and record.name.startswith(_CHANGES):
            return True
        now_ms = self._clock.monotonic_ms()
        summary = None
        with self._lock:
            kind = self._kind_of(record, now_ms)
            if now_ms >= kind.end_ms:
                summary = self._next_period(kind, now_ms)
            kind.count += 1
            is_admitted = kind.first < self._lines
            is_first = False
            if is_admitted:
                kind.first += 1
            else:
                is_first = not kind.repeated
                kind.repeated += 1
                kind.last = _without_references(record)
        self._write_summary(summary)
        if is_first:
            self._wake()
        return is_admitted

    def step(self, now_ms: int) -> int:
        """Write the counts that are due; see `rocketpy.runtime.service.Service.step`."""
        due_ms = now_ms + _IDLE_MS
        summaries = []
        with self._lock:
            self._forget_quiet(now_ms)
            for kind in self._kinds.values():
                if kind.repeated and now_ms >= kind.end_ms:
                    summaries.append(self._next_period(kind, now_ms))
                if kind.repeated:
                    due_ms = min(due_ms, kind.end_ms)
        for summary in summaries:
            self._write_summary(summary)
        return due_ms

    def _next_period(self, kind: _Kind, now_ms: int) -> logging.LogRecord | None:
        is_frequent = not self._is_quiet(kind, now_ms)
        return kind.next_period(now_ms + self._period_ms, is_frequent=is_frequent)

    def _is_quiet(self, kind: _Kind, now_ms: int) -> bool:
        """Return whether a kind had few lines in its last period, or none for one."""
        is_few = 2 * kind.count < self._lines
        return now_ms >= kind.end_ms + (0 if is_few else self._period_ms)

    def _kind_of(self, record: logging.LogRecord, now_ms: int) -> _Kind:
        """Return the counts of a line's kind; made if it is new. The lock is held."""
        event, peer = _event_and_peer(record)
        key = _KindKey(record.name, record.levelno, event, peer.rpartition(":")[0])
        kind = self._kinds.get(key)
        if kind is not None:
            return kind
        if len(self._kinds) >= _KINDS_MAX:
            self._forget_quiet(now_ms)
            if len(self._kinds) >= _KINDS_MAX:
                key = key._replace(host="")
                # Events are constants of the program, so twice the bound is not reached by peers.
                if len(self._kinds) >= 2 * _KINDS_MAX:
                    key = _KindKey("", record.levelno, "", "")
                if key in self._kinds:
                    return self._kinds[key]
        kind = self._kinds[key] = _Kind(now_ms + self._period_ms)
        return kind

    def _forget_quiet(self, now_ms: int) -> None:
        """Forget kinds that would get their first lines again, and have nothing to write."""
        if now_ms < self._forget_ms:
            return  # a flood from many peers asks with each line
        self._forget_ms = now_ms + _FORGET_INTERVAL_MS
        quiet = [
            key
            for key, kind in self._kinds.items()
            if not kind.repeated and self._is_quiet(kind, now_ms)
        ]
        for key in quiet:
            del self._kinds[key]

    def _write_summary(self, record: logging.LogRecord | None) -> None:
        if record is not None:
            self._write(record)


def _event_and_peer(record: logging.LogRecord) -> tuple[str, str]:
    """Return the constant text of a line, and the address of its peer, if it has one."""
    message: object = record.msg
    if isinstance(message, dict):  # an event of structlog
        return str(message.get("event")), str(message.get("peer", ""))
    template = str(message)
    index = _peer_index(template)
    if index is None or not isinstance(record.args, tuple) or index >= len(record.args):
        return template, ""
    return template, str(record.args[index])


@lru_cache(maxsize=256)
def _peer_index(template: str) -> int | None:
    """Return the position of the argument that is the peer; None without one."""
    before, found, _ = template.partition("peer=%s")
    return len(_SPEC.findall(before)) if found else None


def _without_references(record: logging.LogRecord) -> logging.LogRecord:
    """Drop traceback and objects of a kept line: they would keep whole requests in memory."""
    record.exc_info = record.exc_text = None
    if isinstance(record.msg, dict):
        record.msg = {
            key: value if isinstance(value, _PLAIN) else str(value)
            for key, value in record.msg.items()
            if key not in {"exc_info", "stack_info"}
        }
    elif isinstance(record.args, tuple):
        record.args = tuple(
            value if isinstance(value, _PLAIN) else str(value) for value in record.args
        )
    return record


def _add_repeated(record: logging.LogRecord, count: int) -> None:
    """Add the field `repeated` to a line of either kind."""
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, "repeated": count}
    elif isinstance(record.args, dict):
        record.msg = f"{record.msg} repeated=%(repeated)d"
        record.args = {**record.args, "repeated": count}
    elif record.args:
        record.msg = f"{record.msg} repeated=%d"
        record.args = (*record.args, count)
    else:
        # Without arguments logging does not format, so that percent signs stand for themselves.
        record.msg = str(record.msg).replace("%", "%%") + " repeated=%d"
        record.args = (count,)
