"""Log level of a running process: changed through the live settings, for a limited time."""

from collections.abc import Callable
from typing import Any, Final

import structlog

from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.config.operation import LOG_LEVELS, OperationConfig
from rocketpy.runtime.service import no_wake

_logger = structlog.get_logger(__name__)

_IDLE_MS: Final = 3_600_000
_KEYS: Final = ("logLevel", "logLevelExpiresSeconds")


class LiveLogLevel:
    """Service that applies changes of `logLevel`, and takes them back when they expire.

    Args:
        settings: of a server of this process.
        apply: sets the level of the process.
        clock: for the expiry.
    """

    name = "log-level"

    def __init__(
        self,
        settings: LiveConfig[Any],
        apply: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._apply = apply
        self._clock = clock
        self._usual = self._level = self._config.log_level
        self._expires_ms: int | None = None
        self._wake: Callable[[], None] = no_wake
        settings.add_listener(self._changed)

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Store the function that requests a step; see `WokenService`."""
        self._wake = wake

    def step(self, now_ms: int) -> int:
        """Take an expired level back; see `rocketpy.runtime.service.Service.step`."""
        if self._expires_ms is None:
            return now_ms + _IDLE_MS
        if now_ms < self._expires_ms:
            return self._expires_ms
        self._expires_ms = None
        self._settings.update({"logLevel": self._usual})
        return now_ms + _IDLE_MS

    @property
    def _config(self) -> OperationConfig:
        config: OperationConfig = self._settings.current.operation
        return config

    def _changed(self, _config: object) -> None:
        """Apply a change of the level or of its expiry; the listener of the settings."""
        if self._settings.changed_keys.isdisjoint(_KEYS):
            return
        before, self._level = self._level, self._config.log_level
        level, expires_s = self._level, self._config.log_level_expires_seconds
        if level == self._usual or not expires_s:
            self._expires_ms = None
        else:
            self._expires_ms = self._clock.monotonic_ms() + expires_s * 1_000
        if level != before:
            # Logged under the level of the two that shows more.
            if LOG_LEVELS.index(level) > LOG_LEVELS.index(before):
                self._report(before)
            self._apply(level)
            if LOG_LEVELS.index(level) < LOG_LEVELS.index(before):
                self._report(before)
        self._wake()

    def _report(self, before: str) -> None:
        expires_s = self._config.log_level_expires_seconds if self._expires_ms is not None else None
        _logger.warning(
            "log level changed", log_level=self._level, before=before, expires_s=expires_s
        )
