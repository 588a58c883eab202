"""Log level of a running process: changed through the live settings, for a limited time."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.config.operation import LOG_LEVELS, OperationConfig
from rocketpy.runtime.service import no_wake

_logger = structlog.get_logger(__name__)

_IDLE_MS: Final = 3_600_000
_LEVEL: Final = "logLevel"
_EXPIRY: Final = "logLevelExpiresSeconds"


class LiveLogLevel:
    """Service that applies changes of `logLevel`, and takes them back when they expire.

    Servers of one process share its level: a change at one of them is copied to the others, so
    that each of them reports the level in force.

    Args:
        settings: of each server of this process. The level of the first one is in force at the
            start; another level of another server is replaced, with a warning.
        apply: sets the level of the process.
        clock: for the expiry.
    """

    name = "log-level"

    def __init__(
        self,
        settings: Sequence[LiveConfig[Any]],
        apply: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._settings = tuple(settings)
        self._apply = apply
        self._clock = clock
        self._usual = self._level = _operation(self._settings[0]).log_level
        self._expires_ms: int | None = None
        self._wake: Callable[[], None] = no_wake
        # Servers change settings on different threads. Reentrant: a copy calls this again.
        self._lock = threading.RLock()
        for each in self._settings[1:]:
            ignored = _operation(each).log_level
            if ignored != self._level:
                _logger.warning(
                    "servers of one process have different log levels, the first one counts",
                    log_level=self._level,
                    ignored=ignored,
                )
            self._copy(self._settings[0], each)
        for each in self._settings:
            each.add_listener(functools.partial(self._changed, each))

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Store the function that requests a step; see `WokenService`."""
        self._wake = wake

    def step(self, now_ms: int) -> int:
        """Take an expired level back; see `rocketpy.runtime.service.Service.step`."""
        with self._lock:
            if self._expires_ms is None:
                return now_ms + _IDLE_MS
            if now_ms < self._expires_ms:
                return self._expires_ms
            self._expires_ms = None
            self._settings[0].update({_LEVEL: self._usual})
            return now_ms + _IDLE_MS

    def _changed(self, settings: LiveConfig[Any], _config: object) -> None:
        """Apply a change of the level or of its expiry; the listener of each server's settings."""
        if settings.changed_keys.isdisjoint((_LEVEL, _EXPIRY)):
            return
        with self._lock:
            config = _operation(settings)
            for other in self._settings:
                self._copy(settings, other)
            before, self._level = self._level, config.log_level
            expires_s = config.log_level_expires_seconds
            if self._level == self._usual or not expires_s:
                self._expires_ms = None
            else:
                self._expires_ms = self._clock.monotonic_ms() + expires_s * 1_000
            if self._level != before:
                # Logged under the level of the two that shows more.
                if LOG_LEVELS.index(self._level) > LOG_LEVELS.index(before):
                    self._report(before, expires_s)
                self._apply(self._level)
                if LOG_LEVELS.index(self._level) < LOG_LEVELS.index(before):
                    self._report(before, expires_s)
        self._wake()

    @staticmethod
    def _copy(source: LiveConfig[Any], target: LiveConfig[Any]) -> None:
        """Copy level and expiry to another server; does nothing when they are equal."""
        of_source, of_target = _operation(source), _operation(target)
        values = {
            _LEVEL: of_source.log_level,
            _EXPIRY: str(of_source.log_level_expires_seconds),
        }
        if values != {
            _LEVEL: of_target.log_level,
            _EXPIRY: str(of_target.log_level_expires_seconds),
        }:
            target.update(values)

    def _report(self, before: str, expires_s: int) -> None:
        _logger.warning(
            "log level changed",
            log_level=self._level,
            before=before,
            expires_s=expires_s if self._expires_ms is not None else None,
        )


def _operation(settings: LiveConfig[Any]) -> OperationConfig:
    config: OperationConfig = settings.current.operation
    return config
