"""Keys with which an operator watches a running server; a group of broker and name server."""

from dataclasses import dataclass
from typing import Final

from rocketpy.runtime.config.config import option

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
HEALTH_OFF: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationConfig:
    """Logs and health of a server process.

    Attributes:
        log_level: lowest level of the lines that are logged, of the whole process; `--log-level`
            overrides it. A change while the server runs is not stored, and ends after
            `logLevelExpiresSeconds` (ours).
        log_level_expires_seconds: how long a changed `logLevel` lasts; 0: until the next change
            or the end of the process. A change of this key is not stored either (ours).
        slow_request_millis: a request that waits and works for this long is logged as a warning,
            with its peer, topic and group; so is a loop that was held for this long. 0 logs
            neither (ours).
        health_listen_port: port of `/live` and `/ready` over HTTP; -1 opens none, 0 chooses a
            free one (ours).
        health_bind_address: local address of that port; probes of Kubernetes need 0.0.0.0 (ours).
    """

    log_level: str = option("info", live=True, stored=False, choices=LOG_LEVELS)
    log_level_expires_seconds: int = option(
        600, live=True, stored=False, minimum=0, maximum=86_400, unit="s"
    )
    slow_request_millis: int = option(1_000, live=True, minimum=0, maximum=3_600_000, unit="ms")
    health_listen_port: int = option(HEALTH_OFF, minimum=HEALTH_OFF, maximum=65_535)
    health_bind_address: str = "127.0.0.1"
